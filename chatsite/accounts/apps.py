from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "chatsite.accounts"
    label = "accounts"
    verbose_name = "People"
