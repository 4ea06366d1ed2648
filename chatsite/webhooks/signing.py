"""How what is sent is signed: as the Standard Webhooks specification has it. Pure.

The signature is HMAC-SHA256 over `id.timestamp.body` by the bytes of the secret, which is shown as `whsec_` and base64.
"""

import base64
import hashlib
import hmac
from typing import Final
from uuid import UUID

PREFIX: Final = "whsec_"


def secret_of(site_key: str, endpoint_id: UUID, salt: UUID) -> bytes:
    """The 32 bytes of an endpoint's secret. Another salt makes another secret."""
    return hmac.digest(site_key.encode(), f"webhook {endpoint_id} {salt}".encode(), hashlib.sha256)


def shown(secret: bytes) -> str:
    """As its owner copies it."""
    return PREFIX + base64.b64encode(secret).decode()


def signature(secret: bytes, id: str, timestamp: int, body: bytes) -> str:
    """The header `webhook-signature`."""
    digest = hmac.digest(secret, f"{id}.{timestamp}.".encode() + body, hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"


def headers(secret: bytes, id: str, timestamp: int, body: bytes) -> dict[str, str]:
    return {
        "content-type": "application/json",
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(secret, id, timestamp, body),
    }
