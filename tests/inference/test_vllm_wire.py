"""The engine's bytes, in any portions, and what in them cannot be right."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from inference.vllm_errors import EngineError, EngineGarbage, EngineRejected, EngineUnavailable
from inference.vllm_wire import Delta, EventReader, parse_stats


def ids_of(deltas: list[Delta]) -> list[int]:
    return [token_id for delta in deltas for token_id in delta.token_ids]


def event(token_id: int, count: int, **choice: Any) -> bytes:
    body = {
        "id": "cmpl-1",
        "choices": [{"index": 0, "text": "é🌊", "token_ids": [token_id], "finish_reason": None, **choice}],
        "usage": {"prompt_tokens": 3, "total_tokens": 3 + count, "completion_tokens": count},
    }
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


def read_all(*portions: bytes, max_tokens: int = 10) -> tuple[list[Delta], EngineError | None, bool]:
    reader = EventReader(3, max_tokens)
    deltas = [delta for portion in portions if (delta := reader.feed(portion)) is not None]
    return deltas, reader.failure, reader.complete


def test_cut_at_any_byte() -> None:
    whole = event(5, 1) + event(6, 2, finish_reason="stop") + b"data: [DONE]\n\n"
    for cut in range(1, len(whole)):
        deltas, failure, complete = read_all(whole[:cut], whole[cut:])
        assert (ids_of(deltas), failure, complete) == ([5, 6], None, True)
        assert "".join(delta.text for delta in deltas) == "é🌊é🌊"
        assert deltas[-1].finish_reason == "stop"


def test_events_of_one_read_are_one_delta() -> None:
    deltas, _, _ = read_all(event(5, 1) + event(6, 2) + event(7, 3))
    assert [(delta.token_ids, delta.completion_tokens) for delta in deltas] == [([5, 6, 7], 3)]


def test_what_came_before_a_failure_is_kept() -> None:
    deltas, failure, _ = read_all(event(5, 1) + b"data: nonsense\n\n" + event(6, 2))
    assert ids_of(deltas) == [5]
    assert type(failure) is EngineGarbage


def test_a_finish_without_done_is_complete() -> None:
    deltas, failure, complete = read_all(event(5, 1, finish_reason="length"), b"")
    assert (deltas[-1].finish_reason, failure, complete) == ("length", None, True)


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_engine_that_gives_up(reason: str) -> None:
    deltas, failure, _ = read_all(event(5, 1, finish_reason=reason) + b"data: [DONE]\n\n")
    assert ids_of(deltas) == [5]
    assert type(failure) is EngineUnavailable


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["usage"].update(completion_tokens=2),
        lambda body: body["usage"].update(prompt_tokens=4),
        lambda body: body["choices"][0].update(token_ids=[-1]),
        lambda body: body["choices"][0].update(token_ids=None),
        lambda body: body["choices"][0].update(token_ids=["5"]),
        lambda body: body["choices"][0].update(text=7),
        lambda body: body["choices"][0].update(token_ids=[5] * 11),
        lambda body: body.update(usage=7),
    ],
)
def test_what_cannot_be_right(change: Callable[[dict[str, Any]], None]) -> None:
    body = msgspec.json.decode(event(5, 1)[6:])
    change(body)
    _, failure, _ = read_all(b"data: " + msgspec.json.encode(body) + b"\n\n")
    assert type(failure) is EngineGarbage


def test_more_tokens_than_were_asked_for() -> None:
    _, failure, _ = read_all(event(5, 1) + event(6, 2), max_tokens=1)
    assert type(failure) is EngineGarbage


def test_comments_are_skipped_and_nul_is_stripped() -> None:
    deltas, failure, _ = read_all(b": ping\n\n" + event(5, 1, text="a\0b"))
    assert ([delta.text for delta in deltas], failure) == (["ab"], None)


@pytest.mark.parametrize(
    ("code", "expected"), [(400, EngineRejected), (500, EngineUnavailable), ("x", EngineUnavailable)]
)
def test_an_error_inside_the_stream(code: int | str, expected: type[EngineError]) -> None:
    body = {"error": {"message": "EngineCore encountered an issue.", "type": "x", "param": None, "code": code}}
    deltas, failure, _ = read_all(event(5, 1), b"data: " + json.dumps(body).encode() + b"\n\ndata: [DONE]\n\n")
    assert ids_of(deltas) == [5]
    assert type(failure) is expected


METRICS = {
    "num_requests_running": "2.0",
    "num_requests_waiting": "1.0",
    "kv_cache_usage_perc": "0.5",
    "num_preemptions_total": "3.0",
    "generation_tokens_total": "70.0",
    "prompt_tokens_total": "700.0",
}


def metrics(blocks: str = "182", block_size: str = "16", **changes: str) -> bytes:
    lines = [f'vllm:{name}{{engine="0"}} {value}' for name, value in (METRICS | changes).items()]
    return "\n".join(
        [*lines, f'vllm:cache_config_info{{block_size="{block_size}",num_gpu_blocks="{blocks}"}} 1.0\n']
    ).encode()


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "many", "1e300", "-1.0", "9" * 5000])
def test_figures_that_cannot_be_right_are_garbage(name: str, value: str) -> None:
    assert parse_stats(metrics()) is not None
    with pytest.raises(EngineGarbage):
        parse_stats(metrics(**{name: value}))


@pytest.mark.parametrize("changes", [{"blocks": "9" * 40}, {"blocks": "9" * 5000}, {"block_size": "9" * 12}])
def test_no_machine_has_such_a_memory(changes: dict[str, str]) -> None:
    with pytest.raises(EngineGarbage):
        parse_stats(metrics(**changes))


def test_a_large_machine_is_believed() -> None:
    stats = parse_stats(metrics(blocks="60000000"))
    assert stats is not None
    assert stats.kv_blocks * stats.block_size == 960_000_000


def test_no_block_may_be_told() -> None:
    stats = parse_stats(metrics(blocks="None"))
    assert stats is not None
    assert stats.kv_blocks == 0


def test_stats_of_a_real_engine() -> None:
    """From /metrics of vLLM 0.32."""
    stats = parse_stats(
        b"# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
        b'vllm:num_requests_running{engine="0",model_name="smollm2-135m"} 2.0\n'
        b'vllm:num_requests_waiting{engine="0",model_name="smollm2-135m"} 1.0\n'
        b'vllm:num_requests_waiting_by_reason{engine="0",model_name="smollm2-135m",reason="capacity"} 7.0\n'
        b'vllm:kv_cache_usage_perc{engine="0",model_name="smollm2-135m"} 0.0055248618784530246\n'
        b'vllm:num_preemptions_total{engine="0",model_name="smollm2-135m"} 3.0\n'
        b'vllm:num_preemptions_created{engine="0",model_name="smollm2-135m"} 1.7959839388352292e+09\n'
        b'vllm:prompt_tokens_total{engine="0",model_name="smollm2-135m"} 700.0\n'
        b'vllm:prompt_tokens_by_source_total{engine="0",model_name="smollm2-135m",source="local_compute"} 188.0\n'
        b'vllm:prompt_tokens_cached_total{engine="0",model_name="smollm2-135m"} 512.0\n'
        b'vllm:cache_config_info{_block_size_resolved="True",block_size="128",effective_attention_block_size="64",'
        b'engine="0",hash_block_size="None",num_cpu_blocks="None",num_gpu_blocks="182",'
        b'num_gpu_blocks_override="None",user_specified_block_size="False"} 1.0\n'
    )
    assert stats is not None
    assert (stats.running, stats.waiting, stats.preemptions) == (2, 1, 3)
    assert (stats.block_size, stats.kv_blocks) == (128, 182)
    assert stats.prefilled == 188
    assert stats.kv_usage == pytest.approx(0.0055, abs=1e-4)
