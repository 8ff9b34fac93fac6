"""Predictions from profiles: measured on the profiled accelerator, corrected on other accelerators."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...offers.aliases import get_chip_name
from ...profile_schema import PROFILE_SCHEMA, ProfileDocument, RowRecord
from ...records import Frozen
from ...units import Interval
from ...workload.model import InputRate, Workload
from ..collectives import list_gradient_sums, scale_to_devices
from ..interconnect import UNKNOWN_HOST, HostSpec
from ..intervals import interval_around
from ..predictor import Predictor
from ..step_time import NoPrediction, StepTime, join_notes, repeat_step
from .error_covariance import StepSummary
from .error_model import BatchProfile, ErrorModel, load_error_model, predict_from_profile

if TYPE_CHECKING:
    from ...offers.rows import Accelerator

SAME_WORK = 0.05  # largest difference of a sample's FLOPs (padding, the last batch) in the same work [-]
REPEATABLE = 0.03  # medians of repeated profiles lie within this of each other on a quiet machine [-]


class ProfileRow(Frozen):
    """A measured step."""

    workload: Workload
    accelerator: str
    devices: float
    step_s: float  # how long [s]
    # low_s, high_s: 95 % interval of the median; None when too little was measured [s]
    low_s: float | None
    high_s: float | None
    source: str
    # the step alone, where the step of `fit()` waited for its input; None otherwise [s]
    device_s: float | None = None
    loading: InputRate | None = None  # of the script's own data; None when it was not timed
    starved: bool = False  # whether the step waited for its input and the step alone was not timed (`StepTimer`)
    is_least: bool = False  # whether the step takes at least so long: it was not waited for

    @property
    def computing_s(self) -> float:
        """The step without the wait for its input, which another host would not wait as long for [s]."""
        return self.step_s if self.device_s is None else self.device_s


def read_profile_rows(document: ProfileDocument, *, source: str) -> tuple[ProfileRow, ...]:
    """Return the rows of a profile that were measured, traced, and measured on a known accelerator.

    Raises:
        UsageError: It is no such document.
    """
    try:
        if document["schema"] != PROFILE_SCHEMA:
            raise UsageError(
                f"`{source}` is no profile: its schema is `{document['schema']}`",
                hint="write one with `gpuplan profile train.py -o profile.json`",
            )
        workloads = [Workload.from_json(data) for data in document["workloads"]]
        return tuple(_iter_rows(document, workloads, source))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise UsageError(f"`{source}` is no profile: {error!r}", hint="write it with `gpuplan profile`") from error


def _iter_rows(document: ProfileDocument, workloads: Sequence[Workload], source: str) -> Iterator[ProfileRow]:
    for row in document["rows"]:
        index = row.get("workload")
        if row["status"] != "measured" or index is None:
            continue
        fit, step, accelerator = row["fit"], row.get("step"), document["accelerator"]
        if fit is None:
            raise ValueError("a measured row has no step time")
        if not fit["median_s"] or accelerator is None:
            continue
        yield ProfileRow(
            workload=workloads[index],
            accelerator=accelerator,
            devices=document["devices"],
            step_s=fit["median_s"],
            low_s=fit.get("low_s"),
            high_s=fit.get("high_s"),
            source=source,
            loading=_loading(row, document.get("environment")),
            device_s=step["median_s"] if step and row.get("limit") == "input" else None,
            starved=not step and row.get("limit") == "input",
        )


def _loading(row: RowRecord, environment: Mapping[str, Any] | None) -> InputRate | None:
    """Return the throughput of a row's input pipeline as the script has it; None if it was not timed."""
    pipeline = row.get("pipeline") or ()
    own = pipeline[0] if pipeline else None
    if own is None or not own["samples_per_s"]:
        return None
    host = (environment or {}).get("host") or {}
    cores, host_cores = float(own["cores"]), host.get("usable_cores") or host.get("logical_cores")
    return InputRate(
        kind="" if own["workers"] is None else "PyDataset",
        samples_per_s=own["samples_per_s"],
        cores=cores if host_cores is None else min(cores, host_cores),
        host_cores=host_cores,
        workers=own["workers"],
    )


