"""Request for a profile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..workload.options import WorkloadOptions
from .statistics import ProcessLimits
from .windows import MeasurementRules

Device = Literal["cpu", "gpu", "tpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest:
    """Request for a profile.

    Args:
        model: A MODEL reference.
        batch_sizes: Batch sizes to measure; empty for the model's own and a quarter of it [-].
        precisions: Precisions to measure; empty for the model's own.
        backend: Keras backend; None for `KERAS_BACKEND`, else JAX.
        device: Device; None for the backend's default.
        data: Random data of the model's shapes, or the script's own data.
        options: Mode, loss, optimizer, samples and epochs.
        argv: Arguments of a script.
        rules: Start and stop rules of each process.
        several: Number of processes for each configuration.
        trace: Whether to add the workload of each row, which estimates need.
        answer_s: Time until the answer; processes that would end later are not started, except a first one of
            each configuration, and only that one also measures the step alone and epochs. None for no limit [s].
        limit_s: Time limit of each process, from its start; None for no limit [s].
        brief: Whether the steps of the loop are all that is measured: neither the step alone nor epochs.
        typed: Command-line options given, so that no advice repeats them.
    """

    model: str
    batch_sizes: tuple[int, ...] = ()
    precisions: tuple[str, ...] = ()
    backend: str | None = None
    device: Device | None = None
    data: Literal["synthetic", "script"] = "synthetic"
    options: WorkloadOptions = field(default_factory=WorkloadOptions)
    argv: tuple[str, ...] = ()
    rules: MeasurementRules = field(default_factory=MeasurementRules)
    several: ProcessLimits = field(default_factory=ProcessLimits)
    trace: bool = True
    answer_s: float | None = None
    limit_s: float | None = None
    brief: bool = False
    typed: str = ""
