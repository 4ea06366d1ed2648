from django.apps import AppConfig
from django.contrib.admin.apps import AdminConfig


class ChatsiteConfig(AppConfig):
    name = "chatsite"

    def ready(self) -> None:
        from chatsite import checks  # noqa: PLC0415 - registers the system checks, which need the settings

        checks.refuse_unsafe_start()


class ChatsiteAdminConfig(AdminConfig):
    """Django's admin, with the site that chatsite.admin_site makes of it."""

    default_site = "chatsite.admin_site.Site"
