"""A process that streams: what it makes and frees again does not set off searches for garbage."""

import subprocess
import sys

ROUND = """
import gc
from chatsite.garbage import collect_seldom
loaded = [[] for _ in range(1000)]
collect_seldom()
before = gc.get_stats()
for _ in range(100):  # rounds of streams
    made = [[] for _ in range(10_000)]
    del made
print(gc.get_freeze_count() >= len(loaded), *(after["collections"] - was["collections"]
      for was, after in zip(before, gc.get_stats(), strict=True)))
for _ in range(60):  # circles are found all the same
    for _ in range(10_000):
        circle = []
        circle.append(circle)
print(gc.get_stats()[0]["collected"] > before[0]["collected"])
"""


def test_rounds_of_streams_start_no_collection_and_circles_are_still_found() -> None:
    run = subprocess.run([sys.executable, "-c", ROUND], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.split() == ["True", "0", "0", "0", "True"]
