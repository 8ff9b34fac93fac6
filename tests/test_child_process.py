"""Child processes: real ones, that answer, are killed, and end with what they started."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from select import select

import psutil
import pytest
from gpuplan import child_process
from gpuplan.child_process import ChildLimitError, ChildProcess

START = "import os, subprocess, sys; from gpuplan.child_process import Parent\nparent = Parent(sys.argv[1])\n"
Start = Callable[..., ChildProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a child of this source, which is stopped at the end."""
    with ExitStack() as stack:

        def run(source: str, *, limit_s: float | None = None, **request: object) -> ChildProcess:
            (tmp_path / "fake_child.py").write_text(START + source)
            environment = os.environ | {"PYTHONPATH": str(tmp_path)}
            child = ChildProcess(
                "fake_child", request, build_environment=lambda folder: environment, limit_s=limit_s
            )
            stack.callback(child.stop)
            return child

        yield run


def test_requests_and_answers_alternate(start: Start) -> None:
    """Each number is doubled; the process ends with its stdin, and its folder is removed."""
    child = start(
        "parent.end_with()\nnumber = parent.request['number']\n"
        "while True:\n    parent.send('twice', number=2 * number)\n    number = parent.wait()\n",
        number=4,
    )

    assert child.receive() == {"event": "twice", "number": 8}
    assert child.ask(21)
    assert child.receive() == {"event": "twice", "number": 42}
    child.stop()
    assert not child.ask(1)
    assert not child.folder.exists()


def test_messages_outlive_a_process_that_is_killed(start: Start) -> None:
    """What it was writing when it ended is no message."""
    child = start(
        "parent.send('one')\nprint('bye', flush=True)\n"
        "open(parent.folder / 'messages.jsonl', 'a').write('{\"event\": \"tw')\nos.kill(os.getpid(), 9)\n"
    )

    assert child.receive() == {"event": "one"}
    assert child.receive() is None
    assert child.process.returncode == -9
    assert child.output.read_lines() == ["bye"]


def test_a_limit_and_the_end_of_what_it_started(start: Start) -> None:
    """A process in a session of its own ends too."""
    child = start(
        "other = subprocess.Popen(['sleep', '600'], start_new_session=True)\nparent.send('id', pid=other.pid)\n"
        "import time; time.sleep(600)\n",
        limit_s=60.0,
    )
    message = child.receive()
    assert message is not None
    child.set_limit(0.2)
    began_s = time.monotonic()
    with pytest.raises(ChildLimitError, match="not ended within 0 s"):
        child.receive()
    child.stop()

    assert time.monotonic() - began_s < 30
    running = {one.pid for one in psutil.process_iter(["status"]) if one.info["status"] != psutil.STATUS_ZOMBIE}
    assert os.getpid() in running
    assert message["pid"] not in running


def test_a_message_is_received_at_once(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer waits for the next look at the limits, which is minutes away."""
    child = start("parent.end_with()\nwhile True:\n    parent.send('answer')\n    parent.wait()\n")
    assert child.receive() == {"event": "answer"}
    rung = []

    def select_and_note(*given: object) -> object:
        found = select(*given)  # type: ignore[call-overload]
        rung.append(bool(found[0]))
        return found

    monkeypatch.setattr(child_process, "PAUSE_S", 300.0)
    monkeypatch.setattr(child_process.select, "select", select_and_note)
    for _ in range(20):
        child.ask()
        assert child.receive() == {"event": "answer"}

    assert rung
    assert all(rung)
