"""Pictures of every scene: `python -m tests.acceptance.screenshots [--only=PART] [--to=FOLDER]`.

Writes one PNG for each scene, viewport and theme, a contact sheet for each viewport and theme, and one of all.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from tests import services
from tests.acceptance.browsing import chromium, wear
from tests.acceptance.gallery import THEMES, VIEWPORTS, Scene, stage
from tests.acceptance.live_site import live_site
from tests.acceptance.scenes import SCENES

FOLDER = Path(__file__).parents[2] / "var" / "screenshots"
SHEETS = 5  # columns
WIDTHS = {"phone": 260, "desktop": 480}  # px, of a picture on a sheet
LABEL, GAP = 28, 16


async def take(scenes: Iterable[Scene], folder: Path) -> None:
    """One page for each scene and viewport; the theme changes under it."""
    with live_site() as site:
        async with chromium() as browser:
            for scene in scenes:
                for viewport in scene.viewports:
                    started = time.monotonic()
                    async with stage(site, browser, scene, viewport) as visitor:
                        for theme in THEMES:
                            await wear(visitor.page, theme)
                            await visitor.page.screenshot(
                                path=folder / f"{scene.name}.{viewport}.{theme}.png", animations="disabled"
                            )
                    say(f"{scene.name} ({viewport}): {time.monotonic() - started:.1f} s")


def sheet(scenes: Iterable[Scene], viewport: str, theme: str, folder: Path) -> Image.Image:
    """Labelled pictures in rows."""
    files = [(scene.name, folder / f"{scene.name}.{viewport}.{theme}.png") for scene in scenes]
    files = [(name, file) for name, file in files if file.exists()]
    width = WIDTHS[viewport]
    height = width * VIEWPORTS[viewport]["height"] // VIEWPORTS[viewport]["width"]
    columns = SHEETS if viewport == "desktop" else SHEETS * 2 - 1
    rows = -(-len(files) // columns)
    size = (columns * (width + GAP) + GAP, rows * (height + LABEL + GAP) + GAP)
    made = Image.new("RGB", size, "#777")
    draw, font = ImageDraw.Draw(made), ImageFont.load_default(16)
    for number, (name, file) in enumerate(files):
        x = GAP + number % columns * (width + GAP)
        y = GAP + number // columns * (height + LABEL + GAP)
        draw.text((x, y), f"{name}", fill="white", font=font)
        with Image.open(file) as picture:
            made.paste(picture.convert("RGB").resize((width, height), Image.Resampling.LANCZOS), (x, y + LABEL))
    return made


def write_sheets(scenes: list[Scene], folder: Path) -> None:
    sheets = [sheet(scenes, viewport, theme, folder) for viewport in VIEWPORTS for theme in THEMES]
    names = [f"{viewport}-{theme}" for viewport in VIEWPORTS for theme in THEMES]
    for name, made in zip(names, sheets, strict=True):
        made.save(folder / f"sheet-{name}.png", optimize=True)
    whole = Image.new("RGB", (max(made.width for made in sheets), sum(made.height for made in sheets)), "#777")
    top = 0
    for made in sheets:
        whole.paste(made, (0, top))
        top += made.height
    whole.save(folder / "contact-sheet.png", optimize=True)


@contextmanager
def stores() -> Iterator[None]:
    """A PostgreSQL and a Valkey of this run's own."""
    services.start()
    try:
        yield
    finally:
        services.end()


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.screenshots", description=__doc__)
    parser.add_argument("--only", default="", help="a part of the scenes' names")
    parser.add_argument("--to", type=Path, default=FOLDER)
    options = parser.parse_args()
    scenes = [scene for scene in SCENES if options.only in scene.name]
    options.to.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatsite.settings")
    with stores():
        asyncio.run(take(scenes, options.to))
    write_sheets(SCENES, options.to)
    say(f"{options.to / 'contact-sheet.png'}")


if __name__ == "__main__":
    main()
