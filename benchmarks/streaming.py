"""What the platform adds to an engine: CPU per token and request, time to the first token, gaps. `make bench`.

The engine alone and the platform in front of it, in turns (A B A B A B), in one run on one machine. Writes the raw
figures to docs/benchmarks/streaming.json and a table to docs/benchmarks/streaming.md.
"""

import argparse
import asyncio
import contextlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.client import Load, Target, quantile, run
from benchmarks.house import MODEL, House, house
from benchmarks.peer import KEY, Peer, litellm
from benchmarks.report import commit, machine, now, write

PROMPT = "Tell me about rivers."
PROMPT_IDS = list(range(1000, 1040))
WHAT = ("engine", "chat", "completions")  # alone; behind the native API; behind the OpenAI-compatible one
PEER = "litellm"
SCENARIOS = (
    # name, streams at once, requests, tokens each, tokens/s of each stream (0: full speed)
    ("one at a time", 1, 40, 20, 0),
    ("64 at 30 tokens/s", 64, 128, 150, 30),
    ("64 at full speed", 64, 256, 200, 0),
)


def engine_target(here: House, tokens: int) -> Target:
    body = {
        "model": MODEL,
        "prompt": PROMPT_IDS,
        "stream": True,
        "max_tokens": tokens,
        "return_token_ids": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    return Target("127.0.0.1", int(here.engine.rpartition(":")[2]), "/v1/completions", body, b'"text":"', (b"[DONE]",))


def site_target(here: House, conversation: str, tokens: int) -> Target:
    body = {"content": PROMPT, "max_tokens": tokens}
    path = f"/v1/conversations/{conversation}/messages"
    return Target("127.0.0.1", here.site.port, path, body, b'"text":"', (b'"done"', b'"error"'), here.site.key)


def completions_target(here: House, tokens: int) -> Target:
    body = {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}], "stream": True, "max_tokens": tokens}
    path = "/v1/chat/completions"
    return Target("127.0.0.1", here.site.port, path, body, b'"content":"', (b"[DONE]", b'"error"'), here.site.key)


def peer_target(peer: Peer, tokens: int) -> Target:
    body = {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}], "stream": True, "max_tokens": tokens}
    path = "/v1/chat/completions"
    return Target("127.0.0.1", peer.port, path, body, b'"content":"', (b"[DONE]", b'"error"'), KEY)


def targets_of(here: House, what: str, requests: int, tokens: int, peer: Peer | None) -> list[Target]:
    if what == PEER and peer is not None:
        return [peer_target(peer, tokens)] * requests
    if what == "engine":
        return [engine_target(here, tokens)] * requests
    if what == "completions":
        return [completions_target(here, tokens)] * requests
    ids = [here.site.conversation() for _ in range(requests)]
    return [site_target(here, conversation, tokens) for conversation in ids]


def measure(
    here: House,
    streams: int,
    requests: int,
    tokens: int,
    *,
    what: str,
    spread: float = 0.0,
    peer: Peer | None = None,
) -> dict[str, Any]:
    """`spread`: seconds between the beginnings of the first streams; later ones begin as earlier ones end."""
    targets = targets_of(here, what, requests, tokens, peer)
    measured = peer if what == PEER and peer is not None else here
    before = measured.cpu()
    load = asyncio.run(run(targets, streams, spread))
    time.sleep(1.5)  # what is saved and released after the last token counts too
    after = measured.cpu()
    return figures(load, {name: after[name] - before[name] for name in after}, what)