def is_same_work(one: Workload, other: Workload) -> bool:
    """Return True if two workloads differ only in batch size and length of the run."""
    facts = ("mode", "precision", "compiled", "parameters", "trainable_parameters")
    if any(getattr(one, name) != getattr(other, name) for name in facts):
        return False
    a, b = (w.flops_per_step / w.batch_size for w in (one, other))
    return abs(a - b) <= SAME_WORK * max(a, b)


@dataclass(frozen=True, eq=False)
class ProfiledPredictor:
    """Predicts steps as `Predictor` does, and better where profiles of the same work are at hand.

    On the accelerator that was measured the step is `measured`, at another batch size by its fixed and per-sample
    parts. Elsewhere the model is corrected by what it was off by there, as far as held-out data says that errors
    carry over (see `ErrorModel`). This CPU corrects only other CPUs: no published set has both.
    """

    predictor: Predictor
    measurements: Sequence[ProfileRow]  # of any work, on any accelerator
    # this machine's CPU, which is what `CPU` means in a profile; None when it computes on a GPU
    own_cpu: Accelerator | None
    accelerators: Mapping[str, Accelerator]
    error_model: ErrorModel | None = None

    def step_time(
        self,
        workload: Workload,
        accelerator: Accelerator,
        *,
        devices: float = 1,
        machine: HostSpec = UNKNOWN_HOST,
        hosts: int = 1,
    ) -> StepTime | NoPrediction:
        """Return the time of one step, every device working on ``workload.batch_size`` samples."""
        mine = [m for m in self.measurements if not m.is_least and is_same_work(m.workload, workload)]
        plain = self.predictor.step_time(workload, accelerator, devices=devices, machine=machine, hosts=hosts)
        if isinstance(plain, StepTime) and accelerator.kind == "cpu":
            plain = self._correct_cpu(workload, accelerator, plain)
        if not mine or devices < 1 or isinstance(plain, NoPrediction):
            return plain
        alike = hosts == 1 and (accelerator.kind != "cpu" or accelerator == self.own_cpu)
        here = [m for m in mine if alike and (m.devices, m.accelerator) == (devices, accelerator.name)]
        if here:
            return _measured(workload, here, plain)
        if devices == 1:
            may_carry_over = plain.basis != "measured" and accelerator.kind != "cpu"
            single = [m for m in mine if m.devices == 1]
            return (self._carried_over(workload, accelerator, single) if may_carry_over else None) or plain
        one = self.step_time(workload, accelerator)
        if isinstance(one, NoPrediction):
            return one
        sums = list_gradient_sums(workload.memory.gradient_bytes, devices=devices)
        return scale_to_devices(one, sums, accelerator, devices=devices, machine=machine, hosts=hosts)

    @cached_property
    def _cpu_errors(self) -> tuple[tuple[ProfileRow, float], ...]:
        """Measurements of this machine's CPU with the logarithm of measured over modelled time."""
        own, found = self.own_cpu, []
        for m in self.measurements if own is not None else ():
            if own is not None and m.accelerator == own.name and not m.is_least:
                modelled = self.predictor.step_time(m.workload, own, look_up=False)
                if isinstance(modelled, StepTime):
                    found.append((m, math.log(m.computing_s / modelled.time_s.mid)))
        return tuple(found)

    def _correct_cpu(self, workload: Workload, accelerator: Accelerator, plain: StepTime) -> StepTime:
        """Return a step on a CPU, corrected by what the model is off by on this machine's for the same model.

        The ratio is taken over as it is, and the interval stays as wide as the model's.
        """
        if self.own_cpu is None:
            return plain
        least_s = 0.0
        if accelerator == self.own_cpu:
            least = (m.step_s for m in self.measurements if m.is_least and is_same_work(m.workload, workload))
            least_s = max(least, default=0.0)
        ratios = [ratio for m, ratio in self._cpu_errors if m.workload.parameters == workload.parameters]
        if not ratios:
            return _raise_to(plain, least_s)
        ratio = math.exp(sum(ratios) / len(ratios))
        return replace(
            repeat_step(plain, ratio),
            basis="modelled",
            note=join_notes(plain.note, f"corrected by {ratio:.1f}x, as measured on this machine"),
        )

    def _carried_over(
        self, workload: Workload, accelerator: Accelerator, mine: Sequence[ProfileRow]
    ) -> StepTime | None:
        known = [
            m for m in mine if m.accelerator in self.accelerators and m.accelerator != "CPU" and not m.starved
        ]
        target = self._step(workload, accelerator) if known else None
        pairs = [(m, self._step(m.workload, self.accelerators[m.accelerator])) for m in known]
        profiled = [(m, step) for m, step in pairs if step is not None]
        if target is None or not profiled:
            return None
        names = dict.fromkeys(m.accelerator for m, _ in profiled)
        return predict_from_profile(
            [step for _, step in profiled],
            [m.computing_s for m, _ in profiled],
            target=target,
            error_model=self.error_model or load_error_model(),
            note="; ".join(_profile([m for m, _ in profiled if m.accelerator == name]).note() for name in names),
        )

    def _step(self, workload: Workload, accelerator: Accelerator) -> StepSummary | None:
        """Return the modelled step, without any measurement, as the transfer law takes it."""
        modelled = self.predictor.step_time(workload, accelerator, look_up=False)
        if isinstance(modelled, NoPrediction):
            return None
        table = self.predictor.kernel_table(workload, accelerator)
        return StepSummary(
            work=f"profile {workload.parameters} {workload.mode} {workload.precision}",
            accelerator=get_chip_name(accelerator.name),
            batch_size=workload.batch_size,
            modelled_s=modelled.time_s.mid,
            parts_s=modelled.parts_s,
            launches=float(table.count.sum()),
            input_bytes=float(workload.memory.input_bytes),
        )


