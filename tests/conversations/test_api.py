"""The native API's plain routes."""

from decimal import Decimal
from typing import Any

import pytest

from chatsite.database import run_db
from chatsite.ids import new_id
from conversations import services
from conversations.models import Conversation, Message
from inference.models import Model, Partial, Request
from tests.conftest import Person
from tests.conversations.callers import Caller, conv, ended, msg, uuid_of
from tests.conversations.conftest import House
from tests.waiting import wait_until

PROBLEM = "application/problem+json"


async def turns(person: Person, conversation: Conversation, count: int) -> list[str]:
    """Ids of the messages, oldest first."""
    found = []
    for number in range(count):
        accepted = await services.send(person.principal, conversation.id, f"Question {number}")
        await ended(accepted.message_id, f"Answer {number}")
        found += [msg(accepted.user_message_id), msg(accepted.message_id)]  # type: ignore[arg-type]
    return found


async def test_a_conversation_is_made(caller: Caller, model: Model) -> None:
    answer = await caller.call("POST", "/v1/conversations", {"model": model.name, "title": "Whales"})
    made = answer.json()
    assert answer.status == 201
    assert list(made) == ["id", "title", "model", "created_at", "updated_at"]
    assert (made["title"], made["model"]) == ("Whales", "smollm2-135m")
    assert made["created_at"].endswith("Z")
    assert (await caller.call("GET", f"/v1/conversations/{made['id']}")).json() == made
    assert (await run_db(Conversation.objects.get)).id == uuid_of(made["id"])


async def test_the_model_defaults_to_the_first(caller: Caller, model: Model) -> None:
    assert (await caller.call("POST", "/v1/conversations", {})).json()["model"] == "smollm2-135m"


async def test_a_repeated_post_makes_one_conversation(caller: Caller, model: Model) -> None:
    body = {"model": model.name}
    one = await caller.call("POST", "/v1/conversations", body, idempotency_key="k")
    two = await caller.call("POST", "/v1/conversations", body, idempotency_key="k")
    assert (two.status, two.json()) == (201, one.json())
    assert await run_db(Conversation.objects.count) == 1
    other = await caller.call("POST", "/v1/conversations", {"title": "x"}, idempotency_key="k")
    assert (other.status, other.json()["code"]) == (422, "idempotency_mismatch")


async def test_a_conversation_is_changed_and_deleted(caller: Caller, conversation: Conversation) -> None:
    address = f"/v1/conversations/{conv(conversation.id)}"
    changed = await caller.call("PATCH", address, {"title": "New", "system_prompt": "Rhyme."})
    assert changed.json()["title"] == "New"
    assert (await run_db(Conversation.objects.get)).system_prompt == "Rhyme."
    assert (await caller.call("DELETE", address)).status == 204
    assert (await caller.call("GET", address)).status == 404
    assert (await caller.call("DELETE", address)).status == 404


async def test_deleting_stops_what_runs(house: House, person: Person, caller: Caller) -> None:
    engine = await house.engine(tokens_per_second=50)
    await house.runner()
    chat = await run_db(lambda: services.create_conversation(person.principal))
    accepted = await services.send(person.principal, chat.id, "Hello")
    await house.emitted(await run_db(Message.objects.get, id=accepted.message_id), 5)
    assert (await caller.call("DELETE", f"/v1/conversations/{conv(chat.id)}")).status == 204

    async def over() -> bool:
        return (await run_db(Request.objects.get, id=accepted.request_id)).released_at is not None

    await wait_until(over)
    assert engine.running == 0


async def test_lists_go_by_cursor_and_stay_stable_under_inserts(person: Person, caller: Caller, model: Model) -> None:
    chats = [await run_db(lambda: services.create_conversation(person.principal, model=model.name)) for _ in range(5)]
    first = (await caller.call("GET", "/v1/conversations?limit=2")).json()
    await run_db(lambda: services.create_conversation(person.principal, model=model.name))
    await run_db(lambda: services.update_conversation(person.principal, chats[4].id, title="Moved"))
    second = (await caller.call("GET", f"/v1/conversations?limit=2&cursor={first['next_cursor']}")).json()
    third = (await caller.call("GET", f"/v1/conversations?limit=2&cursor={second['next_cursor']}")).json()
    ids = [row["id"] for page in (first, second, third) for row in page["data"]]
    assert ids == [conv(chat.id) for chat in reversed(chats)]
    assert third["next_cursor"] is None


