"""Every address that Django serves. Streaming routes are ahead of it (chatsite.asgi)."""

from allauth.account.decorators import secure_admin_login
from allauth.account.views import logout
from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView

from chatsite.openapi import COMPONENTS, documented
from chatsite.operations import health
from conversations import openapi as conversations
from conversations.urls import api_urlpatterns
from inference.completions import openapi as completions
from quotas.urls import api_urlpatterns as quota_urlpatterns

_raw = [documented(route, operation) for route, operation in [*completions.DESCRIBED, *conversations.DESCRIBED]]
_schema = SpectacularJSONAPIView.as_view(
    patterns=[*api_urlpatterns, *quota_urlpatterns, *_raw],
    custom_settings={"SCHEMA_PATH_PREFIX": "/v1", "APPEND_COMPONENTS": COMPONENTS},
)
_reference = SpectacularSwaggerSplitView.as_view(url_name="openapi", template_name="conversations/api_reference.html")

# The admin has no door of its own: sign-ins go through the same lockout, and sign-outs close the same pages.
admin.site.login = secure_admin_login(admin.site.login)  # type: ignore[method-assign]

urlpatterns = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("admin/logout/", logout),
    path("admin/password_change/", RedirectView.as_view(pattern_name="account_change_password")),
    path("admin/", admin.site.urls),
    path("accounts/", include("chatsite.accounts.entrance")),
    path("accounts/", include("allauth.urls")),
    path("account/", include("chatsite.accounts.urls")),
    path("organization/", include("chatsite.accounts.organization_urls")),
    path("usage/", include("quotas.billing.urls")),
    path("usage/", include("quotas.urls")),
    *api_urlpatterns,
    *quota_urlpatterns,
    path("v1/openapi.json", _schema, name="openapi"),
    path("docs/", _reference, name="api_reference"),
    path("", include("conversations.page_urls")),
]

handler400 = "chatsite.error_responses.handler400"
handler403 = "chatsite.error_responses.handler403"
handler404 = "chatsite.error_responses.handler404"
handler429 = "chatsite.accounts.lockout.handler429"  # asked for by allauth
handler500 = "chatsite.error_responses.handler500"
