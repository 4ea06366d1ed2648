"""Stop strings: where a reply ends because it says one of them. Pure.

They are matched here and not by the engine, so that one that lies across a failover's seam is found as well.
"""

from collections.abc import Sequence


class StopMatcher:
    """Passes text on until a stop string appears, which is left out. What may be the beginning of one is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        """`stops`: none of them empty."""
        self._stops = tuple(stops)
        self._longest = max(map(len, stops), default=0)
        self.held = ""
        self.matched = False

    def feed(self, text: str, *, deaf: bool = False) -> str:
        """The characters that can be shown now. After a match: nothing more.

        `deaf`: a stop string that ends within `text` is as any other text.
        """
        if self.matched:
            return ""
        before, text = len(self.held), self.held + text
        if not deaf:  # one that had ended in what was held back was passed over
            found = ((text.find(stop, max(0, before - len(stop) + 1))) for stop in self._stops)
            places = [place for place in found if place >= 0]
            if places:
                self.matched, self.held = True, ""
                return text[: min(places)]
        keep = self._beginning(text)
        self.held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """What was held back, when the reply ends without a match."""
        held, self.held = self.held, ""
        return held

    def _beginning(self, text: str) -> int:
        """How many of the last characters may be the beginning of a stop string."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            tail = text[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
