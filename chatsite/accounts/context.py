"""What every template of the site may say about it."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest


def site(request: HttpRequest) -> dict[str, Any]:
    """For settings.TEMPLATES."""
    return {
        "site_name": settings.SITE_NAME,
        "signup_open": settings.SIGNUP_OPEN,
        "oidc_name": settings.OIDC_NAME if settings.OIDC_ISSUER else "",
    }
