"""A model's chat template: Jinja in a sandbox, with bounds.

A template comes with the model, and what it is given comes from callers, so a rendering may not run away:

- it ends after `RENDER_SECONDS` of the thread's own CPU time. The clock is read at every turn of every loop and at
  every call of a macro (the calls are added to the syntax tree), and between pieces of output;
- it ends at `MAX_RENDERED` characters; a product (`"x" * n`) may not be larger either;
- `range` has at most 100,000 items and nothing can be changed in place: both are Jinja's sandbox.
"""

import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from chatsite.errors import AppError, InvalidInput

RENDER_SECONDS = 1.0
MAX_RENDERED = 16 * 1024 * 1024  # characters
_CHECK = "_check_bounds"  # the name under which a template calls its clock


class PromptError(InvalidInput):
    """The messages cannot be made into a prompt."""


class TemplateRefused(PromptError):
    """The model's chat template does not take this conversation."""


class PromptTooCostly(PromptError):
    """This conversation is too large for the model's chat template."""


class UnusableModel(AppError):
    """The model's folder cannot be used."""


class _GenerationTag(Extension):
    """`{% generation %}` marks the assistant's words for training; here it only shows what is inside."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


class _Sandbox(ImmutableSandboxedEnvironment):
    """The environment that the transformers library gives to chat templates, with the bounds above."""

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols])
        self.filters["tojson"] = _to_json
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        repeated: list[nodes.For | nodes.Macro] = [*tree.find_all(nodes.For), *tree.find_all(nodes.Macro)]
        for node in repeated:
            clock = nodes.Call(nodes.Name(_CHECK, "load"), [], [], None, None)
            node.body.insert(0, nodes.ExprStmt(clock).set_lineno(node.lineno))
        tree.set_environment(self)
        return tree

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            raise SecurityError("a chat template may not raise to a power")
        for items, times in ((left, right), (right, left)):
            if isinstance(items, str | list | tuple) and isinstance(times, int) and len(items) * times > MAX_RENDERED:
                raise PromptTooCostly
        return super().call_binop(context, operator, left, right)


class _Bounds:
    """One rendering's clock and size."""

    def __init__(self) -> None:
        self._until = time.thread_time() + RENDER_SECONDS
        self._room = MAX_RENDERED

    def check(self, piece: str = "") -> str:
        self._room -= len(piece)
        if self._room < 0 or time.thread_time() > self._until:
            raise PromptTooCostly
        return piece


class ChatTemplate:
    """A compiled template. `variables` are the tokenizer's special tokens by name (`bos_token` and so on)."""

    def __init__(self, source: str, variables: Mapping[str, Any]) -> None:
        try:
            self._template = _Sandbox().from_string(source)
        except TemplateError as error:
            raise UnusableModel(f"The model's chat template is not valid: {error}") from error
        self._variables = dict(variables)

    def render(self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool) -> str:
        """The prompt as text. Raises TemplateRefused or PromptTooCostly."""
        bounds = _Bounds()
        variables = {
            **self._variables,
            "messages": [dict(message) for message in messages],
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            _CHECK: bounds.check,
        }
        try:
            return "".join(bounds.check(piece) for piece in self._template.generate(variables))
        except TemplateError as error:
            raise TemplateRefused(f"The model's chat template does not take this conversation: {error}") from error
        except RecursionError as error:
            raise PromptTooCostly from error
        except (TypeError, ValueError, LookupError, ArithmeticError) as error:
            # What a template trips over when it gets a conversation that its author did not think of.
            raise TemplateRefused(f"The model's chat template fails on this conversation: {error}") from error


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """Not Jinja's own filter, which escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now(UTC).strftime(pattern)
