from django.apps import AppConfig


class BillingConfig(AppConfig):
    name = "quotas.billing"
