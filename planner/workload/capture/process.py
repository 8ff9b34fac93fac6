"""Process that runs the user's code: environment, time limit, output, and end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit, urlunsplit

from ...errors import GpuplanError, UsageError, escape_controls
from ..errors import BackendError, CaptureError, is_own_file, name_place, suggest_function
from ..options import DEFAULT_TIMEOUT_S, ScriptOptions, format_typed_duration
from .watch import ASK, STUCK, WHERE

_NAMES = frozenset({
    "COLUMNS", "FORCE_COLOR", "HOME", "LANG", "LANGUAGE", "LINES", "LOGNAME", "NO_COLOR", "PATH", "PWD", "SHELL",
    "TEMP", "TERM", "TMP", "TMPDIR", "TZ", "USER",
    "CONDA_DEFAULT_ENV", "CONDA_PREFIX", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE",
    "HF_DATASETS_CACHE", "HF_DATASETS_OFFLINE", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "KAGGLEHUB_CACHE",
    "MPLCONFIGDIR", "NLTK_DATA", "TFDS_DATA_DIR", "TFHUB_CACHE_DIR", "TF_CONFIG",
    "TOKENIZERS_PARALLELISM", "TRANSFORMERS_CACHE", "TRANSFORMERS_OFFLINE", "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME", "XDG_DATA_HOME", "GPUPLAN_CACHE_DIR", "GPUPLAN_DATA_DIR",
})  # fmt: skip
_PREFIXES = (
    "BLIS_", "CUBLAS_", "CUDA", "CUDNN_", "DYLD_", "GOMP_", "HIP_", "HSA_", "JAX_", "KERAS_", "KMP_", "LC_",
    "LIBTPU_", "MKL_", "NCCL_", "NUMBA_", "NUMEXPR_", "NVIDIA_", "OMP_", "OPENBLAS_", "PYTHON", "PYTORCH_",
    "ROCM_", "ROCR_", "TF_CPP_", "TF_CUDA_", "TF_CUDNN_", "TF_DATA_", "TF_DETERMINISTIC_", "TF_DISABLE_",
    "TF_ENABLE_", "TF_FORCE_", "TF_GPU_", "TF_NUM_", "TF_USE_", "TF_XLA_", "TORCH", "TPU_", "TRITON_", "VECLIB_",
    "XLA_",
)  # fmt: skip
_PROXIES = frozenset({"all_proxy", "ftp_proxy", "http_proxy", "https_proxy", "no_proxy"})
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
        if name in _NAMES or (name.startswith(_PREFIXES) and not _SECRET.search(name.upper()))
    }
    seen |= {
        name: _strip_credentials(environ[name]) for name in environ if name.lower() in _PROXIES
    } | _hide_credential_files(empty)
    for name in variables:
        seen.pop(name, None)
        if name in environ:
            seen[name] = environ[name]
    return seen


def require_variables(variables: tuple[str, ...], *, environ: Mapping[str, str] = os.environ) -> None:
    """Raise UsageError for a variable to pass that is neither set nor defined by gpuplan."""
    for name in variables:
        if name not in environ and name not in _hide_credential_files(Path()):
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


def _hide_credential_files(empty: Path) -> dict[str, str]:
    """Return variables that keep SDKs from credential files and metadata servers."""
    folder, nothing = str(empty), os.devnull
    return {
        "AWS_CONFIG_FILE": nothing,
        "AWS_SHARED_CREDENTIALS_FILE": nothing,
        "AWS_EC2_METADATA_DISABLED": "true",
        "CLOUDSDK_CONFIG": folder,
        "BOTO_CONFIG": nothing,
        "NO_GCE_CHECK": "true",
        "AZURE_CONFIG_DIR": folder,
        "DOCKER_CONFIG": folder,
        "KUBECONFIG": nothing,
        "NETRC": nothing,
        "KAGGLE_CONFIG_DIR": folder,
        "HF_TOKEN_PATH": str(empty / "token"),
        "WANDB_MODE": "disabled",  # it would prompt for a key
    }


SHOWN_AFTER_S = 15.0
REFRESH_S = 2.0
SHORTEST_PAUSE_S = 0.05
START_TIMEOUT_S = DEFAULT_TIMEOUT_S  # limit for loading Python and Keras
STALE_S = 1.0  # age of a report beyond which C code is assumed to hold the interpreter's lock
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
            self._read_where()
        return self._begun_s

    def check(self) -> None:
        """Report the script's position if due; ScriptTimeoutError at a time limit."""
        now_s, begun_s = time.monotonic(), self._begun()
        if begun_s is None and now_s - self._started_s >= START_TIMEOUT_S:
            raise self._build_start_error()
        if begun_s is not None and now_s - begun_s >= self._terms.timeout_s:
            raise self._build_timeout_error()
        gone_s = now_s - self._started_s
        if gone_s >= SHOWN_AFTER_S and now_s - self._told_s >= REFRESH_S:
            self._told_s = now_s
            place = self.place()
            self._terms.tell(f"at {place} ({gone_s:.0f} s)" if place else f"{gone_s:.0f} s")

    def _build_start_error(self) -> ScriptTimeoutError:
        return ScriptTimeoutError(
            f"Keras was not loaded within {format_typed_duration(START_TIMEOUT_S)}, to run `{self._name}`",
            hint=f"`{sys.executable} -c 'import keras'` shows what it waits for",
        )

    def _build_timeout_error(self) -> ScriptTimeoutError:
        limit_s, place = self._terms.timeout_s, self.place()
        other = suggest_function(self._name.split("?", 1)[0])
        return ScriptTimeoutError(
            f"`{self._name}` took longer than {format_typed_duration(limit_s)} and was stopped"
            + (f"; it was at {place}" if place else ""),
            hint=f"`GPUPLAN_SCRIPT_TIMEOUT={format_typed_duration(LONGER * limit_s)}` gives it more time{other}",
        )

    def place(self) -> str:
        """Return the last known position in the user's files as `file, line N`; empty if unknown."""
        written_s = self._read_where()
        if time.time() - written_s > STALE_S:
            with suppress(OSError):
                self._at = self._request_position() or self._at
        return self._at

    def _read_where(self) -> float:
        """Read the child's report, and return its modification time [s]."""
        where = self._folder / WHERE
        with suppress(OSError, ValueError):  # missing, or being written
            report = json.loads(where.read_bytes())
            self._begun_s = self._begun_s or report["begun_s"]
            if report["file"]:
                self._at = name_place(report["file"], report["line"])
            return where.stat().st_mtime
        return time.time()

    def _request_position(self) -> str:
        """Return the position from the traceback that the process writes on a signal; empty without an answer."""
        stuck = self._folder / STUCK
        os.truncate(stuck, 0)
        self.process.send_signal(ASK)
        until_s = time.monotonic() + ANSWER_S
        while not stuck.stat().st_size and not self._over.wait(ANSWER_S / 10) and time.monotonic() < until_s:
            pass
        for file, line in _FRAME.findall(stuck.read_text(encoding="utf-8", errors="replace")):
            if is_own_file(file, self._own):
                return name_place(file, int(line))
        return ""

    def stop(self) -> None:
        """End the process and its descendants; may be called repeatedly."""
        others = self._find_descendants()
        self._signal_group(signal.SIGTERM)
        self._over.wait(SECONDS_TO_STOP)
        self._signal_group(signal.SIGKILL)
        for one in others:
            _kill(one)
        self._over.wait()
        with suppress(OSError):
            if self.process.stdin is not None:
                self.process.stdin.close()

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def _find_descendants(self) -> list[Any]:
        """Return its descendants, which may be in another process group."""
        if self._over.is_set():
            return []
        import psutil

        with suppress(psutil.Error):
            return list(psutil.Process(self.process.pid).children(recursive=True))
        return []


def _kill(process: Any) -> None:
    import psutil

    with suppress(psutil.Error):
        process.kill()


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
