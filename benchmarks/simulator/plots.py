"""Small SVG charts, without a library: grouped bars and lines over time."""

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 760, 340
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 80, 46
COLORS = ("#1f6feb", "#8250df", "#d97706", "#cf222e", "#57606a", "#1a7f37", "#bf3989", "#0a7ea4")
TEXT = 'font-family="system-ui, sans-serif" font-size="12" fill="#24292f"'


def bars(
    title: str, groups: Sequence[str], values: Mapping[str, Sequence[float | None]], unit: str, *, log: bool
) -> str:
    """One bar for each series in each group; None, which is off the scale, is drawn to the top and marked."""
    known = [value for series in values.values() for value in series if value is not None and value > 0]
    scale = Scale.over(known, log=log)
    parts = _frame(title, list(values), scale, unit)
    wide = (WIDTH - LEFT - RIGHT) / len(groups)
    each = wide * 0.84 / len(values)
    for group, label in enumerate(groups):
        begin = LEFT + group * wide + wide * 0.08
        parts.append(_text(LEFT + (group + 0.5) * wide, HEIGHT - BOTTOM + 18, label, "middle"))
        for place, series in enumerate(values.values()):
            value = series[group]
            top = TOP if value is None else scale.y(value)
            parts.append(
                f'<rect x="{begin + place * each:.1f}" y="{top:.1f}" width="{each * 0.9:.1f}" '
                f'height="{max(0.5, HEIGHT - BOTTOM - top):.1f}" fill="{COLORS[place % len(COLORS)]}"/>'
            )
            if value is None:
                parts.append(_text(begin + (place + 0.45) * each, TOP - 3, "∞", "middle"))
    return _svg(parts)


def lines(
    title: str, series: Mapping[str, Sequence[tuple[float, float | None]]], unit: str, *, log: bool, line: float | None
) -> str:
    """Values over seconds; a gap where there is none. The first is on top. `line` is drawn across, an objective."""
    points = [point for each in series.values() for point in each]
    known = [value for _, value in points if value is not None and value > 0] + ([line] if line else [])
    scale = Scale.over(known, log=log)
    last = max(at for at, _ in points)
    parts = _frame(title, list(series), scale, unit)
    for at in range(0, int(last) + 1, 30):
        parts.append(_text(_x(at, last), HEIGHT - BOTTOM + 18, f"{at} s", "middle"))
    if line:
        y = scale.y(line)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#57606a" stroke-dasharray="5 4"/>')
    for place, each in reversed(list(enumerate(series.values()))):
        path, draw = "", "M"
        for at, value in each:
            if value is None:
                draw = "M"
                continue
            path += f"{draw}{_x(at, last):.1f} {scale.y(max(value, scale.low)):.1f}"
            draw = "L"
        parts.append(f'<path d="{path}" fill="none" stroke="{COLORS[place % len(COLORS)]}" stroke-width="2"/>')
    return _svg(parts)


class Scale:
    """From values to heights."""

    def __init__(self, low: float, high: float, *, log: bool) -> None:
        self.low, self.high, self.log = low, high, log

    @classmethod
    def over(cls, values: Sequence[float], *, log: bool) -> "Scale":
        """Whole decades, or from 0."""
        most = max(values, default=1.0)
        if not log:
            return cls(0.0, most * 1.05, log=False)
        low = math.floor(math.log10(min(values, default=0.1)))
        return cls(10.0**low, 10.0 ** max(low + 1, math.ceil(math.log10(most))), log=True)

    def y(self, value: float) -> float:
        share = (
            math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
            if self.log
            else value / self.high
        )
        return HEIGHT - BOTTOM - min(1.0, share) * (HEIGHT - BOTTOM - TOP)

    def ticks(self) -> list[float]:
        if self.log:
            first, last = round(math.log10(self.low)), round(math.log10(self.high))
            return [10.0**power for power in range(first, last + 1)]
        step = 10 ** math.floor(math.log10(self.high))
        step = next(size for size in (step / 5, step / 2, step, step * 2) if self.high / size <= 6)
        return [step * number for number in range(int(self.high / step) + 1)]


def _x(at: float, last: float) -> float:
    return LEFT + at / max(last, 1e-9) * (WIDTH - LEFT - RIGHT)


def _frame(title: str, names: Sequence[str], scale: Scale, unit: str) -> list[str]:
    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>', _text(LEFT, 20, title, "start", bold=True)]
    at, row = float(LEFT), 31
    for place, name in enumerate(names):
        wide = 26 + 6.9 * len(name)
        if at > LEFT and at + wide > WIDTH:
            at, row = float(LEFT), row + 17
        parts.append(f'<rect x="{at:.0f}" y="{row}" width="10" height="10" fill="{COLORS[place % len(COLORS)]}"/>')
        parts.append(_text(at + 14, row + 9, name, "start"))
        at += wide
    for tick in scale.ticks():
        y = scale.y(tick)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#d0d7de"/>')
        parts.append(_text(LEFT - 6, y + 4, f"{tick:g}{unit}", "end"))
    return parts


def _text(x: float, y: float, text: str, anchor: str, *, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {TEXT}{weight}>{escape(text)}</text>'


def _svg(parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">\n'
        f"{body}\n</svg>\n"
    )
