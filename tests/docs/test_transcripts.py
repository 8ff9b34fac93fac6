"""The transcripts in docs/launching.md: what the installed program prints before servers on loopback."""

from __future__ import annotations

from pathlib import Path

import pytest
import transcripts
from transcript_worlds import WORLDS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", list(WORLDS))
def test_the_page_shows_what_is_printed(name: str) -> None:
    """`python docs/_tools/transcripts.py --update` writes it again."""
    printed = transcripts.transcript(WORLDS[name](), transcripts.installed())

    assert transcripts.differences(name, printed) == ""


def test_a_page_that_says_something_else_is_told() -> None:
    """A line that is not printed, and one that is missing."""
    page = transcripts.written("local")
    differences = transcripts.differences("local", page.replace("gpuplan reap", "gpuplan sweep", 1))

    assert "+$ gpuplan sweep --provider local" in differences
    assert "-$ gpuplan reap --provider local" in differences


def test_ids_and_times_have_one_form_and_prices_their_own(tmp_path: Path) -> None:
    """What differs between two runs is put in one form; nothing else is touched."""
    text = (
        f"07:59:01 done     machine: i-0f00ba47f00ba4711 of r1a2b3c4d-2 for $0.526, 2 h, in {tmp_path}/work  \n"
        "own-00112233445566ff 2026-11-24 03:55 d097b5fc-5779-4ee5-aac7-814d1b24d401"
    )

    assert transcripts.in_one_form(text, home=tmp_path) == (
        "12:00:00 done     machine: i-0123456789abcdef0 of r0a1b2c3d-2 for $0.526, 2 h, in /home/me/work\n"
        "own-0123456789abcdef 2026-11-21 12:00 01234567-89ab-cdef-0123-456789abcdef\n"
    )


def test_a_spinner_leaves_nothing_on_the_screen() -> None:
    """As rich draws it: hidden cursor, lines erased and drawn again, the line above kept."""
    drawn = "\x1b[?25l| working\r\x1b[2Kan event\r\n/ working\r\x1b[2K/ working\r\n"
    drawn += "\x1b[?25h\r\x1b[1A\x1b[2Kdone\r\n"

    assert transcripts.on_screen(drawn) == "an event\ndone\n"
