"""The pages about money, below /usage/."""

from django.urls import path

from quotas.billing import statement_views

urlpatterns = [
    path("statements/", statement_views.all_months, name="statements"),
    path("statements/<str:month>", statement_views.one_month, name="statement"),
]