def figures(load: Load, cpu: dict[str, float], what: str) -> dict[str, Any]:
    events = sum(stream.events for stream in load.streams)
    gaps = [stream.gap for stream in load.streams]
    result: dict[str, Any] = {
        "what": what,
        "statuses": load.statuses,
        "tokens": load.tokens,
        "wall_s": round(load.wall, 3),
        "tokens_per_s": round(load.tokens / load.wall),
        "tokens_per_event": round(load.tokens / max(1, events), 2),
        "ttft_ms_p50": round(load.first(0.5) * 1000, 2),
        "ttft_ms_p95": round(load.first(0.95) * 1000, 2),
        "gap_ms_p50": round(quantile(gaps, 0.5) * 1000, 1),
        "gap_ms_max": round(max(gaps) * 1000, 1),
    }
    if what != "engine":
        total = sum(cpu.values())
        result |= {f"{name}_cpu_s": round(seconds, 3) for name, seconds in cpu.items()}
        result["cpu_us_per_token"] = round(total / max(1, load.tokens) * 1e6, 1)
        result["cpu_ms_per_request"] = round(total / len(load.streams) * 1000, 2)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--server", default="daphne", choices=["daphne", "uvicorn"])
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument(
        "--litellm", type=Path, help="the litellm executable of an environment of its own, measured too"
    )
    parser.add_argument("--no-write", action="store_true")
    args = parser.parse_args()
    runs: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        here = stack.enter_context(house(args.server))
        peer = stack.enter_context(litellm(args.litellm, here.engine)) if args.litellm else None
        what_runs = [*WHAT, PEER] if peer else list(WHAT)
        warm_up(here, what_runs, peer)
        for name, streams, requests, tokens, rate in SCENARIOS:
            if args.only not in name:
                continue
            here.set_engine(tokens_per_second=rate)
            for pair in range(args.pairs):
                for what in what_runs:
                    spread = tokens / rate / streams if rate else 0.0  # as users come, not all at once
                    result = measure(here, streams, requests, tokens, what=what, spread=spread, peer=peer)
                    runs.append({"scenario": name, "pair": pair, **result})
                    print(json.dumps(runs[-1]), flush=True)
    versions = {PEER: peer.version} if peer else {}
    report = {
        "machine": machine(),
        "peers": versions,
        "commit": commit(),
        "server": args.server,
        "at": now(),
        "runs": runs,
    }
    if not args.no_write:
        write("streaming", report, table(report))
    print(table(report))


def warm_up(here: House, what_runs: Sequence[str], peer: Peer | None) -> None:
    """Tokenizers are loaded, connections open, prompts seen."""
    for what in what_runs:
        measure(here, 8, 16, 20, what=what, peer=peer)


def table(report: dict[str, Any]) -> str:
    """Medians over the pairs; time added is platform minus engine of the same pair."""
    lines = [
        "# Streaming: what the platform adds to an engine",
        "",
        f"{report['machine']}; commit `{report['commit']}`; {report['server']}; {report['at']}.",
        "Made by `make bench`; the raw figures are in streaming.json. The engine is the fake one of the tests, without",
        "think time; medians of the pairs.",
        "",
        "| | CPU us/token (web + runner; the proxy) | CPU ms/request | tokens/event | TTFT added p50, p95 (ms) |"
        " largest gap (ms) | largest gap of the engine alone (ms) |",
        "|---|---|---|---|---|---|---|",
    ]
    names = dict.fromkeys(each["scenario"] for each in report["runs"])
    kinds = dict.fromkeys(each["what"] for each in report["runs"] if each["what"] != "engine")
    for name, kind in [(name, kind) for name in names for kind in kinds]:
        ours, alone = (
            [each for each in report["runs"] if (each["scenario"], each["what"]) == (name, what)]
            for what in (kind, "engine")
        )
        added = [
            (us["ttft_ms_p50"] - them["ttft_ms_p50"], us["ttft_ms_p95"] - them["ttft_ms_p95"])
            for us, them in zip(ours, alone, strict=True)
        ]
        lines.append(
            f"| {kind}, {name} | {median(ours, 'cpu_us_per_token')} | {median(ours, 'cpu_ms_per_request')} |"
            f" {median(ours, 'tokens_per_event')} |"
            f" {quantile([a for a, _ in added], 0.5):.1f}, {quantile([b for _, b in added], 0.5):.1f} |"
            f" {median(ours, 'gap_ms_max')} | {median(alone, 'gap_ms_max')} |"
        )
    return "\n".join(lines) + "\n"


def median(runs: list[dict[str, Any]], key: str) -> float:
    return float(quantile([each[key] for each in runs], 0.5))


if __name__ == "__main__":
    main()
