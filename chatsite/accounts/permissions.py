"""Which API keys may call which API view."""

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from chatsite import scopes
from chatsite.accounts.protocol import Principal


class HasScope(BasePermission):
    """A view says in `required_scopes` what each method needs. Nobody may call a method without an entry."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Raises InsufficientScope."""
        method = "GET" if request.method == "HEAD" else str(request.method)
        if method == "OPTIONS" or not hasattr(view, method.lower()):
            return True  # answered with what the view can do, or that it cannot do this
        needed = getattr(view, "required_scopes", {}).get(method)
        if needed is None or not isinstance(request.auth, Principal):
            return False
        scopes.require(request.auth.scopes, needed)
        return True
