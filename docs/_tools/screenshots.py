"""Pictures of the program for the documentation, made by the installed program itself.

    python docs/_tools/screenshots.py                  # write docs/img/: two terminals and the report
    python docs/_tools/screenshots.py mnist report     # some of them

A terminal's picture is an SVG of what a command prints on a terminal of a fixed width, in a folder with a copy of
`examples/` and fresh settings, as after an installation. The report's is taken by the browser of this machine
(`.ci/chromium` installs one) from the file that `gpuplan report` writes.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from transcripts import PASSED_ON, Shell, installed  # noqa: E402 - it needs the tests' folder

IMAGES = ROOT / "docs" / "img"
PAGE = {"width": 1300, "height": 860}  # pixels of the report that are shown
COLUMNS = 88
IMAGENET = "estimate ResNet50 --batch-size 256 --samples 1281167 --epochs 90"
# Name of the picture: the command on the terminal.
TERMINALS = {"mnist": "estimate examples/mnist_cnn.py", "imagenet": IMAGENET}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge")


@contextmanager
def fresh_shell() -> Iterator[Shell]:
    """Give a folder with the examples, and settings as after an installation."""
    with tempfile.TemporaryDirectory(prefix="gpuplan-screenshots-") as name:
        folder = Path(name, "work")
        shutil.copytree(ROOT / "examples", folder / "examples")
        own = {f"GPUPLAN_{kind}_DIR": f"{name}/{kind.lower()}" for kind in ("CACHE", "DATA", "STATE")}
        kept = {key: value for key, value in os.environ.items() if key in PASSED_ON}
        environment = {
            **kept, **own, "HOME": name, "XDG_CONFIG_HOME": f"{name}/config", "COLUMNS": str(COLUMNS),
            "TERM": "xterm-256color", "COLORTERM": "truecolor", "KERAS_BACKEND": "jax",
        }  # fmt: skip
        yield Shell(folder=folder, environment=environment, program=installed())


def without_progress(sent: str) -> str:
    """Return what is printed after the spinner has gone, with its colours.

    Example:
        >>> without_progress("\\x1b[?25l| working\\r\\x1b[2K\\x1b[?25h\\r\\x1b[1A\\x1b[1mdone\\x1b[0m\\r\\n")
        '\\x1b[1mdone\\x1b[0m\\n'
    """
    after = sent.rpartition("\x1b[?25h")[2].replace("\r", "")
    return re.sub(r"\x1b\[\d*[A-LN-Za-ln-z]", "", after)


def draw_terminal(command: str, printed: str) -> str:
    """Return an SVG of a terminal with a command and what it printed; it loads no font from elsewhere.

    Args:
        command: The command line after `gpuplan`.
        printed: Lines with the colours of a terminal, without what was overwritten.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(f"[bold green]$[/] gpuplan {command}", highlight=False, soft_wrap=True)
    console.print(Text.from_ansi(printed.rstrip("\n")), soft_wrap=True)
    svg = console.export_svg(title="gpuplan", unique_id="gpuplan")
    return re.sub(r"\s*@font-face \{.*?\}\n", "\n", svg, flags=re.DOTALL).replace("Fira Code", "ui-monospace")


def find_browser(own: str) -> str | None:
    """Return a browser of this machine, or the one that playwright has downloaded."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    return found or (own if Path(own).exists() else None)


def photograph(page: Path, picture: Path) -> None:
    """Take the first screen of a page as PNG; SystemExit without a browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        path = find_browser(driver.chromium.executable_path)
        if path is None:
            raise SystemExit("no Chromium here: run .ci/chromium")
        browser = driver.chromium.launch(executable_path=path, chromium_sandbox=os.geteuid() != 0)
        tab = browser.new_page(viewport=PAGE, color_scheme="light")
        tab.goto(page.as_uri())
        tab.wait_for_load_state("networkidle")
        tab.screenshot(path=picture)
        browser.close()


def make(name: str) -> Path:
    """Write one picture and return its path."""
    with fresh_shell() as shell:
        if name == "report":
            shell.run([*shlex.split(IMAGENET), "-o", "plan.json"])
            shell.run(["report", "plan.json", "-o", "report.html"])
            photograph(shell.folder / "report.html", IMAGES / "report.png")
            return IMAGES / "report.png"
        printed = without_progress(shell.capture(shlex.split(TERMINALS[name])))
        path = IMAGES / f"{name}.svg"
        path.write_text(draw_terminal(TERMINALS[name], printed), encoding="utf-8")
        return path


def main() -> None:
    """Write the pictures that are asked for."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("names", nargs="*", help=f"of: {', '.join(TERMINALS)}, report; default: all")
    IMAGES.mkdir(exist_ok=True)
    for name in arguments.parse_args().names or [*TERMINALS, "report"]:
        print(make(name).relative_to(ROOT))


if __name__ == "__main__":
    main()
