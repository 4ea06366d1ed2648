"""A fake vLLM server: its protocol, without a model. `python -m tests.fakes.engine --port 8100 [--help]`.

It says what `engine_tokens` makes up, at any pace, and fails in every way that an engine fails:

    async with FakeEngine(Options(tokens_per_second=50)) as engine:
        engine.faults.stream, engine.faults.after = "stall", 10

From another process, over HTTP: `POST /fake/options` and `POST /fake/faults` with the fields to change,
`POST /fake/die`, `POST /fake/refuse {"seconds": 3}`, `POST /fake/reset`, `GET /fake/state`, `GET /fake/calls`.
"""

import argparse
import asyncio
import os
import signal
import sys
import time
import uuid
from collections import deque
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec

from tests.fakes.engine_loop import Call, EngineLoop, Faults, Options, Run
from tests.fakes.engine_tokens import FakeModel, Script
from tests.fakes.engine_wire import ChatEvents, CompletionEvents, WholeCompletion, error_body
from tests.fakes.http_server import Connection, Request

__all__ = ["Call", "FakeEngine", "FakeModel", "Faults", "Options"]


class FakeEngine(EngineLoop):
    """The server. `port` 0 takes a free one, and keeps it when it is started again."""

    def __init__(
        self,
        options: Options | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        model: FakeModel | None = None,
        own_process: bool = False,
    ) -> None:
        options = options or Options()
        super().__init__(options, model or FakeModel(Path(options.model_path) if options.model_path else None))
        self.calls: deque[Call] = deque(maxlen=2000)
        self.host, self.port = host, port
        self._own_process = own_process
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        self._loop = asyncio.get_running_loop()
        protocol = partial(Connection, self._route, self._connections)
        self._server = await self._loop.create_server(protocol, self.host, self.port, reuse_address=True, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """As `kill`: streams are cut."""
        self.kill()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def kill(self) -> None:
        """Gone, as by kill -9: no new connections, and every open one reset. `start` brings it back, empty."""
        if self._own_process:
            os.kill(os.getpid(), signal.SIGKILL)
        self.refuse()
        super().kill()
        for connection in list(self._connections):
            connection.on_lost = None
            connection.transport.abort()

    def refuse(self) -> None:
        """Refuse new connections; those that are open go on. `start` ends it."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def reset(self) -> None:
        """No faults, no calls, all counters 0, and an empty prefix cache."""
        self.faults = Faults()
        self.calls.clear()
        self.cache.clear()
        self.aborted = self.finished = self.tokens = self.chunks = self.preemptions = 0

    def state(self) -> dict[str, Any]:
        """Counters, and the CPU time of this process in seconds."""
        names = ("running", "waiting", "aborted", "finished", "tokens", "chunks", "preemptions")
        return {**{name: getattr(self, name) for name in names}, "cpu_seconds": time.process_time()}

    # Routes

    def _route(self, request: Request) -> None:
        handlers = {
            ("GET", "/health"): self._health,
            ("GET", "/version"): lambda request: request.connection.answer(200, {"version": "0.32.0"}),
            ("GET", "/v1/models"): self._models,
            ("GET", "/metrics"): self._metrics,
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/v1/completions"): self._complete,
            ("POST", "/v1/chat/completions"): self._complete,
            ("GET", "/fake/state"): lambda request: request.connection.answer(200, self.state()),
            ("GET", "/fake/calls"): lambda request: request.connection.answer(200, [asdict(c) for c in self.calls]),
            ("POST", "/fake/options"): lambda request: self._change(self.options, request),
            ("POST", "/fake/faults"): lambda request: self._change(self.faults, request),
            ("POST", "/fake/reset"): self._control,
            ("POST", "/fake/die"): self._control,
            ("POST", "/fake/refuse"): self._control,
        }
        handler = handlers.get((request.method, request.path))
        if handler is None:
            known = any(path == request.path for _, path in handlers)
            request.connection.answer(405 if known else 404, {"detail": "Method Not Allowed" if known else "Not Found"})
            return
        if request.path not in self.faults.silent:
            handler(request)

    def _health(self, request: Request) -> None:
        request.connection.answer(503 if self.faults.unhealthy else 200)

    def _models(self, request: Request) -> None:
        model = {
            "id": self.options.model,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "vllm",
            "root": self.options.model_path or self.options.model,
            "parent": None,
            "max_model_len": self.options.max_model_len,
            "permission": [],
        }
        request.connection.answer(200, {"object": "list", "data": [model]})

    def _metrics(self, request: Request) -> None:
        options = self.options
        labels = f'{{engine="0",model_name="{options.model}"}}'
        samples: dict[str, float | str] = {
            "num_requests_running": float(self.running),
            "num_requests_waiting": float(self.waiting),
            "kv_cache_usage_perc": self.kv_usage,
            "num_preemptions_total": float(self.preemptions),
            "generation_tokens_total": float(self.tokens),
        }
        said = self.faults.figures
        samples |= {name: said[name] for name in samples.keys() & said.keys()}
        text = "".join(
            f"# HELP vllm:{n} Fake.\n# TYPE vllm:{n} gauge\nvllm:{n}{labels} {v}\n" for n, v in samples.items()
        )
        cache = f'_block_size_resolved="True",block_size="{options.block_size}",effective_attention_block_size="64"'
        blocks = said.get("num_gpu_blocks", options.kv_blocks)
        text += f'vllm:cache_config_info{{{cache},engine="0",num_gpu_blocks="{blocks}"}} 1.0\n'
        request.connection.answer(200, text.encode(), "text/plain; version=1.0.0; charset=utf-8")

    def _tokenize(self, request: Request) -> None:
        body = self._body(request)
        if body is None:
            return
        ids = self._prompt_ids(body)
        answer = {"count": len(ids), "max_model_len": self.options.max_model_len, "tokens": ids, "token_strs": None}
        request.connection.answer(200, answer)

    def _control(self, request: Request) -> None:
        seconds = msgspec.json.decode(request.body or b"{}").get("seconds", 0)
        request.connection.answer(200, {})
        if request.path == "/fake/reset":
            self.reset()
        elif request.path == "/fake/die":
            self.kill()
        else:
            self.refuse()
            self._loop.call_later(seconds, lambda: self._loop.create_task(self.start()))

    def _change(self, target: Options | Faults, request: Request) -> None:
        for name, value in msgspec.json.decode(request.body).items():
            assert hasattr(target, name), name
            setattr(target, name, value)
        self.wake()
        request.connection.answer(200, asdict(target))

    # Requests for tokens

    def _complete(self, request: Request) -> None:
        if self.faults.status:
            kind = "InternalServerError" if self.faults.status >= 500 else "BadRequestError"
            request.connection.answer(
                self.faults.status, error_body(self.faults.status, "A fault was asked for.", kind)
            )
            return
        body = self._body(request)
        if body is None:
            return
        prompt_ids = self._prompt_ids(body)
        max_tokens, min_tokens = body.get("max_tokens", 16), body.get("min_tokens", 0)
        refusal = self._refusal(prompt_ids, max_tokens, min_tokens, body)
        if refusal is not None:
            request.connection.answer(400, error_body(400, *refusal))
            return
        asked = {key: value for key, value in body.items() if key not in ("prompt", "messages")}
        call = Call(uuid.uuid4().hex[:16], asked, prompt_ids, self.cache.find(prompt_ids, body.get("cache_salt", "")))
        self.calls.append(call)
        shape = ChatEvents if request.path.startswith("/v1/chat") else CompletionEvents
        if not body.get("stream"):
            shape = WholeCompletion
        events = shape(call.name, int(time.time()), body, prompt_ids)
        vocabulary, script = self.model.vocabulary, self.options.script
        continuation = (
            Script(script, prompt_ids, vocabulary.eos_id)
            if script
            else vocabulary.start(prompt_ids, self.options.emoji)
        )
        room = self.options.max_model_len - len(prompt_ids)  # to which vLLM cuts, without a word
        run = Run(call, request.connection, events, continuation, min(max_tokens, room), min_tokens)
        if shape is not WholeCompletion:
            request.connection.start_events()
        self.submit(run)

    def _body(self, request: Request) -> dict[str, Any] | None:
        """The body, or None when the request is answered already."""
        try:
            body: dict[str, Any] = msgspec.json.decode(request.body, type=dict)
        except msgspec.DecodeError as error:
            request.connection.answer(400, error_body(400, f"1 validation error:\n  {error}", "Bad Request", "body.0"))
            return None
        if body.get("model") != self.options.model:
            message = f"The model `{body.get('model')}` does not exist. Valid aliases: {self.options.model}."
            request.connection.answer(404, error_body(404, message, "NotFoundError", "model"))
            return None
        return body

    def _prompt_ids(self, body: dict[str, Any]) -> list[int]:
        prompt = body.get("prompt")
        if prompt is None:
            return self.model.chat_ids(body["messages"], body.get("add_generation_prompt", True))
        return self.model.text_ids(prompt) if isinstance(prompt, str) else prompt

    def _refusal(
        self, prompt_ids: list[int], max_tokens: Any, min_tokens: int, body: dict[str, Any]
    ) -> tuple[str, str, str | None] | None:
        """Message, type and parameter of what vLLM refuses."""
        kind, longest = "BadRequestError", self.options.max_model_len
        if not isinstance(max_tokens, int):
            return "1 validation error:\n  'Input should be a valid integer'", "Bad Request", "body.max_tokens"
        if not prompt_ids:
            return "You must pass at least one prompt", kind, None
        if max_tokens < 1:
            said = f"(parameter=max_tokens, value={max_tokens})"
            return f"max_tokens must be at least 1, got {max_tokens}. {said}", kind, "max_tokens"
        if max_tokens > longest:
            said = f"Please request fewer output tokens. (parameter=max_tokens, value={max_tokens})"
            return f"{max_tokens=} cannot be greater than max_model_len={longest}. {said}", kind, "max_tokens"
        if min_tokens > max_tokens:
            return f"min_tokens must be less than or equal to max_tokens={max_tokens}, got {min_tokens}.", kind, None
        if (body.get("temperature") or 0) < 0:
            return f"temperature must be non-negative, got {body['temperature']}.", kind, "temperature"
        if body.get("cache_salt") == "":
            return "Parameter 'cache_salt' must be a non-empty string if provided.", kind, "cache_salt"
        if len(prompt_ids) >= longest:
            return f"This model's maximum context length is {longest} tokens.", kind, "input_tokens"
        unknown = next((token_id for token_id in prompt_ids if not 0 <= token_id < self.model.vocabulary.size), None)
        return None if unknown is None else (f"Token id {unknown} is out of vocabulary", kind, None)


def _parse(arguments: list[str]) -> tuple[Options, str, int]:
    parser = argparse.ArgumentParser(prog="python -m tests.fakes.engine", description="A fake vLLM server.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    for option in fields(Options):
        parser.add_argument(f"--{option.name.replace('_', '-')}", type=type(option.default), default=option.default)
    values = vars(parser.parse_args(arguments))
    host, port = values.pop("host"), values.pop("port")
    return Options(**values), host, port


async def _serve(options: Options, host: str, port: int) -> None:
    engine = FakeEngine(options, host=host, port=port, own_process=True)
    await engine.start()
    sys.stdout.write(f"fake engine on {engine.url}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    import uvloop

    uvloop.run(_serve(*_parse(sys.argv[1:])))
