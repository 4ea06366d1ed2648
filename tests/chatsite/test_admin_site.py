"""The admin as a whole: who gets in, the policy, navigation, finding by id, hostile names."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse
from unfold.admin import ModelAdmin

from chatsite.ids import new_id, public_id
from chatsite.middleware import ADMIN_POLICY
from quotas.models import LedgerEntry
from tests.admin_rows import HOSTILE, LISTS, SECRET, SINGLE_PAGES, Rows, grant, make_model, make_rows, signed_in
from tests.conftest import Person

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(make_person: Any) -> Client:
    return signed_in(make_person("root@example.com", superuser=True).user)


@pytest.fixture
def rows(person: Person) -> Rows:
    return make_rows(person, make_model())


class Inline(HTMLParser):
    """What a policy without 'unsafe-inline' would refuse, and every link."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "style" or (tag == "script" and "src" not in given and given.get("type") != "application/json"):
            self.refused.append(tag)
        self.refused += [f"{tag} {name}" for name in given if name == "style" or re.fullmatch(r"on\w+", name)]
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action")]


def check(html: str) -> Inline:
    parser = Inline()
    parser.feed(html)
    return parser


def test_every_page_wears_the_theme() -> None:
    assert all(isinstance(each, ModelAdmin) for each in admin.site._registry.values())
    names = {f"{model._meta.app_label}_{model._meta.model_name}" for model in admin.site._registry}
    assert names == {*LISTS, *SINGLE_PAGES}


@pytest.mark.parametrize("name", [*LISTS, *SINGLE_PAGES])
def test_lists_have_nothing_inline(staff: Client, rows: Rows, name: str) -> None:
    page = staff.get(reverse(f"admin:{name}_changelist"))
    assert page.status_code == 200
    assert check(page.content.decode()).refused == []


def test_pages_have_nothing_inline(staff: Client, rows: Rows) -> None:
    for name, key in rows.pages():
        page = staff.get(reverse(f"admin:{name}_change", args=[key]))
        assert page.status_code == 200, name
        assert check(page.content.decode()).refused == [], name
    for name in ("accounts_user_add", "quotas_plan_add", "quotas_subscription_add", "auth_group_add", "index"):
        assert check(staff.get(reverse(f"admin:{name}")).content.decode()).refused == [], name


def test_the_policy_is_looser_in_the_admin_alone(staff: Client) -> None:
    inside = staff.get(reverse("admin:index"))["Content-Security-Policy"]
    assert inside == ADMIN_POLICY
    assert "script-src 'self' 'unsafe-eval';" in inside
    assert "unsafe-inline" not in inside
    assert "style-src 'self';" in inside
    for address in ("/healthz", "/accounts/login/", "/nothing"):
        assert "unsafe" not in Client().get(address)["Content-Security-Policy"]


def test_nobody_gets_in_by_another_door(person: Person) -> None:
    answer = Client().get(reverse("admin:index"), follow=True)
    assert answer.redirect_chain[-1][0].startswith("/accounts/login/")
    assert "unsafe" not in answer["Content-Security-Policy"]
    for address in (reverse("admin:index"), reverse("admin:search"), reverse("admin:inference_request_changelist")):
        answer = signed_in(person.user).get(address, follow=True)
        assert answer.status_code == 403
        assert "Overview" not in answer.content.decode()


def test_the_sidebar_shows_what_somebody_may_see(staff: Client, person: Person) -> None:
    html = staff.get(reverse("admin:index")).content.decode()
    for topic in ("People", "Use", "Conversations", "Serving", "Plans"):
        assert re.search(rf">\s*{topic}\s*<", html), topic
    links = check(html).links
    assert all(reverse(f"admin:{name}_changelist") in links for name in [*LISTS, *SINGLE_PAGES])
    some = grant(person.user, "inference.view_request")
    links = check(signed_in(some).get(reverse("admin:index")).content.decode()).links
    assert reverse("admin:inference_request_changelist") in links
    assert reverse("admin:accounts_user_changelist") not in links


@pytest.mark.parametrize(
    ("page", "named"),
    [("conversations_conversation", ["Conversations"]), ("accounts_user", ["People", "Users"])],
)
def test_where_one_is_is_said_once(staff: Client, page: str, named: list[str]) -> None:
    html = staff.get(reverse(f"admin:{page}_changelist")).content.decode()
    [heading] = re.findall(r"<h1.*?</h1>", html, re.S)
    words = [" ".join(part.split()) for part in re.findall(r">([^<>]+)<", heading) if part.strip()]
    assert [word for word in words if word != "chevron_right"] == named


