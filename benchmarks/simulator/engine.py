"""One engine as vLLM v1 schedules: continuous batching, chunked prefill, paged KV with prefix caching, recompute.

Time passes in steps. A step prefills some tokens of new sequences and decodes one token of every sequence that is past
its prompt; what it costs is linear in those. Decoding sequences are kept in aggregate (how many, their context, and how
many need a block at which step), so a step is as quick to simulate with two hundred of them as with ten.
"""

from collections import deque
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field

from benchmarks.simulator.blocks import BlockPool
from benchmarks.simulator.profiles import Profile


class TooLongError(ValueError):
    """More tokens than the engine's whole KV memory holds."""


@dataclass(eq=False, slots=True)
class Sequence:
    """A request inside an engine. `hashes`: of the full blocks of prompt and output together, chained."""

    prompt: int
    output: int
    hashes: SequenceOf[int]
    emitted: int = 0  # tokens out, not counting those of the decode steps since `entered`
    cached: int = 0  # prompt tokens found in the prefix cache when it was first admitted
    preemptions: int = 0
    admitted: bool = False
    computed: int = 0  # tokens whose KV is held, while it prefills
    entered: int = -1  # the step after which it began to decode; -1 while it does not
    last_step: int = -1
    context: int = 0  # tokens computed when it began to decode
    private: int = 0
    held: list[int] = field(default_factory=list)


@dataclass(slots=True)
class StepResult:
    """What a step brought about."""

    first: list[Sequence] = field(default_factory=list)
    finished: list[Sequence] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)


