"""Process that runs the user's code: environment, time limit, position, output and errors."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from ...child_process import ChildProcess
from ...errors import GpuplanError, UsageError, escape_controls
from ..errors import BackendError, CaptureError, DeviceCountError, is_own_file, name_place, suggest_function
from ..options import DEFAULT_TIMEOUT_S, ScriptOptions, format_typed_duration
from ..reference import parse_reference

_VARIABLES = tomllib.loads(Path(__file__).with_name("environment.toml").read_text(encoding="utf-8"))
_CREDENTIALS = re.compile(r"^(\w[\w+.-]*://)?.*@")  # user and password in the address of a proxy
# Names withheld among the variables that are passed because of their prefix.
_SECRET = re.compile(r"TOKEN|SECRET|PASS(WORD|WD|PHRASE)?(_|$)|CREDENTIAL|(^|_)(API)?KEYS?(_|$)|(^|_)AUTH(_|$)")


def build_process_environment(
    variables: tuple[str, ...], folder: Path, *, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Build the environment of a process that runs the user's code; `variables` pass unchanged, set or not.

    `folder`, which ends with the process, gets an empty one, in which SDKs look for credentials, and one for
    temporary files: a process that is stopped removes none, and TensorFlow writes one for each traced function.
    """
    empty, temporary = folder / "no-credentials", folder / "tmp"
    for one in (empty, temporary):
        one.mkdir(exist_ok=True)
    seen = {
        name: value
        for name, value in environ.items()
        if name in _VARIABLES["names"]
        or (name.startswith(tuple(_VARIABLES["prefixes"])) and not _SECRET.search(name.upper()))
    }
    proxies = (name for name in environ if name.lower() in _VARIABLES["proxies"])
    seen |= {name: _CREDENTIALS.sub(r"\1", environ[name]) for name in proxies}
    seen |= {name: value.format(empty=empty, null=os.devnull) for name, value in _VARIABLES["set"].items()}
    seen["TMPDIR"] = str(temporary)
    for name in variables:
        seen.pop(name, None)
        if name in environ:
            seen[name] = environ[name]
    seen.setdefault("TFHUB_CACHE_DIR", os.path.join(tempfile.gettempdir(), "tfhub_modules"))  # its default
    return seen


def require_variables(variables: tuple[str, ...], *, environ: Mapping[str, str] = os.environ) -> None:
    """Raise UsageError for a variable to pass that is neither set nor defined by gpuplan."""
    for name in variables:
        if name not in environ and name not in _VARIABLES["set"]:
            hint = f"set it first, as in `export {name.partition('=')[0]}=VALUE`, and give its name alone"
            raise UsageError(f"script_env: the variable `{name}` is not set", hint=hint)


BEGUN, STACK = "begun.txt", "stack.txt"
ASK = signal.SIGURG  # ignored without a handler
SHOWN_AFTER_S = 15.0
REFRESH_S = 2.0
START_TIMEOUT_S = DEFAULT_TIMEOUT_S  # limit for loading Python and Keras
ANSWER_S = 0.5
ANSWERED_S = 0.01  # between looks for a traceback [s]
LONGER = 3  # ratio of the time limit suggested in the hint to the exceeded one [-]
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in ', re.MULTILINE)


class ScriptTimeoutError(CaptureError):
    """The user's code exceeded its time limit and was stopped. Exit code 1."""