def test_hostile_names_are_text_everywhere(staff: Client, person: Person) -> None:
    person.user.name = person.organization.name = person.key.name = HOSTILE
    for row in (person.user, person.organization, person.key):
        row.save()
    model = make_model("hostile", title=HOSTILE, description=HOSTILE)
    rows = make_rows(person, model, error_code="javascript:1", error_message=f'{HOSTILE}"><img onerror=alert(1)>',
                     status="failed", sampling={HOSTILE: HOSTILE})  # fmt: skip
    addresses = [reverse(f"admin:{name}_changelist") for name in LISTS]
    addresses += [reverse(f"admin:{name}_change", args=[key]) for name, key in rows.pages()]
    addresses += [reverse("admin:index"), reverse("admin:search") + f"?q={HOSTILE}"]
    for address in addresses:
        html = staff.get(address).content.decode()
        assert HOSTILE not in html, address
        parsed = check(html)
        assert parsed.refused == [], address
        assert not [link for link in parsed.links if link.strip().lower().startswith("javascript:")], address


def test_titles_and_texts_are_nowhere(staff: Client, rows: Rows) -> None:
    addresses = [reverse(f"admin:{name}_changelist") for name in LISTS]
    addresses += [reverse(f"admin:{name}_change", args=[key]) for name, key in rows.pages()]
    addresses += [reverse(f"admin:{name}_history", args=[key]) for name, key in rows.pages()]
    addresses += [
        reverse("admin:index"),
        reverse("admin:conversations_conversation_delete", args=[rows.conversation.pk]),
    ]
    for address in addresses:
        html = staff.get(address).content.decode()
        assert SECRET not in html, address
        assert rows.share.token not in html, address
        assert rows.person.key.digest not in html, address
    page = staff.get(reverse("admin:conversations_conversation_changelist"), {"q": "nobody may see"})
    assert list(page.context["cl"].result_list) == []


# Finding by id


def find(client: Client, text: str) -> str | None:
    """Where it leads, None where it leads nowhere."""
    answer = client.get(reverse("admin:search"), {"q": text})
    if answer.status_code == 302:
        return str(answer["Location"])
    assert answer.status_code == 404
    assert "Nothing that you may see has the id" in answer.content.decode()
    return None


def test_anything_is_found_by_its_id(staff: Client, rows: Rows) -> None:
    found = {
        "user": rows.person.user,
        "org": rows.person.organization,
        "key": rows.person.key,
        "req": rows.request,
        "rep": rows.replica,
        "conv": rows.conversation,
        "msg": rows.reply,
        "share": rows.share,
        "access": rows.access,
    }
    for prefix, row in found.items():
        address = reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])
        assert find(staff, public_id(prefix, row.pk)) == address
        assert find(staff, str(row.pk)) == address
        assert staff.get(address).status_code == 200


def test_an_id_that_others_still_refer_to_leads_to_them(staff: Client, person: Person) -> None:
    gone = new_id()
    LedgerEntry.objects.create(request_id=gone, organization_id=gone, user_id=gone, model="m", input=1, cached=0,
                               output=1, cost=0, outcome="succeeded", source="engine")  # fmt: skip
    address = find(staff, public_id("req", gone))
    assert address is not None
    assert address.startswith(reverse("admin:quotas_ledgerentry_changelist"))
    assert len(staff.get(address).context["cl"].result_list) == 1


def test_an_address_finds_its_user(staff: Client, person: Person) -> None:
    address = find(staff, person.user.email)
    assert address is not None
    assert [row.pk for row in staff.get(address).context["cl"].result_list] == [person.user.pk]


@pytest.mark.parametrize("text", ["nothing", "req_", "\0", "a\0@b", "x" * 10_000, HOSTILE, str(new_id())])
def test_what_nobody_has_is_not_found(staff: Client, text: str) -> None:
    assert find(staff, text) is None


def test_an_empty_box_is_no_error(staff: Client) -> None:
    assert staff.get(reverse("admin:search")).status_code == 200


def test_only_what_somebody_may_see_is_found(rows: Rows, stranger: Person) -> None:
    client = signed_in(grant(stranger.user, "inference.view_request"))
    assert find(client, public_id("req", rows.request.pk)) is not None
    assert find(client, public_id("key", rows.person.key.pk)) is not None  # leads to its requests
    assert find(client, str(rows.share.pk)) is None
    assert find(client, rows.person.user.email) is None
