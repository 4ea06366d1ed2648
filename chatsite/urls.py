"""Every address that Django serves. Streaming routes are ahead of it (chatsite.asgi)."""

from django.contrib import admin
from django.urls import include, path

from chatsite.operations import health
from conversations.urls import api_urlpatterns

urlpatterns = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("admin/", admin.site.urls),
    path("accounts/", include("allauth.urls")),
    path("account/", include("chatsite.accounts.urls")),
    *api_urlpatterns,
    path("", include("conversations.page_urls")),
]

handler400 = "chatsite.error_responses.handler400"
handler403 = "chatsite.error_responses.handler403"
handler404 = "chatsite.error_responses.handler404"
handler500 = "chatsite.error_responses.handler500"
