"""Whether a request may start on a replica: one rule for the book, for choosing and for predicting."""

import math
from typing import Protocol

from inference.scheduling.answers import Refusal
from inference.scheduling.settings import LaneSettings


class Held(Protocol):
    """What is on a replica and what it holds; tokens, requests, tokens/s. `capkv` 0 is no limit."""

    @property
    def qpf(self) -> float: ...
    @property
    def kv(self) -> float: ...
    @property
    def n(self) -> float: ...
    @property
    def capkv(self) -> float: ...
    @property
    def capn(self) -> int: ...
    @property
    def peak_rate(self) -> float: ...


def slots(lane: LaneSettings, capn: int) -> int:
    """How many requests a replica may have for the lane to add one more: a share of them, but one at least."""
    return max(1, math.floor(lane.ceiling * capn + 1e-9)) if capn > 0 else 0


def gate(lane: LaneSettings, peak_rate: float) -> float:
    """Tokens of queued prefill up to which the lane may add to a replica."""
    return lane.gate_seconds * peak_rate


def refusal(lane: LaneSettings, held: Held, uncached: float, kv: float, cached: float = 0.0) -> Refusal:
    """Why a request of `uncached` tokens to prefill and a context of `kv` may not start there, or Refusal.NONE.

    What is larger than a gate or a ceiling still runs on a replica that has nothing queued, or nothing at all. A lane
    for which others make place may pass a gate where no more is queued than what the replica has `cached` of the
    prompt: to read all of it anywhere else would take as long.
    """
    if held.n + 1 > slots(lane, held.capn):
        return Refusal.SLOTS
    if held.n > 0 and held.capkv > 0 and held.kv + kv > lane.ceiling * held.capkv:
        return Refusal.KV
    sooner_here = lane.preempts and held.qpf <= cached
    if held.qpf > 0 and held.qpf + uncached > gate(lane, held.peak_rate) and not sooner_here:
        return Refusal.GATE
    return Refusal.NONE
