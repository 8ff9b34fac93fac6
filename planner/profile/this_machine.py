"""A few real steps of a model on this machine, timed and kept, so that its time is no guess."""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from ..errors import GpuplanError
from ..files import get_cache_folder, write_atomically
from ..records import Frozen, from_plain, to_plain
from .background_load import OTHERS_SHARE
from .machine import read_processor_name

if TYPE_CHECKING:
    from ..offers.rows import Accelerator
    from ..predict.from_profile.predictor import ProfileRow
    from ..profile_schema import LoadRecord
    from ..workload.model import Workload
    from ..workload.options import WorkloadOptions

PREPARE_S = 60.0  # most time to import, build and compile [s]
MEASURE_S = 10.0  # most time of the steps [s]
LONGEST_STEP_S = 5.0  # a step that takes longer is not waited for [s]
MEMORY_SHARE = 0.8  # of what is available, up to which weights are made [-]
LOOK_S = 0.3  # of the processor, to tell whether it is quiet [s]
SPREAD = 1.1  # factor from one run of the same steps to another on a CPU [-]
RULES: Mapping[str, Any] = {  # changes of `MeasurementRules`
    "window_s": 0.2, "settle_windows": 4, "settle_within": 0.05, "warm_up_s": 1.5, "width": 0.05, "least_s": 1.0,
    "most_s": 4.0,
}  # fmt: skip


class StepHere(Frozen):
    """Time of a step on this machine."""

    day: str  # when it was measured
    took_s: float  # time that measuring took [s]
    step_s: float | None = None  # median; None where no step ended, or none was run [s]
    # low_s, high_s: range of 80 % of the windows, at least that from one run to another [s]
    low_s: float | None = None
    high_s: float | None = None
    least_s: float | None = None  # time that a step takes at least; None where it is known, or nothing is [s]
    others_share: float = 0.0  # share of the processor that others used meanwhile [-]

    @property
    def is_due(self) -> bool:
        """Whether to measure again: on another day if nothing was learned, or once a busy machine is quiet."""
        if self.step_s is None and self.least_s is None:
            return self.day != get_day()
        return self.others_share >= OTHERS_SHARE and measure_others_share() < OTHERS_SHARE


def measure_others_share() -> float:
    """Return the share of the processor in use while this process sleeps for a moment [-]."""
    import psutil

    return float(psutil.cpu_percent(LOOK_S)) / 100.0


def get_day() -> str:
    """Return the date."""
    return datetime.now(UTC).date().isoformat()


def _find_path(workload: Workload, accelerator: Accelerator) -> Path:
    """Return the file of a step on this machine, named by the digest of both."""
    facts = {
        "step": [
            workload.batch_size, workload.precision, workload.compiled, workload.mode, workload.parameters,
            workload.trainable_parameters, workload.flops_per_step, len(workload.ops), to_plain(workload.memory),
        ],
        "machine": [read_processor_name(), os.cpu_count(), accelerator.name, accelerator.sms_or_cores],
        "versions": workload.versions,
    }  # fmt: skip
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return get_cache_folder("measured") / f"{digest}.json"


def load_step(workload: Workload, accelerator: Accelerator) -> StepHere | None:
    """Return the kept time of a step on this machine; None without one."""
    try:
        text = _find_path(workload, accelerator).read_bytes()
        return cast("StepHere", from_plain(StepHere, json.loads(text)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def build_row(step: StepHere | None, workload: Workload, accelerator: Accelerator) -> ProfileRow | None:
    """Return a measured step as a measurement; None where nothing is known of it."""
    time_s = None if step is None else step.step_s or step.least_s
    if step is None or time_s is None:
        return None
    from ..predict.from_profile.predictor import ProfileRow

    source = f"a few steps on this machine, {step.day}"
    if step.others_share >= OTHERS_SHARE:
        source += f", of which others used {step.others_share:.0%}"
    return ProfileRow(
        workload=replace(workload, further=()),
        accelerator=accelerator.name,
        devices=1,
        step_s=time_s,
        low_s=step.low_s,
        high_s=step.high_s,
        source=source,
        is_least=step.step_s is None,
    )


def measure_step(
    model: str,
    workload: Workload,
    accelerator: Accelerator,
    *,
    options: WorkloadOptions,
    argv: Sequence[str],
    tell: Callable[[str], None],
) -> StepHere | None:
    """Run a few steps of a model on this machine, which has `accelerator`; keep their time and return it.

    None where the weights do not fit beside what runs, or the backend is not installed. `workload` is the longest
    phase of what was traced with `options` and `argv`; `tell` is called with one line on the progress.
    """
    from .windows import MeasurementRules

    if not _fits(workload) or find_spec(workload.backend) is None:
        return None
    began_s, day = time.monotonic(), get_day()
    request = {
        "reference": model,
        "base": str(Path.cwd()),
        "options": replace(options, fit_call=workload.fit_call).to_json(),
        "argv": list(argv),
        "backend": workload.backend,
        "device": "cpu" if accelerator.kind == "cpu" else "gpu",
        "data": "synthetic",
        "brief": True,
        "wait": True,
        "pipeline": False,
        "rules": to_plain(MeasurementRules(**RULES)),
    }
    tell("timing steps here")
    steps_s, load = _run(request, options, tell)
    share = load["other_share"] if load else 0.0
    found = StepHere(day=day, took_s=time.monotonic() - began_s, others_share=share)
    if steps_s:
        middle_s, ordered = statistics.median(steps_s), sorted(steps_s)
        tail = len(ordered) // 10
        low_s, high_s = min(ordered[tail], middle_s / SPREAD), max(ordered[-1 - tail], middle_s * SPREAD)
        found = replace(found, step_s=middle_s, low_s=low_s, high_s=high_s)
    elif steps_s is not None:
        found = replace(found, least_s=LONGEST_STEP_S)
    with suppress(OSError):  # where the folder cannot be written, it is measured again next time
        path = _find_path(workload, accelerator)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(to_plain(found)))
    return found


def _fits(workload: Workload) -> bool:
    """Return whether weights, gradients and activations fit into the available memory beside what runs."""
    import psutil

    available_bytes: int = psutil.virtual_memory().available
    return workload.memory.total_bytes <= MEMORY_SHARE * available_bytes


def _run(
    request: Mapping[str, Any], options: WorkloadOptions, tell: Callable[[str], None]
) -> tuple[list[float] | None, LoadRecord | None]:
    """Return the times of windows of steps [s], and the use of the processor meanwhile.

    The times are empty where no step ended in time, None where none was begun.
    """
    from .measuring_process import MeasuringProcess

    times: dict[Literal["warm", "window"], list[float]] = {"warm": [], "window": []}

    def listen(message: dict[str, Any]) -> None:
        if message["event"] in ("warm", "window"):
            step_s = times[message["event"]]
            step_s.append(message["step_s"])
            tell(f"timing steps here, {1e3 * step_s[-1]:,.0f} ms each")

    process = MeasuringProcess(request, listen, options.script, limit_s=PREPARE_S)
    try:
        process.run(until="prepared")
        if process.result.message is not None:
            return None, None
        process.start(limit_s=MEASURE_S)
        result = process.run()
    except GpuplanError:
        return None, None
    finally:
        process.stop()
    steps_s = times["window"] or times["warm"][1:] or times["warm"]
    return steps_s if steps_s or result.is_late else None, result.load
