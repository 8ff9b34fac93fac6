"""Signs of life: on standard error, on a terminal, after a second, gone when it is over."""

from __future__ import annotations

import sys
from threading import Event

import pytest
from gpuplan.render import progress
from gpuplan.render.progress import say, status
from rich.live import Live

CURSOR_BACK = "\x1b[?25h"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Event:
    """No second is waited; the event tells that the spinner is there."""
    begun = Event()
    start = Live.start

    def started(live: Live, refresh: bool = False) -> None:
        start(live, True)
        begun.set()

    monkeypatch.setattr(progress, "DELAY_S", 0.0)
    monkeypatch.setattr(Live, "start", started)
    monkeypatch.setenv("TERM", "xterm")
    return begun


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error says that it is a terminal, standard output that it is a pipe."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


def test_it_says_what_goes_on_and_leaves_data_alone(
    impatient: Event, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is written to a pipe meanwhile gets there; markup in a name is text; the cursor comes back."""
    on_terminal(monkeypatch)
    with status("tracing [red]train.py[/red]") as tell:
        assert impatient.wait(60)
        tell("batch size 64")
        sys.stdout.write("data\n")
    captured = capsys.readouterr()

    assert captured.out == "data\n"
    assert "tracing [red]train.py[/red]" in captured.err
    assert captured.err.rindex(CURSOR_BACK) > captured.err.rindex("tracing")


def test_a_line_that_is_said_stands_above_the_spinner(
    impatient: Event, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The spinner's line is erased first, and drawn again below."""
    on_terminal(monkeypatch)
    with status("starting"):
        assert impatient.wait(60)
        say("an event")

    assert "\r\x1b[2Kan event\n" in capsys.readouterr().err


def test_an_interrupt_brings_the_cursor_back(
    impatient: Event, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C goes on to whoever handles it; the terminal is as it was."""
    on_terminal(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        _interrupted(impatient)
    assert CURSOR_BACK in capsys.readouterr().err


def _interrupted(begun: Event) -> None:
    with status("working"):
        assert begun.wait(60)
        raise KeyboardInterrupt


def test_what_takes_less_than_a_second_and_what_is_no_terminal_show_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No flicker; no control characters in a log."""
    with status("working") as tell:
        tell("no terminal")
    on_terminal(monkeypatch)
    with status("working"):
        pass
    assert "working" not in capsys.readouterr().err


def test_a_long_wait_without_a_terminal_is_said_in_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The item, its place and its time, at least every two seconds; nothing unless it is asked for."""
    assert progress.SILENCE_S < 2
    monkeypatch.setattr(progress, "SILENCE_S", 0.01)
    said = Event()
    monkeypatch.setattr(progress, "say", lambda line: (lines.append(line), said.set()))
    lines: list[str] = []
    with progress.bar("reading prices", is_spoken=True) as note:
        note("azure eastus", 2, 33)
        assert said.wait(60)
    with progress.bar("measuring") as note:
        note("a", 0, 1)

    assert lines[0].startswith("reading prices: azure eastus (3 of 33), ")
    assert capsys.readouterr().err == ""
