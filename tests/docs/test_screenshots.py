"""Pictures of the documentation: drawn from what is printed, without anything from elsewhere."""

from __future__ import annotations

import re
import shutil
import struct
from pathlib import Path

import pytest
import screenshots

ROOT = Path(__file__).parents[2]


def test_a_terminal_is_drawn_with_its_colours() -> None:
    """The command and each line; bold stays bold; no font or style is loaded."""
    svg = screenshots.draw_terminal("estimate train.py", "Take T4: free.\n\x1b[1mmachine\x1b[0m\n")
    text = svg.replace("&#160;", " ")

    assert "gpuplan estimate train.py" in text
    assert "Take T4: free." in text
    assert "font-weight: bold" in text
    assert re.findall(r"@font-face|@import|url\((?!#)", svg) == []


def test_the_spinner_is_not_in_the_picture() -> None:
    """What rich draws while it waits, and erases; the text after it keeps its style."""
    sent = "\x1b[?25l| working\r\x1b[2K/ working\r\n\x1b[?25h\r\x1b[1A\x1b[2K\x1b[1mTake\x1b[0m\r\n"

    assert screenshots.without_progress(sent) == "\x1b[1mTake\x1b[0m\n"


def test_the_first_page_shows_each_picture() -> None:
    """Those that the script writes, and no others."""
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\(img/([\w.]+)\)", page))

    assert shown == {"mnist.svg", "imagenet.svg", "report.png"}
    assert shown == {path.name for path in screenshots.IMAGES.iterdir()}
    assert {Path(name).stem for name in shown} == {*screenshots.TERMINALS, "report"}


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, screenshots.BROWSERS)), reason="no Chromium here")
def test_a_page_is_photographed(tmp_path: Path) -> None:
    """Its first screen as PNG, whose header has width and height (ISO/IEC 15948, 11.2.2)."""
    page = tmp_path / "page.html"
    page.write_text("<h1>Take T4</h1><div style='height: 3000px'></div>", encoding="utf-8")

    screenshots.photograph(page, tmp_path / "page.png")

    size = struct.unpack(">II", (tmp_path / "page.png").read_bytes()[16:24])
    assert size == (screenshots.PAGE["width"], screenshots.PAGE["height"])
