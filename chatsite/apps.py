from django.apps import AppConfig


class ChatsiteConfig(AppConfig):
    name = "chatsite"

    def ready(self) -> None:
        from chatsite import checks  # noqa: PLC0415 - registers the system checks, which need the settings

        checks.refuse_unsafe_start()
