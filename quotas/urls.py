"""Addresses of usage: those of the API, and the page."""

from django.urls import path

from quotas import usage_api, usage_page

api_urlpatterns = [
    path("v1/usage", usage_api.UsageView.as_view()),
    path("v1/quota", usage_api.QuotaView.as_view()),
]
urlpatterns = [
    path("", usage_page.usage_page, name="usage"),
]
