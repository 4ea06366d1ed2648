"""What views of the API have in common."""

from typing import Any, cast

from asgiref.sync import async_to_sync
from rest_framework.views import APIView

from chatsite.accounts.protocol import Principal
from chatsite.openapi import ApiSchema
from chatsite.scopes import Scope
from quotas.headers import limit_headers


class ApiView(APIView):
    """Every answer, an error too, tells where the caller stands against the limits."""

    schema = ApiSchema()
    required_scopes = {"GET": Scope.READ, "POST": Scope.CHAT, "PATCH": Scope.CHAT, "DELETE": Scope.CHAT}

    @property
    def principal(self) -> Principal:
        return cast(Principal, self.request.auth)

    def finalize_response(self, request: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        answer = super().finalize_response(request, response, *args, **kwargs)
        caller = getattr(request, "_auth", None)  # `request.auth` would raise again what refused the caller
        if isinstance(caller, Principal):
            for name, value in async_to_sync(limit_headers)(caller).items():
                answer.headers.setdefault(name, value)
        return answer
