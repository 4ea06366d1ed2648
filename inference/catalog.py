"""models.toml: which models there are and where they run. Every fault is told with its file, line and key."""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
TIERS = ("free", "paid", "enterprise")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}")  # MAX_NAME in all; it becomes part of Redis keys and URLs
PRICE_DECIMALS = 6
PRICE_LIMIT = Decimal(1_000_000)
MAX_ENGINES = 64
# What the columns of inference.models hold; the tests compare.
MAX_CONTEXT = 2**31 - 1
MAX_NAME = 100
MAX_PATH = 500  # of the absolute path, which is what is stored
MAX_URL = 300
MAX_CHARS = {"title": 150, "description": 200, "engine_model": 200, "open": 50, "close": 50}
TOKENIZER = "tokenizer.json"
# Arguments that the product sets for every engine it starts, and must know to reach it.
RESERVED_ARGUMENTS = ("--host", "--port", "--model", "--served-model-name", "--max-model-len", "--api-key")

TYPE_NAMES = {str: "a string", int: "a whole number", bool: "true or false", list: "a list", dict: "a table"}
Location = tuple[str | int, ...]


class InvalidModelsFile(ValueError):
    """The models file cannot be used. The message names file, line and key."""


@dataclass(frozen=True)
class EngineSpec:
    """Engines that `make run` starts itself: how many, and vLLM arguments beyond the product's own."""

    start: bool = False
    count: int = 1
    args: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReasoningSpec:
    """The markers between which a model thinks aloud."""

    open: str
    close: str


@dataclass(frozen=True)
class PriceSpec:
    """Price of a million tokens."""

    input: Decimal = Decimal(0)
    cached: Decimal = Decimal(0)
    output: Decimal = Decimal(0)


@dataclass(frozen=True)
class ModelSpec:
    """One `[[models]]` entry. `context_length` is in tokens; `path` is absolute."""

    name: str
    title: str
    context_length: int
    path: Path | None = None
    engine_model: str = ""
    system_prompt: str = ""
    tiers: tuple[str, ...] = TIERS
    fallback: str = ""
    reasoning: ReasoningSpec | None = None
    replicas: tuple[str, ...] = ()
    engine: EngineSpec = EngineSpec()
    price: PriceSpec = PriceSpec()
    description: str = ""


def read_models(path: Path) -> list[ModelSpec]:
    """The models of the file at `path`, in its order. Raises InvalidModelsFile."""
    source = _Source.read(path)
    source.root.refuse_unknown({"models"})
    entries = source.root.value("models", list, [])
    if not entries:
        raise source.error((), "names no model: add a [[models]] table")
    tables = [source.root.entry("models", index) for index in range(len(entries))]
    specs = [_model(table) for table in tables]
    _check_names(specs, tables)
    return specs


