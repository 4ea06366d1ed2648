"""The pages about money, below /usage/."""

from django.urls import path

from quotas.billing import budget_views, statement_views, webhook_views

urlpatterns = [
    path("budgets/", budget_views.budgets, name="budgets"),
    path("budgets/new", budget_views.new, name="budget_new"),
    path("budgets/stop", budget_views.stop, name="organization_stop"),
    path("budgets/go-on", budget_views.go_on, name="organization_go_on"),
    path("budgets/<str:budget>", budget_views.one, name="budget"),
    path("budgets/<str:budget>/delete", budget_views.delete, name="budget_delete"),
    path("webhooks/", webhook_views.webhooks, name="webhooks"),
    path("webhooks/<str:webhook>", webhook_views.one, name="webhook"),
    path("webhooks/<str:webhook>/test", webhook_views.test, name="webhook_test"),
    path("webhooks/<str:webhook>/secret", webhook_views.renew, name="webhook_secret"),
    path("webhooks/<str:webhook>/delete", webhook_views.delete, name="webhook_delete"),
    path("statements/", statement_views.all_months, name="statements"),
    path("statements/<str:month>", statement_views.one_month, name="statement"),
]