def _raise_to(step: StepTime, least_s: float) -> StepTime:
    """Return a step that takes at least a time [s], with as wide a range above it."""
    if step.time_s.low >= least_s:
        return step
    reach, middle_s = step.time_s.high / step.time_s.mid, max(step.time_s.mid, least_s)
    raised = repeat_step(step, middle_s / step.time_s.mid)
    note = join_notes(step.note, f"a step takes over {least_s:g} s on this machine")
    return replace(raised, time_s=Interval(low=least_s, mid=middle_s, high=middle_s * reach), note=note)


def _profile(measurements: Sequence[ProfileRow]) -> BatchProfile:
    """Return the steps of one accelerator; of a batch size that was measured often, the middle one."""
    by_size: dict[int, list[float]] = {}
    for m in measurements:
        by_size.setdefault(m.workload.batch_size, []).append(m.step_s)
    steps = tuple((size, sorted(times)[(len(times) - 1) // 2]) for size, times in sorted(by_size.items()))
    return BatchProfile(accelerator=measurements[0].accelerator, steps=steps)


def _measured(workload: Workload, here: Sequence[ProfileRow], plain: StepTime) -> StepTime:
    """Return the step that was measured on this accelerator, there or at other batch sizes."""
    profile, size = _profile(here), workload.batch_size
    step_s = profile.step_s(size)
    exact = [m for m in here if m.workload.batch_size == size]
    scale = step_s / sum(plain.parts_s.values()) if plain.parts_s else 1.0
    parts_s = {name: part_s * scale for name, part_s in plain.parts_s.items()}
    source = ", ".join(dict.fromkeys(m.source for m in here))
    sizes = ", ".join(str(known) for known, _ in profile.steps)
    note = f"measured: {source}"
    if not exact:
        note = f"between what was measured at batch size {sizes}: {source}"
    return StepTime(
        time_s=_interval(step_s, exact, profile, size),
        basis="measured",
        limiter=plain.limiter,
        parts_s=parts_s,
        note=note,
    )


def _interval(step_s: float, exact: Sequence[ProfileRow], profile: BatchProfile, size: int) -> Interval:
    """Return an interval: of the median and of repeated runs; wider where the batch size was not measured."""
    if exact:
        lows = [m.low_s for m in exact if m.low_s is not None]
        highs = [m.high_s for m in exact if m.high_s is not None]
        low = min([step_s * (1 - REPEATABLE), *lows])
        return Interval(low=low, mid=step_s, high=max([step_s * (1 + REPEATABLE), *highs]))
    sizes = [known for known, _ in profile.steps]
    reach = abs(math.log(size / min(sizes, key=lambda known: abs(math.log(size / known)))))
    log = math.log1p(REPEATABLE) + 0.1 * reach  # a tenth for each factor e away from a measured batch size
    return interval_around(step_s, -log, log)
