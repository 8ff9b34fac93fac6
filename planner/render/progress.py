"""Progress on stderr, on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from threading import Event, Thread, Timer

from ..errors import escape_controls

DELAY_S = 1.0
SILENCE_S, LONG_SILENCE_S = 1.5, 30.0


@contextmanager
def status(label: str, *, wanted: bool = True) -> Iterator[Callable[[str], None]]:
    """Show a spinner with a label after one second; yields a function that sets the current item.

    Nothing is shown, and rich is not imported, if stderr is not a terminal. Text printed meanwhile appears
    above the spinner, wrapped to the terminal; pass ``wanted=False`` if a program reads it.
    """
    if not wanted or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    spinner = Spinner("dots", Text(escape_controls(label)))
    shown = Live(  # which would redirect piped output to the terminal
        spinner, console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty()
    )
    timer = Timer(DELAY_S, shown.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda detail: spinner.update(text=Text(escape_controls(f"{label}: {detail}")))
    finally:
        timer.cancel()
        timer.join()
        shown.stop()


def say(line: str) -> None:
    """Print a line on stderr without control characters, above a spinner if there is one.

    `typer.echo` would go on in the spinner's line.
    """
    sys.stderr.write(f"{escape_controls(line)}\n")


@contextmanager
def bar(label: str, *, is_spoken: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar; yields a function that takes the current item, the number done and the total.

    When stderr is not a terminal, rich is not imported, and nothing is shown, or with ``is_spoken`` a line after
    every `SILENCE_S` on one item, and after every `LONG_SILENCE_S` once it has taken that long.
    """
    if not sys.stderr.isatty():
        with _spoken(label) if is_spoken else nullcontext(lambda *_: None) as note:
            yield note
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(label, total=None)
        yield lambda detail, done, total: shown.update(
            task, description=f"{label}: {detail}", completed=done, total=total
        )


@contextmanager
def _spoken(label: str) -> Iterator[Callable[[str, int, int], None]]:
    """Say the current item, the number done and its time in lines, so that no wait is silent."""
    item, began, ended = "", time.monotonic(), Event()

    def note(detail: str, done: int, total: int) -> None:
        nonlocal item, began
        item, began = f"{label}: {detail} ({done + 1} of {total})", time.monotonic()

    def speak() -> None:
        while not ended.wait(SILENCE_S if time.monotonic() - began < LONG_SILENCE_S else LONG_SILENCE_S):
            if item:
                say(f"{item}, {time.monotonic() - began:.0f} s")

    speaker = Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield note
    finally:
        ended.set()
        speaker.join()
