"""What people do at the door, with Django's client: sign up, follow the link in a mail, sign in."""

import re
from typing import Any

from django.core import mail
from django.http import HttpResponse
from django.test import Client

LOGIN, SIGNUP, RESET = "/accounts/login/", "/accounts/signup/", "/accounts/password/reset/"
NEW_PASSWORD = "a horse of another colour"


def last_link(to: str) -> str:
    """The path of the only link in the last mail to this address, but for the site's own at its foot."""
    body = next(str(each.body) for each in reversed(mail.outbox) if to in each.to)
    (link,) = re.findall(r"http://testserver(/\S+)", body)
    return str(link)


def sign_up(
    client: Client, email: str, password: str = NEW_PASSWORD, headers: dict[str, str] | None = None, **more: Any
) -> Any:
    return client.post(SIGNUP, {"email": email, "password1": password, **more}, headers=headers)


def sign_in(client: Client, email: str, password: str, **more: Any) -> Any:
    return client.post(LOGIN, {"login": email, "password": password}, **more)


def is_in(client: Client) -> bool:
    return bool(client.get("/account/").status_code == 200)


def text_of(response: HttpResponse) -> str:
    """What a reader sees, roughly."""
    html = re.sub(r"(?s)<head>.*?</head>", "", response.content.decode())
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html)).strip()
