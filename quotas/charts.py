"""Where the bars of a chart are, and what its axis says. Pure: templates draw it as SVG, without script or style."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

Number = Decimal | int
HEIGHT = 100.0  # of the drawing, whatever it is shown at
SLOT, BAR = 10.0, 7.0  # what a bar has across, and how much of that it takes
_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Piece:
    """A part of a bar: which series, and from where down."""

    series: int
    top: float
    height: float


@dataclass(frozen=True)
class Bar:
    slot: float  # where its place begins, across
    left: float
    pieces: Sequence[Piece]
    title: str


@dataclass(frozen=True)
class Chart:
    """`ticks`: what the axis says at the top, in the middle and at the bottom."""

    bars: Sequence[Bar]
    ticks: tuple[str, str, str]

    @property
    def width(self) -> float:
        return SLOT * len(self.bars)

    slot_width: float = SLOT
    bar_width: float = BAR
    height: float = HEIGHT


def bar_chart(values: Sequence[tuple[str, Sequence[Number]]], tick: Callable[[Number], str]) -> Chart:
    """`values`: of each bar its title, and what lies upon one another in it. `tick` writes a number of the axis."""
    most = max((sum(parts, Decimal(0)) for _, parts in values), default=Decimal(0))
    top = ceiling(most)
    bars = [_bar(number, title, parts, top) for number, (title, parts) in enumerate(values)]
    return Chart(bars, (tick(top), tick(top / 2), tick(Decimal(0))))


def _bar(number: int, title: str, parts: Sequence[Number], top: Decimal) -> Bar:
    pieces, floor = [], HEIGHT
    for series, value in enumerate(parts):
        height = round(float(max(value, Decimal(0)) / top) * HEIGHT, 2)
        if height:
            floor = round(floor - height, 2)
            pieces.append(Piece(series, floor, height))
    return Bar(number * SLOT, number * SLOT + (SLOT - BAR) / 2, pieces, title)


def ceiling(most: Number) -> Decimal:
    """The next number that is easy to read: 1, 2, 2.5, 5 times a power of ten."""
    if most <= 0:
        return Decimal(1)
    power = Decimal(10) ** math.floor(Decimal(most).log10())
    return next(step for each in _STEPS if (step := Decimal(str(each)) * power) >= most)


def share(value: Number, of: Number) -> float:
    """In percent, 0 to 100; what is more than nothing can be seen."""
    if of <= 0 or value <= 0:
        return 0.0
    return min(100.0, max(0.5, round(float(Decimal(value) / Decimal(of)) * 100, 1)))


def short(value: Number) -> str:
    """For an axis: 950, 1.2 K, 3 M."""
    number = Decimal(value)
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if number >= size:
            return f"{_plain(number / size)} {unit}"
    return _plain(number)


def _plain(number: Decimal) -> str:
    return f"{round(number, 2).normalize():f}"
