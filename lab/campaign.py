"""`python -m lab campaign`: measure on the accelerator at hand what has no data, and keep every sample.

Needs Keras, NumPy, psutil, typer and JAX or PyTorch, and this checkout with `planner/` importable as `gpuplan`.
Rows go to one JSON file for each device and backend, saved after every row; run it again, and it goes on where it
stopped.
`lab/README.md` says what is measured, and how.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from gpuplan.errors import GpuplanError
from gpuplan.profile.machine import read_device_state
from gpuplan.profile.measuring_process import CHILD, ProcessResult, probe_device
from gpuplan.records import to_plain
from gpuplan.workload.options import WorkloadOptions

from .campaign_kernels import Kernel
from .campaign_plan import Device, Session, Unit, name_rows, plan
from .campaign_process import ROTATED_BYTES
from .campaign_round import MEASURE_RESERVE_S, RoundLimits, count_together, run_round
from .campaign_rows import MEASURED, ROOT, DeviceProfile, convert_timing, read_profiles, write_csv
from .campaign_steps import Step

BACKENDS = ("jax", "torch")
SHORTEST_ROUND_S = 20.0  # of the budget, below which none is started [s]
KERNELS_S = 240.0  # limit of a process that measures kernels [s]
DEVICE_FRACTION = "0.92"  # of the device's memory, that a process on JAX may take
NEWEST = "9.0"  # compute capability in a list that is made without the device


def campaign(
    *,
    profiles: Annotated[list[Path] | None, typer.Argument(help="With --to-csv: profiles to convert.")] = None,
    budget_s: Annotated[float, typer.Option("--budget-s", help="Stop in time [s].")] = 480.0,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder of the device profiles.")] = None,
    show: Annotated[bool, typer.Option("--list", help="Print what would be run, in order, and stop.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="One tiny kernel and step of each kind.")] = False,
    device: Annotated[Device, typer.Option("--device", help="cpu: only to try it out.")] = "gpu",
    only: Annotated[str | None, typer.Option("--only", metavar="REGEX", help="Rows of this name.")] = None,
    backend: Annotated[list[str] | None, typer.Option("--backend", help="Default: jax and torch.")] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run again what failed before.")] = False,
    to_csv: Annotated[Path | None, typer.Option("--to-csv", metavar="FILE", help="Convert.")] = None,
) -> None:
    """Measure kernels and Keras steps on the accelerator at hand; go on where the last campaign stopped."""
    try:
        if to_csv is not None:
            say(f"{write_csv(to_csv, read_profiles(profiles or []))} rows")
            return
        if device == "cpu" and output is None:
            raise ValueError("a CPU's rows do not belong among the accelerators': name a folder with --output")
        stop_at_s = time.monotonic() + budget_s
        absent = show and device == "gpu" and not Path("/dev/nvidia0").exists()
        found = {} if absent else find_backends(backend, device)
        session = start_session(found, device, output or MEASURED, stop_at_s=stop_at_s, quick=quick, retry=retry)
        capability = NEWEST if absent else next(iter(found.values())).get("compute_capability")
        todo = list(plan(list(found) or backend or BACKENDS, capability, session, only=only))
    except (GpuplanError, ValueError, OSError) as problem:
        say(f"error: {problem}")
        raise typer.Exit(2) from problem
    say(f"{sum(len(name_rows(unit)) for _, unit in todo)} rows to measure, {session.together} processes at a time")
    if show:
        for name, unit in todo:
            sys.stdout.writelines(f"{name}\t{label}\n" for label in name_rows(unit))
        return
    run(todo, session)
    raise typer.Exit(conclude(session))


def find_backends(wanted: Sequence[str] | None, device: Device) -> dict[str, dict[str, Any]]:
    """Return the facts of each backend that computes on the device, and say which do not."""
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = DEVICE_FRACTION
    # Of this campaign alone: a process that is stopped leaves half a file, and a full cache hides compile times.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="gpuplan-")
    names = wanted or [name for name in BACKENDS if find_spec(name)]
    found, blind = {}, []
    with ThreadPoolExecutor(len(BACKENDS)) as pool:
        for name, probe in [(name, pool.submit(probe_device, name, device)) for name in names]:
            try:
                found[name] = probe.result()
            except GpuplanError as error:
                blind.append(f"left out: {error}")
    if not found or (wanted and blind):
        raise ValueError("; ".join(blind) or "neither jax nor torch is installed")
    for line in blind:
        say(line)
    return found


def start_session(
    found: dict[str, dict[str, Any]], device: Device, folder: Path, *, stop_at_s: float, quick: bool, retry: bool
) -> Session:
    """Open the device profiles; processes share cores, host and device memory."""
    import psutil

    facts: dict[str, Any] = next(iter(found.values()), {"name": "", "memory_bytes": None})
    name = find_name(str(facts["name"]), device)
    together = count_together(device, os.cpu_count() or 1, facts["memory_bytes"])
    profiles = {
        backend: DeviceProfile(
            folder / DeviceProfile.name_file(name, device, backend), accelerator=name, backend=backend
        )
        for backend in found
    }
    python = os.environ.get("PYTHONPATH")  # the processes find `lab` from any folder
    os.environ["PYTHONPATH"] = f"{ROOT}{os.pathsep}{python}" if python else str(ROOT)
    return Session(
        platform=device,
        profiles=profiles,
        limits=RoundLimits(host_bytes=int(0.8 * psutil.virtual_memory().total / together)),
        together=together,
        stop_at_s=stop_at_s,
        quick=quick,
        retry=retry,
    )


def find_name(device_name: str, platform: Device) -> str:
    """Return the catalog's name of a device; where the catalog cannot be read (no pydantic), as its driver says.

    Example:
        >>> find_name("NVIDIA H100 80GB HBM3", "gpu"), find_name("NVIDIA H200", "gpu"), find_name("any", "cpu")
        ('H100-SXM', 'H200', 'CPU')
    """
    from gpuplan.profile.document import find_accelerator_name

    if platform == "cpu":
        return "CPU"
    try:
        known = find_accelerator_name({"platform": platform, "name": device_name})
    except ImportError:
        known = "H100-SXM" if "H100 80GB HBM3" in device_name else None
    return known or re.sub(r"^(NVIDIA|Tesla) ", "", device_name)


def run(todo: Sequence[tuple[str, Unit]], session: Session) -> None:
    """Run rounds until all is done or the budget is spent; what did not fit beside others is tried again alone."""
    waiting = list(todo)
    while waiting or session.cramped:
        alone = bool(session.cramped)
        source = session.cramped if alone else waiting
        size = 1 if alone else session.together
        batch, source[:] = source[:size], source[size:]
        batch = [(backend, unit) for backend, unit in batch if not session.is_settled(backend, unit)]
        if session.stop_at_s - time.monotonic() < SHORTEST_ROUND_S:
            say("the budget is spent; run it again to go on")
            return
        if batch:
            _Round(batch, session, may_retry=not alone and len(batch) > 1).run()


class _Round:
    """One round: requests, and rows from messages and results."""

    def __init__(self, batch: Sequence[tuple[str, Unit]], session: Session, *, may_retry: bool) -> None:
        self.batch, self.session, self.may_retry = batch, session, may_retry
        self.environments: dict[int, int] = {}  # place in the profile, by place in the batch
        self.at: dict[int, int] = {}  # kernel that a process is at
        self.states: dict[int, Any] = {}

    def run(self) -> None:
        """Run it, and keep each row as soon as it is there."""
        limits = self.session.limits
        if any(not isinstance(unit, Step) for _, unit in self.batch):
            limits = RoundLimits(prepare_s=limits.prepare_s, measure_s=KERNELS_S, host_bytes=limits.host_bytes)
        for place, result in run_round(
            [build_request(backend, unit, self.session) for backend, unit in self.batch],
            limits=limits,
            stop_at_s=self.session.stop_at_s,
            on_event=self._on_event,
        ):
            self._end(place, result)

    def _on_event(self, place: int, message: dict[str, Any]) -> None:
        backend, unit = self.batch[place]
        event = message["event"]
        if event == "ready":
            method = {"rules": to_plain(self.session.rules_of(unit)), "device_fraction": float(DEVICE_FRACTION)}
            profile = self.session.profiles[backend]
            self.environments[place] = profile.place_environment(message["environment"], method)
        elif event == "kernel":
            self.at[place] = message["place"]
        elif event == "timing":
            self.states[place] = read_device_state()
        elif event == "row" and not isinstance(unit, Step):
            self._keep_kernel(place, unit[message["place"]], message["row"])

    def _keep_kernel(self, place: int, kernel: Kernel, row: dict[str, Any]) -> None:
        backend, unit = self.batch[place]
        timing = row.pop("timing", None)
        times = convert_timing(timing, self.session.rules_of(unit)) if timing else {}
        row = {**row, **times, "state_while_timed": self.states.pop(place, None), **self._describe(place)}
        self.session.profiles[backend].add_kernel(kernel, row)
        tell(backend, name_rows((kernel,))[0], row)

    def _describe(self, place: int) -> dict[str, Any]:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        told = {"environment": self.environments.get(place), "prepared_together": len(self.batch)}
        return {**told, "measured_at": now}

    def _end(self, place: int, result: ProcessResult) -> None:
        """Keep the row of a step, or why a kernel ended its process; what the budget stopped is no row."""
        backend, unit = self.batch[place]
        reserve_s = SHORTEST_ROUND_S + MEASURE_RESERVE_S * len(self.batch)
        spent = result.is_late and self.session.stop_at_s - time.monotonic() < reserve_s
        status = "timed_out" if result.is_late else result.status
        if isinstance(unit, Step):
            if status == "measured" and not result.values.get("step"):
                status = "timed_out"
            row = self._build_step_row(place, unit, result, status)
            if spent:
                tell(backend, name_rows(unit)[0], {"status": "stopped"})
            elif status == "out_of_memory" and self.may_retry:
                self.session.cramped.append((backend, unit))
            else:
                self.session.profiles[backend].add_step(unit, row)
                tell(backend, name_rows(unit)[0], row)
        elif status != "measured" and not spent:
            row = {"status": status, "message": result.message}
            self._keep_kernel(place, unit[self.at.get(place, 0)], row)

    def _build_step_row(self, place: int, step: Step, result: ProcessResult, status: str) -> dict[str, Any]:
        row = {"compiled": step.is_compiled, "stack": "keras", "status": status, **self._describe(place)}
        values, rules = result.values, self.session.rules_of(step)
        if status != "measured":
            return {**row, "message": result.message}
        return {
            **row,
            "prepare": values["prepare"],
            **convert_timing(values["step"], rules),
            "fit": convert_timing(values["fit"], rules),
            "beside_steps_s": values["epoch"]["beside_steps_s"],
            "memory_peak_bytes": values["memory"]["device_peak_bytes"],
            "host_load": result.load,
            "state_while_timed": values.get("state_while_timed"),
            **({"kernels": values["kernels"]} if "kernels" in values else {}),
        }


def build_request(backend: str, unit: Unit, session: Session) -> tuple[str, dict[str, Any]]:
    """Return the module and the request of a process."""
    common = {
        "base": str(ROOT), "backend": backend, "device": session.platform,
        "rules": to_plain(session.rules_of(unit)),
    }  # fmt: skip
    on_gpu = session.platform == "gpu"
    if isinstance(unit, Step):
        options = WorkloadOptions(batch_size=unit.batch_size, precision=unit.precision, mode=_get_mode(unit))
        trainer: dict[str, Any] = {"steps_per_execution": unit.steps_per_execution}
        if unit.jit_compile is not None:
            trainer["jit_compile"] = unit.jit_compile
        return "lab.kernel_times" if on_gpu else CHILD, {
            **common, "reference": unit.model, "options": options.to_json(), "argv": [], "data": "synthetic",
            "pipeline": False, "trainer": trainer,
        }  # fmt: skip
    return "lab.campaign_process", {
        **common, "reference": "lab.campaign_process:main", "kernels": [kernel.to_json() for kernel in unit],
        "trace": on_gpu, "rotated_bytes": 0 if session.quick else ROTATED_BYTES,
    }  # fmt: skip


def _get_mode(step: Step) -> Literal["train", "infer"]:
    return "infer" if step.mode == "infer" else "train"


def conclude(session: Session) -> int:
    """Print one JSON object: files and counts; return 0 if anything was measured."""
    rows = [row for one in session.profiles.values() for row in (*one.data["rows"], *one.data["kernels"])]
    measured = [row for row in rows if row["status"] == "measured"]
    told = {
        "profiles": [str(one.path) for one in session.profiles.values()],
        "measured": len(measured),
        "not_measured": len(rows) - len(measured),
        "doubtful": sum(bool(row["findings"]) for row in measured),
    }
    sys.stdout.write(json.dumps(told) + "\n")
    return 0 if measured else 1


def tell(backend: str, name: str, row: dict[str, Any]) -> None:
    """Say what came of a row."""
    number = f"{row['step_ms']:10.4f} ms" if "step_ms" in row else row["status"]
    say(f"{backend:5} {name}  {number} {row.get('message') or ''}".rstrip())


def say(text: str) -> None:
    """Talk on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":  # where other commands of the lab cannot be imported
    typer.run(campaign)