async def test_the_history_is_the_active_branch_newest_first(
    person: Person, caller: Caller, conversation: Conversation
) -> None:
    ids = await turns(person, conversation, 3)
    again = await services.regenerate(person.principal, uuid_of(ids[-1]))
    await ended(again.message_id, "Another")
    address = f"/v1/conversations/{conv(conversation.id)}/messages"
    branch = [*ids[:-1], msg(again.message_id)]
    page = (await caller.call("GET", f"{address}?limit=4")).json()
    rest = (await caller.call("GET", f"{address}?limit=4&cursor={page['next_cursor']}")).json()
    assert [row["id"] for row in page["data"] + rest["data"]] == branch[::-1]
    assert rest["next_cursor"] is None
    whole = (await caller.call("GET", f"{address}?all=1")).json()
    assert {row["id"] for row in whole["data"]} == {*branch, ids[-1]}
    assert whole["data"][0]["id"] == msg(again.message_id)
    parts, cursor = [], ""
    while cursor is not None:
        page = (await caller.call("GET", f"{address}?all=1&limit=2&cursor={cursor}")).json()
        parts, cursor = parts + page["data"], page["next_cursor"]
    assert parts == whole["data"]


async def test_the_content_of_a_running_reply_is_what_is_saved(
    person: Person, caller: Caller, conversation: Conversation
) -> None:
    accepted = await services.send(person.principal, conversation.id, "Hello")
    pieces = [("Once", 0, 0), (" upon", 4, 4)]
    for text, token, char in pieces:
        row = Partial(
            request_id=accepted.request_id,
            attempt=1,
            from_token=token,
            to_token=token + len(text),
            from_char=char,
            ids=b"\1\0\0\0" * len(text),
            text=text,
        )
        await run_db(row.save)
    await run_db(Message.objects.filter(id=accepted.message_id).update, status="streaming")
    message = (await caller.call("GET", f"/v1/messages/{msg(accepted.message_id)}")).json()
    assert (message["content"], message["status"]) == ("Once upon", "streaming")
    history = await caller.call("GET", f"/v1/conversations/{conv(conversation.id)}/messages")
    assert history.json()["data"][0] == message


async def test_messages_of_the_user_and_replies(person: Person, caller: Caller, conversation: Conversation) -> None:
    user_id, reply_id = await turns(person, conversation, 1)
    user = (await caller.call("GET", f"/v1/messages/{user_id}")).json()
    reply = (await caller.call("GET", f"/v1/messages/{reply_id}")).json()
    nothing = {name: user[name] for name in ("parent", "finish_reason", "model", "usage", "error", "request")}
    assert set(nothing.values()) == {None}
    assert (user["role"], user["content"], user["status"]) == ("user", "Question 0", "complete")
    assert (reply["role"], reply["parent"], reply["finish_reason"]) == ("assistant", user_id, "stop")
    assert reply["usage"] == {"input": reply["usage"]["input"], "cached": 0, "output": len("Answer 0")}


async def test_a_request_tells_how_it_went(house: House, person: Person, caller: Caller) -> None:
    await house.engine(tokens_per_second=400)
    await house.runner()
    chat = await run_db(lambda: services.create_conversation(person.principal))
    accepted = await services.send(person.principal, chat.id, "Hello", max_tokens=5)
    await house.ended(await run_db(Message.objects.get, id=accepted.message_id))
    answer = (await caller.call("GET", f"/v1/requests/req_{accepted.request_id}")).json()
    assert list(answer) == [
        *("id", "status", "lane", "model", "replica", "attempts", "queued_ms", "ttft_ms", "predicted_ttft_ms"),
        *("total_ms", "usage", "cost", "decision"),
    ]
    assert (answer["status"], answer["lane"], answer["attempts"]) == ("succeeded", "paid", 1)
    assert 0 <= answer["queued_ms"] <= answer["ttft_ms"] <= answer["total_ms"] < 10_000
    assert answer["usage"]["output"] == 5
    [entry] = await house.ledger(await run_db(Message.objects.get, id=accepted.message_id))
    assert Decimal(answer["cost"]) == entry.cost


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/conversations", {"model": 5.5, "title": ["x"]}),
        ("POST", "/v1/conversations", {"titel": "x"}),
        ("POST", "/v1/conversations", ["x"]),
        ("POST", "/v1/conversations", {"title": "a\0b"}),
        ("POST", "/v1/conversations", {"title": "\u202ea"}),
        ("PATCH", "/v1/conversations/{id}", {"title": "a\nb"}),
        ("PATCH", "/v1/conversations/{id}", {"title": "\u200b\u3164"}),
        ("POST", "/v1/conversations", {"title": "a\ud800b"}),
        ("POST", "/v1/conversations", {"title": "x" * 201}),
        ("POST", "/v1/conversations", {"system_prompt": "a\0b"}),
        ("PATCH", "/v1/conversations/{id}", {"title": None}),
        ("GET", "/v1/conversations?cursor=x", None),
        ("GET", "/v1/conversations?cursor=2026-01-01_x", None),
        ("GET", "/v1/conversations?limit=0", None),
        ("GET", "/v1/conversations?limit=x", None),
        ("GET", "/v1/conversations?limit=201", None),
        ("GET", "/v1/conversations?limit=000000001999999999999999999999999", None),
        ("GET", "/v1/conversations?cursor=0001-01-01T00:00:00%2B23:59_01936b5e-0000-7000-8000-000000000000", None),
        ("GET", "/v1/conversations?cursor=9999-12-31T23:59:59-23:59_01936b5e-0000-7000-8000-000000000000", None),
        ("GET", "/v1/conversations/{id}/messages?cursor=x", None),
        ("GET", "/v1/conversations/{id}/messages?all=1&cursor=msg_1", None),
    ],
)
async def test_bad_input(caller: Caller, conversation: Conversation, method: str, path: str, body: Any) -> None:
    answer = await caller.call(method, path.replace("{id}", conv(conversation.id)), body)
    assert (answer.status, answer.headers["content-type"]) == (400, PROBLEM), answer.body
    assert answer.json()["code"] == "invalid_input"
    assert await run_db(Conversation.objects.count) == 1


