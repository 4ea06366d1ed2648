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

    def feed(self, text: str) -> str:
        """The characters that can be shown now. After a match: nothing more."""
        if self.matched:
            return ""
        text = self.held + text
        places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
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
