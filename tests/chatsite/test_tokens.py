"""The colours of the pages can be read: contrast, computed from the tokens, in light and in dark."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOKENS = (ROOT / "static/css/tokens.css").read_text()
COLOUR = r"#[0-9a-f]{6}|rgb\([^)]*\)"
PAIRS = {
    name: (light, dark)
    for name, light, dark in re.findall(
        rf"--([\w-]+): light-dark\(({COLOUR}), ({COLOUR})\);", TOKENS.split("@media")[0]
    )
}
GROUNDS = ["surface", "sunken", "raised", "menu"]
Colour = tuple[float, float, float]


def opaque(text: str, ground: Colour = (0, 0, 0)) -> Colour:
    """The colour as it is seen on `ground`, 0 to 255 each."""
    if text.startswith("#"):
        return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)
    red, green, blue, percent = (float(number) for number in re.findall(r"[\d.]+", text))
    share = percent / 100
    over = [new * share + old * (1 - share) for new, old in zip((red, green, blue), ground, strict=True)]
    return over[0], over[1], over[2]


def luminance(colour: Colour) -> float:
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (channel / 255 for channel in colour)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: Colour, other: Colour) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_the_computation_is_that_of_wcag() -> None:
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast(opaque("#767676"), (255, 255, 255)) == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", GROUNDS)
def test_text_has_contrast_on_every_ground_hovered_too(ground: str, theme: int) -> None:
    plain = opaque(PAIRS[ground][theme])
    for state in (plain, opaque(PAIRS["hover"][theme], plain)):
        for text in ("text", "muted", "accent", "danger"):
            assert contrast(opaque(PAIRS[text][theme]), state) >= 4.5, text


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("text", "ground"),
    [("on-accent", "accent"), ("on-danger", "danger"), ("text", "selection"), ("danger", "danger-tint")]
    + [(f"code-{part}", "code") for part in ("keyword", "string", "number", "name", "comment")],
)
def test_text_has_contrast_on_its_own_ground(text: str, ground: str, theme: int) -> None:
    assert contrast(opaque(PAIRS[text][theme]), opaque(PAIRS[ground][theme])) >= 4.5


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["surface", "sunken", "menu"])
def test_controls_and_focus_stand_out(ground: str, theme: int) -> None:
    for edge in ("control-line", "focus"):
        assert contrast(opaque(PAIRS[edge][theme]), opaque(PAIRS[ground][theme])) >= 3, edge


def test_the_browser_s_own_bar_has_the_colour_of_the_page() -> None:
    page, script = (ROOT / "templates/base.html").read_text(), (ROOT / "static/js/theme.js").read_text()
    for colour in PAIRS["surface"]:
        assert f'content="{colour}"' in page
        assert f'"{colour}"' in script
