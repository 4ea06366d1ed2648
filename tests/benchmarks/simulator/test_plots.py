"""The charts are well-formed and say what is off their scale."""

import xml.etree.ElementTree as ElementTree

import pytest

from benchmarks.simulator.plots import HEIGHT, TOP, WIDTH, Scale, bars, lines

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("log", [True, False])
def test_bars(log: bool) -> None:
    made = bars("A & B", ["50 %", "80 %"], {"ours": [0.2, 0.4], "theirs <1>": [3.0, None]}, " s", log=log)
    tree = ElementTree.fromstring(made)
    assert len(tree.findall(f"{SVG}rect")) == 1 + 2 + 4  # ground, legend, bars
    assert "∞" in made


def test_lines_have_gaps_where_nothing_is_known() -> None:
    made = lines("A", {"ours": [(0.0, 0.2), (5.0, None), (10.0, 0.4)]}, " s", log=True, line=1.0)
    ElementTree.fromstring(made)
    assert made.count("M") >= 3


@pytest.mark.parametrize("high", [0.07, 0.93, 1.0, 4.2, 9.9, 42.0, 700.0])
def test_a_linear_scale_has_a_few_ticks_within_it(high: float) -> None:
    scale = Scale.over([high], log=False)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 8
    assert all(0 <= scale.y(tick) <= HEIGHT for tick in ticks)


def test_a_legend_that_is_too_long_goes_on_in_a_second_row() -> None:
    names = [f"a policy with a long name {number}" for number in range(6)]
    tree = ElementTree.fromstring(bars("A", ["50 %"], {name: [1.0] for name in names}, " s", log=True))
    places = [text for text in tree.findall(f"{SVG}text") if text.text in names]
    assert len({text.get("y") for text in places}) == 2
    assert all(float(text.get("x", "")) + 6.9 * len(names[0]) < WIDTH for text in places)
    assert max(float(text.get("y", "")) for text in places) < TOP - 15


def test_a_scale_of_decades_spans_one_at_least() -> None:
    scale = Scale.over([1.0], log=True)
    assert scale.ticks() == [1.0, 10.0]
    assert scale.y(1.0) > scale.y(10.0)
