"""What a running reply has produced: ids, text, log probabilities, and where the ways out of memory stand in them."""

from collections.abc import Sequence
from datetime import datetime

from django.utils import timezone

from inference.detokenizer import Detokenizer
from inference.protocol import Sampling
from inference.settlement import Text
from inference.stopping import StopMatcher
from inference.vllm import Delta, TokenLogprob


class Output:
    """Token and character positions count from the start of the owner's text; `ids` and `pieces` are this request's."""

    def __init__(self) -> None:
        self.base_tokens = self.base_chars = 0
        self.ids: list[int] = []  # over all attempts
        self.received = 0  # tokens that this attempt got from its engine; whatever came without any counts as one
        self.pieces: list[str] = []
        self.chars = 0  # of `pieces`
        self.logprobs: list[TokenLogprob | None] = []  # one for each of `ids`, where they are asked for
        self.wants_logprobs = False
        self.cached: int | None = None  # of the prompt, as the engine has told
        self.first_token_at: datetime | None = None
        self.finish_reason = ""
        self._decoder: Detokenizer | None = None
        self._stopper: StopMatcher | None = None
        self._least = 0  # tokens before which no stop string counts
        # On its way to the token log
        self.unlogged_text = ""
        self.logged_tokens = 0  # of `ids`
        self.textual = 0  # entries of text without a token of its own
        # On its way to PostgreSQL
        self.unsaved_text = ""
        self.saved_tokens = 0  # of `ids`

    @property
    def emitted(self) -> int:
        """Tokens of the owner's text so far."""
        return self.base_tokens + len(self.ids)

    @property
    def text(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""

    @property
    def produced(self) -> Text:
        return Text(self.ids, self.text)

    @property
    def unlogged(self) -> bool:
        return bool(self.unlogged_text) or self.logged_tokens < len(self.ids)

    @property
    def said_stop(self) -> bool:
        """Whether the text has come to a stop string."""
        return self._stopper is not None and self._stopper.matched

    def take_up(self, whole: Text, known: Text, logged_tokens: int) -> bool:
        """What earlier attempts emitted, `known` of it to PostgreSQL. True when the log lacks some and begins anew."""
        self.ids, self.pieces, self.chars = list(whole.token_ids), [whole.text], len(whole.text)
        self.saved_tokens, self.unsaved_text = len(known.token_ids), whole.text[len(known.text) :]
        if logged_tokens < len(self.ids):
            self.log_anew()
            return True
        self.logged_tokens = len(self.ids)
        return False

    def log_anew(self) -> None:
        """Redis lost the log: it gets everything again."""
        self.unlogged_text, self.logged_tokens = self.text, 0

    def begin(self, sampling: Sampling, decoder: Detokenizer | None) -> None:
        """`decoder`: behind the tokens that the owner's text has; with stop strings, behind those of earlier requests.

        The matcher of stop strings reads what was emitted once more, of which it may hold back some that no log has.
        """
        self._decoder = decoder
        self.wants_logprobs = sampling.logprobs is not None
        self.logprobs = [None] * len(self.ids)
        if sampling.stop:
            self._stopper, self._least = StopMatcher(sampling.stop), sampling.min_tokens
            self._add(self._read_again(self._stopper)[self.chars :])

    def take(self, delta: Delta) -> None:
        """What the engine has sent."""
        self.received += len(delta.token_ids) or 1
        if delta.cached_tokens is not None:  # the engine tells it last; of a reply that was cut it is not known
            self.cached = delta.cached_tokens
        if delta.token_ids or delta.text:
            self.first_token_at = self.first_token_at or timezone.now()
            if self._stopper is None:
                self._add(self._decoder.feed(delta.token_ids) if self._decoder else delta.text)
                self.ids += delta.token_ids
            else:
                self._take_until_stop(self._stopper, delta)
            if self.wants_logprobs:
                self._take_logprobs(delta.logprobs)
        if delta.finish_reason and not self.said_stop:
            self.finish_reason = delta.finish_reason

    def finish(self) -> None:
        """The engine has nothing more to say: what was held back goes out."""
        if self.finish_reason not in ("length", "quota") and self._decoder is not None:
            # After a cut (length, quota, stop) a half character is left for Continue, which completes it.
            rest = self._decoder.flush()
            deaf = len(self.ids) <= self._least
            self._add(rest if self._stopper is None else self._stopper.feed(rest, deaf=deaf))
        if self._stopper is not None:
            self._add(self._stopper.flush())

    def _read_again(self, stopper: StopMatcher) -> str:
        if self._decoder is None:  # without a tokenizer there is only what was shown, and that has no stop string
            return stopper.feed(self.text, deaf=True)
        early = stopper.feed(self._decoder.feed(self.ids[: self._least]), deaf=True)
        return early + stopper.feed(self._decoder.feed(self.ids[self._least :]))

    def _take_until_stop(self, stopper: StopMatcher, delta: Delta) -> None:
        """Token by token: those after the one that completes a stop string are not the caller's.

        One that is complete within the least tokens does not count; one that begins there does, as with vLLM.
        """
        if self._decoder is None:
            self.ids += delta.token_ids
            self._add(stopper.feed(delta.text, deaf=len(self.ids) <= self._least))
        else:
            for token_id in delta.token_ids:
                self.ids.append(token_id)
                self._add(stopper.feed(self._decoder.feed([token_id]), deaf=len(self.ids) <= self._least))
                if stopper.matched:
                    break
        if stopper.matched:
            self.finish_reason = "stop"

    def _take_logprobs(self, logprobs: Sequence[TokenLogprob | None]) -> None:
        """One for each token: an engine that sends too few leaves the rest unknown."""
        missing = len(self.ids) - len(self.logprobs)
        self.logprobs += [*logprobs, *[None] * missing][:missing]

    def _add(self, text: str) -> None:
        if text:
            self.pieces.append(text)
            self.chars += len(text)
            self.unlogged_text += text
            self.unsaved_text += text