@dataclass(frozen=True)
class _Source:
    """The file as read; finds the line of a key."""

    path: Path
    text: str
    data: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> "_Source":
        try:
            raw = path.read_bytes()
            text = raw.decode()
            return cls(path, text, tomllib.loads(text))
        except OSError as error:
            raise InvalidModelsFile(f"{path}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise InvalidModelsFile(f"{path}, line {line}: is not UTF-8 text") from None
        except tomllib.TOMLDecodeError as error:
            raise InvalidModelsFile(_decode_message(path, text, str(error))) from None

    @property
    def root(self) -> "_Table":
        return _Table(self, (), self.data)

    def error(self, location: Location, problem: str) -> InvalidModelsFile:
        if not location:
            return InvalidModelsFile(f"{self.path}: {problem}")
        return InvalidModelsFile(f"{self.path}, line {self.line(location)}: {_spell(location)} {problem}")

    def line(self, location: Location) -> int:
        """Number of the line where the statement that sets `location` begins.

        It starts right after the longest beginning of the file that is valid TOML and does not have the key yet.
        """
        lines = self.text.splitlines(keepends=True)
        start = 1
        for count in range(1, len(lines) + 1):
            try:
                data = tomllib.loads("".join(lines[:count]))
            except tomllib.TOMLDecodeError:
                continue
            if _has(data, location):
                return start
            start = count + 1
        return start


@dataclass(frozen=True)
class _Table:
    """A table of the file, with readers that check types."""

    source: _Source
    location: Location
    data: dict[str, Any]

    def error(self, key: str, problem: str) -> InvalidModelsFile:
        return self.source.error((*self.location, key), problem)

    def refuse_unknown(self, known: Iterable[str]) -> None:
        known = sorted(known)
        for key in self.data:
            if key not in known:
                raise self.error(key, f"is not a known key (known: {', '.join(known)})")

    def value(self, key: str, kind: type, default: Any) -> Any:
        if key not in self.data:
            return default
        value = self.data[key]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.error(key, f"must be {TYPE_NAMES[kind]}")
        if kind is str:
            self.refuse_nul(key, value)
        return value

    def refuse_nul(self, key: str, text: Any) -> None:
        """PostgreSQL's text holds every character but this one, and no argument of a process may."""
        if "\0" in text:
            raise self.error(key, "must not hold a NUL character")

    def required(self, key: str, kind: type) -> Any:
        if key not in self.data:
            raise self.source.error(self.location, f"lacks the key {key}")
        return self.value(key, kind, None)

    def text(self, key: str) -> str:
        text: str = self.value(key, str, "")
        self.refuse_longer(key, text, MAX_CHARS.get(key))
        return text

    def refuse_longer(self, key: str, text: str, limit: int | None) -> None:
        if limit is not None and len(text) > limit:
            raise self.error(key, f"has {len(text)} characters, and at most {limit} fit")

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.value(key, list, [])
        if not all(isinstance(value, str) for value in values):
            raise self.error(key, "must be a list of strings")
        for value in values:
            self.refuse_nul(key, value)
        if len(set(values)) < len(values) and key != "args":
            raise self.error(key, "names something twice")
        return tuple(values)

    def table(self, key: str, known: Iterable[str]) -> "_Table":
        table = _Table(self.source, (*self.location, key), self.value(key, dict, {}))
        table.refuse_unknown(known)
        return table

    def entry(self, key: str, index: int) -> "_Table":
        data = self.data[key][index]
        if not isinstance(data, dict):
            raise self.source.error((*self.location, key, index), "must be a table")
        return _Table(self.source, (*self.location, key, index), data)


def _model(table: _Table) -> ModelSpec:
    table.refuse_unknown(ModelSpec.__dataclass_fields__)
    name: str = table.required("name", str)
    if not NAME.fullmatch(name):
        rule = f"must begin with a letter or digit and hold only those and . _ : / - ({MAX_NAME} at most)"
        raise table.error("name", rule)
    context_length: int = table.required("context_length", int)
    if context_length < 1:
        raise table.error("context_length", "must be at least 1 token")
    if context_length > MAX_CONTEXT:
        raise table.error("context_length", f"must be at most {MAX_CONTEXT} tokens")
    spec = ModelSpec(
        name=name,
        title=table.text("title") or name,
        context_length=context_length,
        description=table.text("description"),
        path=_path(table),
        engine_model=table.text("engine_model"),
        system_prompt=table.text("system_prompt"),
        tiers=_tiers(table),
        fallback=table.text("fallback"),
        reasoning=_reasoning(table),
        replicas=_replicas(table),
        engine=_engine(table),
        price=_price(table),
    )
    if not spec.replicas and not spec.engine.start:
        raise table.source.error(table.location, "has nothing to run on: give replicas, or engine = {start = true}")
    if spec.engine.start and not spec.path:
        raise table.error("engine", "starts an engine, which needs the key path: the folder of the weights")
    if spec.path and not spec.engine.start and not _holds_tokenizer(spec.path):
        # The first start makes the folder of an engine that the site runs; this one has to be there already.
        problem = f"must be a folder with {TOKENIZER}, and {spec.path} is none (without path, the engine makes prompts)"
        raise table.error("path", problem)
    return spec


def _path(table: _Table) -> Path | None:
    text = table.text("path")
    if not text:
        return None
    try:
        path = ROOT / Path(text).expanduser()
    except RuntimeError:
        raise table.error("path", "begins with the home folder of a user who is not known") from None
    table.refuse_longer("path", str(path), MAX_PATH)
    return path


def _holds_tokenizer(folder: Path) -> bool:
    try:
        return (folder / TOKENIZER).is_file()
    except OSError:  # a name that no file can have, or a folder that may not be entered
        return False


def _tiers(table: _Table) -> tuple[str, ...]:
    if "tiers" not in table.data:
        return TIERS
    tiers = table.texts("tiers")
    if not tiers:
        raise table.error("tiers", f"must name at least one of {', '.join(TIERS)}")
    for tier in tiers:
        if tier not in TIERS:
            raise table.error("tiers", f"names {tier!r}, which is none of {', '.join(TIERS)}")
    return tiers


def _reasoning(table: _Table) -> ReasoningSpec | None:
    markers = table.table("reasoning", {"open", "close"})
    opening, closing = markers.text("open"), markers.text("close")
    if bool(opening) != bool(closing):
        raise table.error("reasoning", "needs both markers, open and close")
    return ReasoningSpec(opening, closing) if opening else None


def _replicas(table: _Table) -> tuple[str, ...]:
    urls = table.texts("replicas")
    for url in urls:
        if problem := _url_problem(url):
            raise table.error("replicas", f"has the URL {url!r}, which {problem}")
        table.refuse_longer("replicas", url, MAX_URL)
    return tuple(url.rstrip("/") for url in urls)


def _url_problem(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "cannot be read as a URL"
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or re.search(r"[\s\0]", url):
        return "is not of the form http://host:port"
    if parts.query or parts.fragment or parts.username is not None:
        return "must have no user, query or fragment"
    if parts.path.rstrip("/").endswith("/v1"):
        return "must be given without /v1"
    return ""


def _engine(table: _Table) -> EngineSpec:
    engine = table.table("engine", {"start", "count", "args"})
    count: int = engine.value("count", int, 1)
    if not 1 <= count <= MAX_ENGINES:
        raise engine.error("count", f"must be 1 to {MAX_ENGINES}")
    args = engine.texts("args")
    for argument in args:
        if argument.partition("=")[0] in RESERVED_ARGUMENTS:
            raise engine.error("args", f"has {argument}, which the product sets itself")
    return EngineSpec(engine.value("start", bool, False), count, args)


def _price(table: _Table) -> PriceSpec:
    if "price" not in table.data:
        return PriceSpec()
    price = table.table("price", {"input", "cached", "output"})
    for key in ("input", "output"):
        price.required(key, str)
    amount, output = _amount(price, "input"), _amount(price, "output")
    return PriceSpec(amount, _amount(price, "cached") if "cached" in price.data else amount, output)


def _amount(table: _Table, key: str) -> Decimal:
    """A decimal string: a float could not say 0.1 exactly."""
    text: str = table.required(key, str)
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise table.error(key, f"is {text!r}, which is no decimal number") from None
    if not amount.is_finite() or not 0 <= amount < PRICE_LIMIT:
        raise table.error(key, f"must be at least 0 and less than {PRICE_LIMIT}")
    if amount != round(amount, PRICE_DECIMALS):
        raise table.error(key, f"has more than {PRICE_DECIMALS} decimals")
    return amount


def _check_names(specs: list[ModelSpec], tables: list[_Table]) -> None:
    seen: set[str] = set()
    for spec, table in zip(specs, tables, strict=True):
        if spec.name in seen:
            raise table.error("name", f"{spec.name!r} is there twice")
        seen.add(spec.name)
    for spec, table in zip(specs, tables, strict=True):
        if spec.fallback and (spec.fallback not in seen or spec.fallback == spec.name):
            raise table.error("fallback", f"names {spec.fallback!r}, which is not another model of this file")


def _has(data: Any, location: Location) -> bool:
    for step in location:
        if isinstance(step, int):
            if not isinstance(data, list) or len(data) <= step:
                return False
        elif not isinstance(data, dict) or step not in data:
            return False
        data = data[step]
    return True


def _spell(location: Location) -> str:
    """`models[1].price.input`, counting tables from 1."""
    steps = (f"[{step + 1}]" if isinstance(step, int) else f".{step}" for step in location)
    return "".join(steps).lstrip(".")


def _decode_message(path: Path, text: str, message: str) -> str:
    found = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", message)
    line = int(found[1]) if found and found[1] else text.count("\n") + 1
    problem = message[: found.start()] if found else message
    near = (text.splitlines() or [""])[min(line, len(text.splitlines())) - 1].partition("=")[0].strip() if text else ""
    return f"{path}, line {line}: is not valid TOML{f' at {near!r}' if near else ''}: {problem}"
