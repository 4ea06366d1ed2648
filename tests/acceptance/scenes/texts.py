"""What is said in the scenes."""

QUESTION = "How do tides work? Answer in a few sentences."
ANSWER = """\
The Moon pulls on the near side of the Earth a little more than on the far side. That difference stretches the oceans \
into two bulges, one facing the Moon and one facing away from it.

As the Earth turns, each coast passes through both bulges in a day, which gives **two high tides** about 12 hours and \
25 minutes apart. The Sun does the same at less than half the strength:

- At new and full moon the two add up: a *spring tide*.
- At the quarters they partly cancel: a *neap tide*.

How high the water climbs depends on the coast. The Bay of Fundy funnels it to 16 m, while the Mediterranean \
hardly moves.
"""
CODE_QUESTION = "Write a small rate limiter in Python, with an example."
CODE = """\
A token bucket allows short bursts and holds the average. It needs two numbers and a clock:

```python
import time


class TokenBucket:
    \"\"\"Lets `rate` calls through per second, and bursts of up to `size`.\"\"\"

    def __init__(self, rate: float, size: int) -> None:
        self.rate, self.size = rate, size
        self.tokens, self.checked = float(size), time.monotonic()

    def take(self) -> bool:
        now = time.monotonic()
        self.tokens = min(self.size, self.tokens + (now - self.checked) * self.rate)
        self.checked = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True
```

Use `take()` ahead of each call:

```python
bucket = TokenBucket(rate=5, size=10)
print([bucket.take() for _ in range(12)].count(True))  # 10
```

The lock is left out; add a `threading.Lock` around `take` when several threads share one bucket.
"""
LONG_CODE = (
    "Here is the whole table:\n\n```python\nSQUARES = {\n"
    + "".join(f"    {number}: {number * number},  # {number} times {number}\n" for number in range(1, 60))
    + "}\n```\n\nIt ends at 59.\n"
)
RICH_QUESTION = "Compare a few sorting algorithms and explain the lower bound."
RICH = """\
## Three that you will meet

| Algorithm | Average | Worst | Stable | In place |
|---|---:|---:|:---:|:---:|
| Insertion sort | $n^2$ | $n^2$ | yes | yes |
| Merge sort | $n \\log n$ | $n \\log n$ | yes | no |
| Quicksort | $n \\log n$ | $n^2$ | no | yes |

Any sort that only compares must tell $n!$ orders apart, so it needs at least

$$\\log_2 n! = \\sum_{k=1}^{n} \\log_2 k = \\Theta(n \\log n)$$

comparisons.

1. Use what your language brings; it is **merge-based** in Python and Java.
2. Sort *keys*, not whole records, when records are large.
   - `operator.itemgetter` is quicker than a lambda.
3. For small integers, count instead: see [counting sort](https://en.wikipedia.org/wiki/Counting_sort).

> Premature optimisation is the root of all evil.

![A picture of a merge](https://example.org/merge.png)
"""
TITLES = [
    "How do tides work?",
    "A rate limiter in Python",
    "Dinner from rice, eggs and spinach",
    "Declining a meeting politely",
    "Sorting algorithms compared",
    "A packing list for three days of rain in the mountains, for two people",
    "Explain this stack trace",
    "Questions for a first interview",
]
