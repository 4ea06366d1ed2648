"""How a process that streams looks for garbage: seldom, since that holds up every stream at once.

Nearly all that a stream makes is freed by reference counts. What a round of a thousand streams makes and frees again is
some ten thousand objects: with Python's thresholds that started 70 collections a second, of which every hundredth went
through all that is alive, for 0.2 seconds (docs/benchmarks/README.md).
"""

import gc

NEW_OBJECTS = 20_000  # more than there were, before the newest are looked at
ROUNDS, OLD_ROUNDS = 10, 5  # of those before the older are, and of these before all: after a million that stay


def collect_seldom() -> None:
    """What is loaded by now is never looked at again: to be called when everything is."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, ROUNDS, OLD_ROUNDS)