@pytest.mark.parametrize("body", [b"{", b"\xff", b'{"title": "a\\ud800b"}', b'{"title": ' + b"[" * 100_000])
async def test_malformed_json(caller: Caller, model: Model, body: bytes) -> None:
    answer = await caller.send_bytes("POST", "/v1/conversations", body)
    assert (answer.status, answer.json()["code"]) == (400, "invalid_input")
    assert await run_db(Conversation.objects.count) == 0


async def test_a_history_cursor_of_another_conversation(person: Person, caller: Caller, model: Model) -> None:
    one, two = [
        await run_db(lambda: services.create_conversation(person.principal, model=model.name)) for _ in range(2)
    ]
    foreign = (await turns(person, one, 1))[0]
    for query in (f"cursor={foreign}", f"all=1&cursor={foreign}"):
        answer = await caller.call("GET", f"/v1/conversations/{conv(two.id)}/messages?{query}")
        assert (answer.status, answer.json()["param"]) == (400, "cursor")


async def test_models_are_checked(caller: Caller, model: Model, make_extra_model: Any) -> None:
    await run_db(lambda: make_extra_model("dear", tiers=["enterprise"]))
    unknown = await caller.call("POST", "/v1/conversations", {"model": "nothing"})
    dear = await caller.call("POST", "/v1/conversations", {"model": "dear"})
    assert (unknown.status, unknown.json()["code"]) == (400, "unknown_model")
    assert (dear.status, dear.json()["code"]) == (403, "model_not_allowed")


async def test_every_answer_tells_the_limits(caller: Caller, conversation: Conversation) -> None:
    names = {
        f"x-ratelimit-{what}-{kind}" for what in ("limit", "remaining", "reset") for kind in ("requests", "tokens")
    }
    for method, path in (
        ("GET", "/v1/conversations"),
        ("GET", f"/v1/conversations/{conv(conversation.id)}/messages"),
        ("GET", f"/v1/conversations/{conv(new_id())}"),
        ("GET", "/v1/models"),
        ("GET", f"/v1/messages/{msg(new_id())}/stream"),
        ("DELETE", f"/v1/conversations/{conv(conversation.id)}"),
    ):
        answer = await caller.call(method, path)
        assert names <= set(answer.headers), path
        assert answer.headers["x-request-id"]


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1/conversations/x/y", "/v1/messages/"])
async def test_an_unknown_address_is_a_problem(caller: Caller, model: Model, path: str) -> None:
    answer = await caller.call("GET", path)
    assert (answer.status, answer.headers["content-type"], answer.json()["code"]) == (404, PROBLEM, "not_found")


async def test_a_wrong_method_is_a_problem(caller: Caller, conversation: Conversation) -> None:
    for method, path in (
        ("PUT", "/v1/conversations"),
        ("DELETE", f"/v1/conversations/{conv(conversation.id)}/messages"),
        ("GET", f"/v1/messages/{msg(new_id())}/stop"),
    ):
        answer = await caller.call(method, path)
        assert (answer.status, answer.json()["code"]) == (405, "method_not_allowed"), path
