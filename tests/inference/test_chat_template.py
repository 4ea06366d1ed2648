"""A chat template in its sandbox: what it is given, what it may not do, and what it says."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from inference import chat_template
from inference.chat_template import ChatTemplate, PromptError, PromptTooCostly, TemplateRefused


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def assistant(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}


def render(source: str, *messages: dict[str, str], **variables: Any) -> str:
    return ChatTemplate(source, variables).render(messages or [user("hi")], add_generation_prompt=True)


def test_a_template_knows_what_the_transformers_library_gives() -> None:
    source = (
        "{{ bos_token }}{% for m in messages %}{% if loop.index0 == 1 %}{% break %}{% endif %}"
        "{% generation %}{{ m.content | trim }}{% endgeneration %}{% endfor %}"
        "{{ {'b': 'ü<', 'a': none} | tojson }}{{ strftime_now('%Y') | length }}{{ tools is none }}"
    )
    assert render(source, user(" a "), user("b"), bos_token="<s>") == '<s>a{"b": "ü<", "a": null}4True'


def test_a_template_that_wants_alternation_says_so() -> None:
    source = (
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Roles must alternate user/assistant') }}{% endif %}{{ m.content }}{% endfor %}"
    )
    assert render(source, user("a"), assistant("b"), user("c")) == "abc"
    with pytest.raises(TemplateRefused, match="Roles must alternate") as refused:
        render(source, user("a"), user("b"))
    assert (refused.value.code, refused.value.status) == ("invalid_input", 400)
    assert isinstance(refused.value, PromptError)


@pytest.mark.parametrize("source", ["{{ messages[7].content }}", "{{ 1 / 0 }}", "{{ messages + 1 }}"])
def test_a_template_that_trips_is_a_clear_error(source: str) -> None:
    with pytest.raises(TemplateRefused):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{% set x = messages[0].pop('role') %}",
        "{{ 10 ** 10 ** 10 }}",
    ],
)
def test_a_template_stays_in_its_sandbox(source: str) -> None:
    with pytest.raises(TemplateRefused):
        render(source)


@pytest.fixture
def short_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(chat_template, "RENDER_SECONDS", 0.1)
    started = time.thread_time()
    yield
    assert time.thread_time() - started < 2.0


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
        "{{ 'x' * 100000000 }}",
        "{{ 100000000 * messages }}",
    ],
)
def test_a_template_cannot_run_away(source: str, short_time: None) -> None:
    with pytest.raises(PromptTooCostly):
        render(source)


def test_a_template_cannot_write_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "MAX_RENDERED", 1000)
    assert len(render("{{ messages[0].content }}", user("x" * 1000))) == 1000
    with pytest.raises(PromptTooCostly):
        render("{{ messages[0].content }}!", user("x" * 1000))
