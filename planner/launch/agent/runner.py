"""Run a training script, unchanged, with `fit` wrapped: `python -m …runner FOLDER`, started by `supervise`.

On SIGTERM it saves at the end of the batch and exits with 75. When the supervisor dies, the operating system sends
SIGTERM (Linux), so that no training continues unsupervised.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import runpy
import signal
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from .checkpoint import LEAVE, ControlFlags, read_json, write_json
from .timing import StepClock, check_step_times

PR_SET_PDEATHSIG = 1


def main(folder: Path) -> None:
    """Run the script of a folder's `params.json`."""
    set_process(PR_SET_PDEATHSIG, signal.SIGTERM)  # elsewhere only the watchdog remains
    params = read_json(folder / "params.json")
    work = Path(params["work"])
    control = ControlFlags(every_s=params["checkpoint_every_s"])

    def report(clock: StepClock) -> None:
        with suppress(OSError):  # a full disk ends no training
            write_json(work / "steps.json", {"attempt": params["attempt"], **clock.to_json()})

    clock = StepClock(on_step=build_stop_loss(params, control), report=report)

    def leave(*_: object) -> None:
        control.leave = True
        if not control.in_fit:
            raise SystemExit(LEAVE)

    def wrap(_: ModuleType) -> None:
        from .resume import wrap_fit

        wrap_fit(work / "checkpoints", control=control, clock=clock)

    signal.signal(signal.SIGTERM, leave)
    choose_backend()
    sys.meta_path.insert(0, _AfterImport("keras", wrap))
    sys.argv = [params["script"], *params["arguments"]]
    sys.path.insert(0, str(Path(params["script"]).resolve().parent))
    try:
        runpy.run_path(params["script"], run_name="__main__")
    finally:
        report(clock)


def set_process(option: int, value: int) -> None:
    """Set a property of this process, on Linux: prctl(2)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def choose_backend() -> None:
    """Select an installed backend, unless the user has set one: Keras's default (TensorFlow) is often missing.

    `keras.json` does not count as the user's choice: Keras writes it on first import.
    """
    if os.environ.get("KERAS_BACKEND"):
        return
    configuration = Path(os.environ.get("KERAS_HOME", Path.home() / ".keras")) / "keras.json"
    try:
        wanted = json.loads(configuration.read_text(encoding="utf-8"))["backend"]
    except (OSError, ValueError, KeyError):
        wanted = "tensorflow"
    for name in (wanted, "jax", "tensorflow", "torch"):
        if importlib.util.find_spec(name):
            os.environ["KERAS_BACKEND"] = name
            return


class _AfterImport:
    """Import finder that runs a function once, after a module was imported."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name, self._then = name, then

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's spec, with the loader's last step extended."""
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def then(module: ModuleType) -> None:
            execute(module)
            self._then(module)

        spec.loader.exec_module = then  # type: ignore[method-assign]
        return spec


def build_stop_loss(params: dict[str, Any], control: ControlFlags) -> Callable[[list[float]], None]:
    """Return the function that compares the first steps with the plan, once enough of them are timed."""
    rule, planned = params["stop_loss"], params["step_s"]

    def check(times_s: list[float]) -> None:
        if planned is None or rule["action"] == "off" or len(times_s) != rule["steps"]:
            return
        low_s, high_s = planned["low"], planned["high"]
        verdict = check_step_times(times_s, low_s=low_s, high_s=high_s, factor=rule["factor"])
        stopped = bool(verdict) and rule["action"] == "stop" and statistics.median(times_s) > high_s
        write_json(Path(params["work"]) / "stop_loss.json", {"verdict": verdict, "stopped": stopped})
        if verdict:
            print(f"gpuplan: {verdict}{'; stopping' if stopped else ''}", file=sys.stderr, flush=True)  # noqa: T201
        control.leave = control.leave or stopped

    return check


if __name__ == "__main__":
    main(Path(sys.argv[1]))