class ScriptProcess(ChildProcess):
    """A process that runs the user's code, in which `answer_with_position` is called, for a limited time."""

    runs_script = True  # whether the user's code runs, so that its limit holds

    def __init__(self, module: str, request: Mapping[str, Any], *, terms: ScriptOptions, **how: Any) -> None:
        """Start the process, by a request with a `reference` and its `base`; the rest is as for `ChildProcess`."""
        self._name, self._terms = request["reference"], terms
        base = Path(request["base"])
        self._own = str(parse_reference(self._name, base=base).folder(base))
        self._started_s = self._told_s = time.monotonic()
        self._begun_s: float | None = None  # when the user's code began; None before it
        self._at = ""
        super().__init__(module, request, **how)

    def ask(self, request: Any = None) -> bool:
        """Send another request, which has as much time as the first; return whether the process runs."""
        self._started_s = self._told_s = self._begun_s = time.monotonic()
        return super().ask(request)

    def check(self) -> None:
        """Report the script's position if due; ScriptTimeoutError at a time limit of the user's code."""
        super().check()
        if not self.runs_script:
            return
        if self._begun_s is None:
            with suppress(OSError, ValueError):  # missing, or being written
                self._begun_s = float((self.folder / BEGUN).read_text())
        now_s, limit_s = time.monotonic(), self._terms.timeout_s
        if self._begun_s is None and now_s - self._started_s >= START_TIMEOUT_S:
            late = f"Keras was not loaded within {format_typed_duration(START_TIMEOUT_S)}, to run `{self._name}`"
            hint = f"`{sys.executable} -c 'import keras'` shows what it waits for"
            raise ScriptTimeoutError(late, hint=hint)
        if self._begun_s is not None and now_s - self._begun_s >= limit_s:
            place, longer = self.place(), format_typed_duration(LONGER * limit_s)
            at, other = f"; it was at {place}" if place else "", suggest_function(self._name.split("?", 1)[0])
            raise ScriptTimeoutError(
                f"`{self._name}` took longer than {format_typed_duration(limit_s)} and was stopped{at}",
                hint=f"`GPUPLAN_SCRIPT_TIMEOUT={longer}` gives it more time{other}",
            )
        gone_s = now_s - self._started_s
        if gone_s >= SHOWN_AFTER_S and now_s - self._told_s >= REFRESH_S:
            self._told_s = now_s
            place = self.place()
            self._terms.tell(f"at {place} ({gone_s:.0f} s)" if place else f"{gone_s:.0f} s")

    def place(self) -> str:
        """Return the position in the user's files, `file, line N`, else the last known one; empty if unknown."""
        stack, until_s = self.folder / STACK, time.monotonic() + ANSWER_S
        with suppress(OSError):
            os.truncate(stack, 0)
            self.process.send_signal(ASK)  # on which it writes its traceback
            while not stack.stat().st_size and not self._over.wait(ANSWERED_S) and time.monotonic() < until_s:
                pass
            self._over.wait(ANSWERED_S)  # it writes in parts
            text = stack.read_bytes().decode("unicode_escape", errors="replace")
            places = ((file, int(line)) for file, line in _FRAME.findall(text) if is_own_file(file, self._own))
            self._at = next((name_place(*place) for place in places), self._at)
        return self._at

    @contextmanager
    def output_on_failure(self) -> Iterator[None]:
        """Write the last lines to standard error when the block fails; another backend may still succeed."""
        try:
            yield
        except BackendError:
            raise
        except GpuplanError:
            write_last_lines(self.output.read_lines(), name=self._name)
            raise


def answer_with_position(folder: Path) -> None:
    """Note that the user's code begins, and write the main thread's traceback whenever the parent asks for it."""
    stack = os.open(folder / STACK, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    # also while C code holds the interpreter's lock
    faulthandler.register(ASK, file=stack, all_threads=False)
    (folder / BEGUN).write_text(str(time.monotonic()))  # the same clock in all processes of a machine


# What TensorFlow and its libraries log as they start.
_LOGGED = re.compile(
    r"WARNING: All log messages before absl::|[IWE]\d{4} \d\d:\d\d:|\d{4}-\d\d-\d\d \d\d:.*: [IWE] "
    r"|To enable the following"
)
LINES_SHOWN, LONGEST_LINE = 20, 500

show_script_output: ContextVar[bool] = ContextVar("show_script_output", default=False)


def write_last_lines(lines: Sequence[str], *, name: str) -> None:
    """Write the last lines of a script's output to standard error."""
    said = [line for line in lines if not _LOGGED.match(line)][-LINES_SHOWN:]
    if said:
        sys.stderr.write(f"last lines of the output of {name}:\n")
    for line in said:
        shown = escape_controls(line[: LONGEST_LINE + 1].rstrip())  # what a terminal would obey
        sys.stderr.write(f"  {shown[:LONGEST_LINE]}{'…' * (len(shown) > LONGEST_LINE)}\n")


_KINDS = (UsageError, DeviceCountError, BackendError, CaptureError)
_DETAILS = ("backend", "reached", "devices", "takes_all")  # of the errors


def describe_for_parent(error: GpuplanError) -> dict[str, Any]:
    """Return the message on an error that ends a child."""
    kind = next((one for one in _KINDS if isinstance(error, one)), CaptureError)
    details = {name: value for name, value in vars(error).items() if name in _DETAILS}
    text = {"message": str(error), "hint": error.hint}
    return {"event": "failed", "kind": kind.__name__, **text, "details": details}


def rebuild_error(message: Mapping[str, Any]) -> GpuplanError | None:
    """Return the error that a child described; None for a message on anything else."""
    kind = next((one for one in _KINDS if one.__name__ == message.get("kind")), None)
    return kind and kind(message["message"], hint=message["hint"], **message["details"])
