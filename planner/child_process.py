"""Child process: a request, messages back, limits of time and memory, and an end that leaves nothing.

`python -m MODULE FOLDER` reads its request from the folder and appends its messages to a file there, one JSON
object per line: they outlive it, however it ends. Further requests come by its stdin, with which it ends. A byte
in a FIFO tells the parent of each message: to look for them again and again takes a tenth of a trace's time.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, NoReturn

from .units import GIB

REQUEST, MESSAGES, BELL = "request.json", "messages.jsonl", "bell"
PAUSE_S = 0.1  # between looks at the limits [s]
SECONDS_TO_STOP = 3.0
STDIN, STDERR = 0, 2
KEPT_BYTES = 2**16  # of the output
DRAIN_S = 0.5  # a process that outlives the child may hold its output [s]


class ChildLimitError(Exception):
    """A child exceeded its limit of time, or of `memory`."""

    def __init__(self, message: str, *, memory: bool) -> None:
        super().__init__(message)
        self.memory = memory


class ChildProcess:
    """A process in its own session, so that its descendants end with it, and a temporary folder of both.

    `returncode` of `process` is negative where a signal ended it.
    """

    def __init__(
        self,
        module: str,
        request: Mapping[str, Any],
        *,
        build_environment: Callable[[Path], Mapping[str, str]],
        shows_output: bool = False,
        limit_s: float | None = None,
        limit_bytes: int | None = None,
    ) -> None:
        """Start the process that runs a module, which must use `Parent`; call `stop` at the end.

        Args:
            build_environment: Function from the temporary folder to the environment of the process.
            shows_output: Whether its output goes to standard error, instead of being kept.
            limit_s, limit_bytes: Limits of time and resident memory; None for no limit.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="gpuplan-")
        self.folder = Path(self._folder.name)
        (self.folder / REQUEST).write_text(json.dumps(request), encoding="utf-8")
        self._messages = (self.folder / MESSAGES).open("a+b")
        self._messages.seek(0)
        os.mkfifo(self.folder / BELL)
        self._bell = _open_bell(self.folder)
        self.limit_bytes = limit_bytes
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(self.folder)],
            env=dict(build_environment(self.folder)),
            stdin=subprocess.PIPE,
            stdout=STDERR if shows_output else subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.output = ChildOutput(self.process.stdout)
        self._over = threading.Event()
        self._reaper = threading.Thread(target=self._reap, daemon=True)
        self._reaper.start()
        self.set_limit(limit_s)

    def _reap(self) -> None:
        self.process.wait()
        self._over.set()
        self._bell.write(b"\n")

    def set_limit(self, limit_s: float | None) -> None:
        """Set the time limit from now on; None for no limit [s]."""
        self.limit_s, self.began_s = limit_s, time.monotonic()

    def receive(self) -> dict[str, Any] | None:
        """Wait for the next message; None once the process has ended.

        Raises:
            ChildLimitError: The process exceeded a limit.
        """
        while True:
            is_over = self._over.is_set()
            start = self._messages.tell()
            line = self._messages.readline()
            if line.endswith(b"\n"):
                message: dict[str, Any] = json.loads(line)
                return message
            self._messages.seek(start)
            if is_over:
                return None
            if select.select([self._bell], [], [], PAUSE_S)[0]:
                self._bell.read(KEPT_BYTES)
            if not self._over.is_set():
                self.check()

    def check(self) -> None:
        """Raise ChildLimitError at a limit."""
        if self.limit_s is not None and time.monotonic() - self.began_s >= self.limit_s:
            raise ChildLimitError(f"not ended within {self.limit_s:.0f} s", memory=False)
        if self.limit_bytes is not None and (own_bytes := self.read_resident_bytes()) > self.limit_bytes:
            most = f"{self.limit_bytes / GIB:.1f} allowed"
            raise ChildLimitError(f"{own_bytes / GIB:.1f} GiB of host memory, more than {most}", memory=True)

    def read_resident_bytes(self) -> int:
        """Return the resident memory of the process; 0 once it has ended [bytes]."""
        import psutil

        with suppress(psutil.Error):
            return int(psutil.Process(self.process.pid).memory_info().rss)
        return 0

    def ask(self, request: Any = None) -> bool:
        """Send another request; return whether the process runs."""
        if self.process.stdin is None or self._over.is_set():
            return False
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End the process and its descendants, which may be in another process group; may be called repeatedly."""
        others: list[Any] = []
        if not self._over.is_set():
            import psutil

            with suppress(psutil.Error):
                others = psutil.Process(self.process.pid).children(recursive=True)
        self._signal_group(signal.SIGTERM)
        self._over.wait(SECONDS_TO_STOP)
        self._signal_group(signal.SIGKILL)
        for one in others:
            with suppress(psutil.Error):
                one.kill()
        self._reaper.join()
        for stream in (self.process.stdin, self._messages, self._bell):
            with suppress(OSError):
                if stream is not None:
                    stream.close()
        self._folder.cleanup()

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


def _open_bell(folder: Path) -> IO[bytes]:
    """Open the FIFO to write or read what is there, without waiting for the other end."""
    return os.fdopen(os.open(folder / BELL, os.O_RDWR | os.O_NONBLOCK), "r+b", 0)


class ChildOutput:
    """Standard output and error of a process, of which the end is kept; None where they are shown."""

    def __init__(self, pipe: IO[str] | None) -> None:
        self._end, self._thread = b"", None
        if pipe is not None:
            self._thread = threading.Thread(target=self._read, args=(pipe,), daemon=True)
            self._thread.start()

    def _read(self, pipe: IO[str]) -> None:
        with pipe:
            while more := os.read(pipe.fileno(), KEPT_BYTES):
                self._end = (self._end + more)[-KEPT_BYTES:]

    def read_lines(self) -> list[str]:
        """Return the last lines, without empty ones; none where they are shown."""
        if self._thread is not None:
            self._thread.join(DRAIN_S)
        return [line for line in self._end.decode(errors="replace").splitlines() if line.strip()]


class Parent:
    """Child's side: the parent process, its request, messages to it, and the temporary folder of both."""

    def __init__(self, folder: str) -> None:
        """Read the request."""
        self.folder = Path(folder)
        self.request: dict[str, Any] = json.loads((self.folder / REQUEST).read_bytes())
        self._asked: SimpleQueue[Any] = SimpleQueue()
        self._bell = _open_bell(self.folder)

    def end_with(self) -> None:
        """End the process group from now on when the parent ends; the user's code sees an empty stdin."""
        lifeline = os.dup(STDIN)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, STDIN)
        os.close(nothing)
        threading.Thread(target=self._listen, args=(lifeline,), daemon=True).start()

    def _listen(self, lifeline: int) -> None:
        with open(lifeline, "rb", buffering=0) as lines:
            for line in lines:
                self._asked.put(json.loads(line))
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
        os._exit(1)

    def wait(self) -> Any:
        """Wait for another request, and return it."""
        return self._asked.get()

    def send(self, event: str, **message: Any) -> None:
        """Send a message."""
        line = json.dumps({"event": event, **message}) + "\n"
        with (self.folder / MESSAGES).open("ab", buffering=0) as file:
            file.write(line.encode())
        self._bell.write(b"\n")

    def finish(self, event: str, **message: Any) -> NoReturn:
        """Send the last message and end the process without returning to the user's code."""
        self.send(event, **message)
        self.end()

    def end(self) -> NoReturn:
        """End the process at once."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
