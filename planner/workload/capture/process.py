"""Process that runs the user's code: environment, time limit, output, and end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit, urlunsplit

from ...errors import GpuplanError, UsageError, escape_controls
from ..errors import BackendError, CaptureError, is_own_file, name_place, suggest_function
from ..options import DEFAULT_TIMEOUT_S, ScriptOptions, format_typed_duration
from .watch import ASK, BEGUN, STACK

_VARIABLES = tomllib.loads(Path(__file__).with_name("environment.toml").read_text(encoding="utf-8"))
# Names withheld among the variables that are passed because of their prefix.
_SECRET = re.compile(r"TOKEN|SECRET|PASS(WORD|WD|PHRASE)?(_|$)|CREDENTIAL|(^|_)(API)?KEYS?(_|$)|(^|_)AUTH(_|$)")


def build_script_environment(
    *, variables: tuple[str, ...] = (), empty: Path, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Build the environment of the user's code.

    Args:
        variables: Additional variables to pass unchanged, set or not (see `require_variables`).
        empty: Empty folder in which SDKs look for credentials.
        environ: Environment of this process.
    """
    seen = {
        name: value
        for name, value in environ.items()
        if name in _VARIABLES["names"]
        or (name.startswith(tuple(_VARIABLES["prefixes"])) and not _SECRET.search(name.upper()))
    }
    proxies = (name for name in environ if name.lower() in _VARIABLES["proxies"])
    seen |= {name: _strip_credentials(environ[name]) for name in proxies}
    seen |= {name: value.format(empty=empty, null=os.devnull) for name, value in _VARIABLES["set"].items()}
    for name in variables:
        seen.pop(name, None)
        if name in environ:
            seen[name] = environ[name]
    return seen


def require_variables(variables: tuple[str, ...], *, environ: Mapping[str, str] = os.environ) -> None:
    """Raise UsageError for a variable to pass that is neither set nor defined by gpuplan."""
    for name in variables:
        if name not in environ and name not in _VARIABLES["set"]:
            raise UsageError(
                f"script_env: the variable `{name}` is not set",
                hint=f"set it first, as in `export {name.partition('=')[0]}=VALUE`, and give its name alone",
            )


def _strip_credentials(proxy: str) -> str:
    """Return a proxy's address without user and password.

    Example:
        >>> _strip_credentials("http://user:pw@proxy.example:3128"), _strip_credentials("user:pw@proxy:3128")
        ('http://proxy.example:3128', 'proxy:3128')
    """
    if "@" not in proxy:
        return proxy
    if "://" not in proxy:
        return proxy.rpartition("@")[2]
    parts = urlsplit(proxy)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


SHOWN_AFTER_S = 15.0
REFRESH_S = 2.0
SHORTEST_PAUSE_S = 0.05
START_TIMEOUT_S = DEFAULT_TIMEOUT_S  # limit for loading Python and Keras
ANSWER_S = 0.5
ANSWERED_S = 0.01  # between looks for an answer [s]
SECONDS_TO_STOP = 3.0
LONGER = 3  # ratio of the time limit suggested in the hint to the exceeded one [-]
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in ', re.MULTILINE)


class ScriptTimeoutError(CaptureError):
    """The user's code exceeded its time limit and was stopped. Exit code 1."""


def build_process_environment(terms: ScriptOptions, folder: Path) -> dict[str, str]:
    """Build the environment of a process that runs the user's code.

    `folder`, which ends with the process, gets an empty one for credentials and one for temporary files: a process
    that is stopped removes none of its own, and TensorFlow writes one for each traced function.
    """
    empty, temporary = folder / "no-credentials", folder / "tmp"
    for one in (empty, temporary):
        one.mkdir(exist_ok=True)
    environment = build_script_environment(variables=terms.variables, empty=empty)
    environment.setdefault("TFHUB_CACHE_DIR", os.path.join(tempfile.gettempdir(), "tfhub_modules"))  # its default
    return environment | ({} if "TMPDIR" in terms.variables else {"TMPDIR": str(temporary)})