class Engine:
    """Call `begin`, let the seconds it returns pass, call `end`; `submit` and `abort` at any time."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.pool = BlockPool(profile.blocks)
        self.waiting: deque[Sequence] = deque()
        self.prefilling: list[Sequence] = []
        self.decoding: dict[Sequence, None] = {}  # in the order of admission
        self.context = 0  # tokens that the decoding sequences attend to
        self.steps = 0
        self.busy = False
        self.preemptions = 0
        self.prefilled = 0  # tokens, including those computed again
        self.decoded = 0
        self._needs = [0] * profile.block  # sequences that need a block at steps of this remainder
        self._ends: dict[int, list[Sequence]] = {}
        self._chunks: list[tuple[Sequence, int]] = []
        self._preempted: list[Sequence] = []

    @property
    def running(self) -> int:
        return len(self.prefilling) + len(self.decoding)

    def submit(self, sequence: Sequence) -> None:
        """Puts it into the engine's own queue. Raises TooLongError."""
        if sequence.prompt + sequence.output > self.profile.blocks * self.profile.block:
            raise TooLongError(sequence.prompt + sequence.output)
        self.waiting.append(sequence)

    def abort(self, sequence: Sequence) -> None:
        """The caller closed the response. What was computed stays in the cache."""
        if sequence in self.decoding:
            self._leave(sequence)
        elif sequence in self.prefilling:
            self.prefilling.remove(sequence)
            self._chunks = [pair for pair in self._chunks if pair[0] is not sequence]
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        else:
            return
        self._release(sequence)

    def progress(self, sequence: Sequence) -> int:
        """Tokens that it has put out so far."""
        return sequence.emitted + (self.steps - sequence.entered if sequence.entered >= 0 else 0)

    def begin(self) -> float | None:
        """Schedules a step; returns its seconds, None when there is nothing to do."""
        self._preempted = []
        self._make_room()
        budget = self.profile.max_num_batched_tokens - len(self.decoding)
        attention = 0.0
        self._chunks = []
        for sequence in list(self.prefilling):
            if sequence in self.prefilling:
                budget, cost = self._chunk(sequence, budget)
                attention += cost
        if not self._preempted:
            while self.waiting and budget > 0 and self.running < self.profile.max_num_seqs:
                sequence = self.waiting[0]
                if not self._admit(sequence):
                    break
                budget, cost = self._chunk(sequence, budget)
                attention += cost
        prefill = sum(tokens for _, tokens in self._chunks)
        if not prefill and not self.decoding:
            return None
        self.busy = True
        self.prefilled += prefill
        self.decoded += len(self.decoding)
        return self.profile.step_seconds(prefill, attention, len(self.decoding), self.context)

    def end(self) -> StepResult:
        """The step that `begin` scheduled is over."""
        self.busy = False
        self.steps += 1
        self.context += len(self.decoding)
        result = StepResult(preempted=self._preempted)
        for sequence in self._ends.pop(self.steps, ()):
            if sequence.last_step == self.steps:
                self._leave(sequence)
                self._finish(sequence, result)
        for sequence, tokens in self._chunks:
            self._computed(sequence, tokens, result)
        self._chunks = []
        return result

    def _make_room(self) -> None:
        """Blocks for this step's decodes; while there are none, the youngest sequence gives up its own."""
        while True:
            need = self._needs[(self.steps + 1) % self.profile.block]
            if need <= self.pool.available:
                break
            youngest = self.prefilling[-1] if self.prefilling else next(reversed(self.decoding))
            self._preempt(youngest)
        if need:
            self.pool.take(need)

    def _preempt(self, sequence: Sequence) -> None:
        if sequence in self.decoding:
            self._leave(sequence)
        else:
            self.prefilling.remove(sequence)
        self._release(sequence)
        sequence.computed = 0
        sequence.preemptions += 1
        self.preemptions += 1
        self._preempted.append(sequence)
        self.waiting.appendleft(sequence)

    def _admit(self, sequence: Sequence) -> bool:
        """Takes a waiting sequence in if all of its prompt fits beside the others."""
        block = self.profile.block
        tokens = sequence.prompt + sequence.emitted
        hit = self.pool.match(sequence.hashes, (tokens - 1) // block)
        found = list(sequence.hashes[:hit])
        need = -(-tokens // block) - hit
        if need > self.pool.available - self.pool.idle_among(found):
            return False
        self.waiting.popleft()
        self.pool.hold(found)
        sequence.held = found
        sequence.computed = hit * block
        sequence.private = 0
        if not sequence.admitted:
            sequence.admitted = True
            sequence.cached = sequence.computed
        self.prefilling.append(sequence)
        return True

    def _chunk(self, sequence: Sequence, budget: int) -> tuple[int, float]:
        """Schedules as much of its prompt as budget and memory allow; returns the budget left and attended pairs."""
        if budget <= 0:
            return budget, 0.0
        block = self.profile.block
        tokens = min(budget, sequence.prompt + sequence.emitted - sequence.computed)
        have = len(sequence.held) + sequence.private
        need = -(-(sequence.computed + tokens) // block) - have
        while need > self.pool.available:
            youngest = self.prefilling[-1]
            self._preempt(youngest)
            if youngest is sequence:
                return 0, 0.0
        self.pool.take(need)
        sequence.private += need
        self._chunks.append((sequence, tokens))
        return budget - tokens, tokens * (sequence.computed + tokens / 2)

    def _computed(self, sequence: Sequence, tokens: int, result: StepResult) -> None:
        block = self.profile.block
        before, sequence.computed = sequence.computed, sequence.computed + tokens
        found = self.pool.publish(sequence.hashes[before // block : sequence.computed // block])
        sequence.private -= len(found)
        sequence.held += found
        if sequence.computed < sequence.prompt + sequence.emitted:
            return
        self.prefilling.remove(sequence)
        if sequence.emitted == 0:
            result.first.append(sequence)
        sequence.emitted += 1
        if sequence.emitted >= sequence.output:
            self._finish(sequence, result)
            return
        self._enter(sequence)

    def _enter(self, sequence: Sequence) -> None:
        sequence.entered = self.steps
        sequence.context = sequence.computed
        sequence.last_step = self.steps + sequence.output - sequence.emitted
        self.decoding[sequence] = None
        self.context += sequence.context
        self._needs[(self.steps + 1 - sequence.context) % self.profile.block] += 1
        self._ends.setdefault(sequence.last_step, []).append(sequence)

    def _leave(self, sequence: Sequence) -> None:
        """It decodes no more; its tokens and blocks are counted singly again.

        In the middle of a step (an abort) the block that this step took for it is among its own already.
        """
        block = self.profile.block
        done = self.steps - sequence.entered
        slot = (sequence.entered + 1 - sequence.context) % block
        del self.decoding[sequence]
        self._needs[slot] -= 1
        self.context -= sequence.context + done
        taken = done + 1 if self.busy else done
        sequence.private += -(-(sequence.context + taken) // block) - -(-sequence.context // block)
        sequence.computed = sequence.context + done
        sequence.emitted += done
        sequence.entered = sequence.last_step = -1

    def _finish(self, sequence: Sequence, result: StepResult) -> None:
        result.finished.append(sequence)
        self._release(sequence)

    def _release(self, sequence: Sequence) -> None:
        """Everything goes back; full blocks stay findable until they are evicted."""
        block = self.profile.block
        full = sequence.hashes[: sequence.computed // block]
        found = self.pool.publish(full)
        sequence.private -= len(found)
        # In the prompt's order, so that its end goes first.
        order = {key: index for index, key in enumerate(full)}
        held = sorted(sequence.held + found, key=order.__getitem__)
        self.pool.drop(sequence.private, held)
        sequence.private = 0
        sequence.held = []
