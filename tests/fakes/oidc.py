"""A small OpenID Connect provider on loopback: discovery, authorize, token, jwks, userinfo.

`provider.claims` is what it says of whoever signs in; it asks nobody anything. It insists on what it should: the
client's secret, the redirect address, the PKCE verifier, and a code that is used once.
"""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT_ID = "chatsite"
CLIENT_SECRET = "a secret of the client"
_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


class OidcProvider:
    """What the provider says, and what it was asked."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.claims: dict[str, Any] = {"sub": "u1", "email": "ada@corp.example", "email_verified": True, "name": "Ada"}
        self.id_token_claims: dict[str, Any] = {}  # said in the ID token only
        self.broken: dict[str, Any] = {}  # path -> the JSON, or the status, that is answered instead
        self.refuse = ""  # an OAuth error that /authorize answers with
        self.asked: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}
        self._tokens: set[str] = set()

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "jwks_uri": f"{self.issuer}/jwks",
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        }

    def authorize(self, asked: dict[str, str]) -> str:
        """Where the browser is sent back to."""
        assert asked["client_id"] == CLIENT_ID and "openid" in asked["scope"].split()
        if self.refuse:
            return f"{asked['redirect_uri']}?{urlencode({'error': self.refuse, 'state': asked['state']})}"
        code = secrets.token_urlsafe(8)
        self._codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def token(self, form: dict[str, str]) -> dict[str, Any] | None:
        asked = self._codes.pop(form.get("code", ""), None)
        if asked is None or form.get("client_secret") != CLIENT_SECRET:
            return None
        challenge = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if base64.urlsafe_b64encode(challenge).rstrip(b"=").decode() != asked["code_challenge"]:
            return None
        if form.get("redirect_uri") != asked["redirect_uri"]:
            return None
        access = secrets.token_urlsafe(8)
        self._tokens.add(access)
        now = int(time.time())
        told = {**self.claims, **self.id_token_claims, "iss": self.issuer, "aud": CLIENT_ID, "iat": now}
        id_token = jwt.encode({**told, "exp": now + 60}, _KEY, algorithm="RS256", headers={"kid": "k1"})
        return {"access_token": access, "token_type": "Bearer", "expires_in": 60, "id_token": id_token}

    def userinfo(self, authorization: str) -> dict[str, Any] | None:
        return self.claims if authorization.removeprefix("Bearer ") in self._tokens else None


class _Handler(BaseHTTPRequestHandler):
    provider: OidcProvider

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.provider.asked.append(parts.path)
        if self._is_broken(parts.path):
            return
        if parts.path == "/.well-known/openid-configuration":
            self._answer(self.provider.discovery())
        elif parts.path == "/authorize":
            self.send_response(HTTPStatus.FOUND)
            self.send_header("Location", self.provider.authorize(dict(parse_qsl(parts.query))))
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif parts.path == "/userinfo":
            self._answer(self.provider.userinfo(self.headers.get("Authorization", "")))
        elif parts.path == "/jwks":
            key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(_KEY.public_key()))
            self._answer({"keys": [{**key, "kid": "k1", "alg": "RS256", "use": "sig"}]})
        else:
            self._answer(None)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.provider.asked.append(self.path)
        if not self._is_broken(self.path):
            self._answer(self.provider.token(dict(parse_qsl(body))))

    def _is_broken(self, path: str) -> bool:
        if path not in self.provider.broken:
            return False
        instead = self.provider.broken[path]
        self._answer(None if isinstance(instead, int) else instead, instead if isinstance(instead, int) else 200)
        return True

    def _answer(self, found: Any, status: int | None = None) -> None:
        body = json.dumps({"error": "invalid_request"} if found is None else found).encode()
        self.send_response(status or (HTTPStatus.BAD_REQUEST if found is None else HTTPStatus.OK))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@contextmanager
def oidc_provider() -> Iterator[OidcProvider]:
    """Runs in a thread of this process until the block is left."""
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    provider = handler.provider = OidcProvider(f"http://127.0.0.1:{server.server_port}")  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