class ScriptProcess:
    """A process that runs the user's code in its own session, so that its descendants end with it."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[Path],
        *,
        name: str,
        own: Path,
        terms: ScriptOptions,
        environment: dict[str, str],
        stdout: int,
        stderr: int | IO[Any],
    ) -> None:
        """Start the process; call `wait`, or `check` repeatedly, then `stop`.

        Args:
            module, arguments: Module to run, which must use `capture.watch`, and its files, first the request, in
                whose folder the child reports.
            name, own: MODEL reference, for messages, and folder of the user's own files.
            terms: Time limit and progress callback.
            environment, stdout, stderr: As for `subprocess.Popen`; see `build_process_environment`.
        """
        self._name, self._own, self._terms = name, str(own), terms
        self._folder = arguments[0].parent
        self._started_s = self._told_s = time.monotonic()
        self._begun_s: float | None = None
        self._at = ""
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *map(str, arguments)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
        self._over = threading.Event()
        threading.Thread(target=self._reap, daemon=True).start()

    def _reap(self) -> None:
        self.process.wait()
        self._over.set()

    def wait(self) -> int:
        """Wait for the end of the process and return its exit code; ScriptTimeoutError at the time limit."""
        while not self._over.wait(self._pause_s()):
            self.check()
        return self.process.returncode

    def wait_for(self, path: Path) -> bool:
        """Wait for a file that the process writes at once; return whether it did so before its end.

        Raises:
            ScriptTimeoutError: The time limit.
        """
        while not path.exists():
            if self._over.wait(ANSWERED_S):
                return path.exists()
            self.check()
        return True

    def ask(self) -> bool:
        """Tell the process of another request, which has as much time as the first; return whether it runs."""
        self._started_s = self._told_s = time.monotonic()
        self._begun_s = self._started_s
        if self.process.stdin is None or self._over.is_set():
            return False
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except OSError:
            return False
        return True

    def _pause_s(self) -> float:
        """Return the time until the next check [s]."""
        now_s = time.monotonic()
        left_s = self._terms.timeout_s - (now_s - (self._begun() or now_s))
        shown_in_s = self._started_s + SHOWN_AFTER_S - now_s
        return max(SHORTEST_PAUSE_S, min(left_s, shown_in_s if shown_in_s > 0 else REFRESH_S))

    def _begun(self) -> float | None:
        """Return the start of the user's code on the monotonic clock [s]; None before it."""
        if self._begun_s is None:
            with suppress(OSError, ValueError):  # missing, or being written
                self._begun_s = float((self._folder / BEGUN).read_text())
        return self._begun_s

    def check(self) -> None:
        """Report the script's position if due; ScriptTimeoutError at a time limit."""
        now_s, begun_s = time.monotonic(), self._begun()
        if begun_s is None and now_s - self._started_s >= START_TIMEOUT_S:
            raise ScriptTimeoutError(
                f"Keras was not loaded within {format_typed_duration(START_TIMEOUT_S)}, to run `{self._name}`",
                hint=f"`{sys.executable} -c 'import keras'` shows what it waits for",
            )
        if begun_s is not None and now_s - begun_s >= self._terms.timeout_s:
            raise self._build_timeout_error()
        gone_s = now_s - self._started_s
        if gone_s >= SHOWN_AFTER_S and now_s - self._told_s >= REFRESH_S:
            self._told_s = now_s
            place = self.place()
            self._terms.tell(f"at {place} ({gone_s:.0f} s)" if place else f"{gone_s:.0f} s")

    def _build_timeout_error(self) -> ScriptTimeoutError:
        limit_s, place = self._terms.timeout_s, self.place()
        other = suggest_function(self._name.split("?", 1)[0])
        return ScriptTimeoutError(
            f"`{self._name}` took longer than {format_typed_duration(limit_s)} and was stopped"
            + (f"; it was at {place}" if place else ""),
            hint=f"`GPUPLAN_SCRIPT_TIMEOUT={format_typed_duration(LONGER * limit_s)}` gives it more time{other}",
        )

    def place(self) -> str:
        """Return the position in the user's files as `file, line N`, else the last known one; empty if unknown."""
        with suppress(OSError):
            self._at = self._request_position() or self._at
        return self._at

    def _request_position(self) -> str:
        """Return the position by the traceback that the process writes on a signal; empty without an answer."""
        stack = self._folder / STACK
        os.truncate(stack, 0)
        self.process.send_signal(ASK)
        until_s = time.monotonic() + ANSWER_S
        while not stack.stat().st_size and not self._over.wait(ANSWERED_S) and time.monotonic() < until_s:
            pass
        self._over.wait(ANSWERED_S)  # it writes in parts
        text = stack.read_bytes().decode("unicode_escape", errors="replace")
        places = ((file, int(line)) for file, line in _FRAME.findall(text) if is_own_file(file, self._own))
        return next((name_place(*place) for place in places), "")

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
        self._over.wait()
        with suppress(OSError):
            if self.process.stdin is not None:
                self.process.stdin.close()

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


# What TensorFlow and its libraries log as they start.
_LOGGED = re.compile(
    r"WARNING: All log messages before absl::|[IWE]\d{4} \d\d:\d\d:|\d{4}-\d\d-\d\d \d\d:.*: [IWE] "
    r"|To enable the following"
)
STDERR = 2
LINES_SHOWN, KEPT_BYTES, LONGEST_LINE = 20, 2**16, 500
DRAIN_S = 0.5  # a process that outlives the script may hold its output [s]

show_script_output: ContextVar[bool] = ContextVar("show_script_output", default=False)


class ScriptOutput:
    """Standard output and error of a process: shown, or its end kept."""

    def __init__(self, *, name: str) -> None:
        """Open a pipe, unless the output is shown; `name`: MODEL reference, for the heading."""
        self._name, self._end = name, b""
        self._thread: threading.Thread | None = None
        self.target = STDERR  # file descriptor for the process
        if not show_script_output.get():
            reader, self.target = os.pipe()
            self._thread = threading.Thread(target=self._read, args=(reader,), daemon=True)
            self._thread.start()

    def _read(self, reader: int) -> None:
        with open(reader, "rb", buffering=0) as pipe:
            while more := pipe.read(KEPT_BYTES):
                self._end = (self._end + more)[-KEPT_BYTES:]

    def close(self) -> None:
        """Leave the output to the process, once it has started."""
        if self.target != STDERR:
            os.close(self.target)
            self.target = STDERR

    @contextmanager
    def shown_on_failure(self) -> Iterator[None]:
        """Write the last lines to standard error when the block fails; another backend may still succeed."""
        try:
            yield
        except BackendError:
            raise
        except GpuplanError:
            self._show()
            raise

    def _show(self) -> None:
        if self._thread is None:
            return
        self._thread.join(DRAIN_S)
        lines = self._end.decode(errors="replace").splitlines()
        lines = [line for line in lines if line.strip() and not _LOGGED.match(line)]
        if lines:
            sys.stderr.write(f"last lines of the output of {self._name}:\n")
            sys.stderr.write("".join(f"  {_shorten(line)}\n" for line in lines[-LINES_SHOWN:]))


def _shorten(line: str) -> str:
    """Return the start of a line of the script, with what a terminal would obey escaped."""
    shown = escape_controls(line[: LONGEST_LINE + 1].rstrip())
    return shown if len(shown) <= LONGEST_LINE else f"{shown[:LONGEST_LINE]}…"
