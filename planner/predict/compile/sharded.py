"""Step of a model sharded over accelerators by its own code (`keras.distribution`)."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from ...offers.rows import Accelerator
from ...units import GIGA, MEGA
from ..interval.adaptive import interval_around
from ..step_time import Limiter, NoPrediction, StatedMemory, StepTime, join_notes
from .compiled import CompiledStep, CompileFault
from .constants import load_constants
from .targets import CompileTarget
from .tpu import LINK_SHARE, compute_core_s

BITS_PER_BYTE = 8.0


def build_sharded_step(
    plain: StepTime | NoPrediction,
    target: CompileTarget,
    result: CompiledStep | CompileFault,
    accelerator: Accelerator,
) -> StepTime | NoPrediction:
    """Return the step of all devices together from one device's program and the data it sends.

    Every device runs the same program on its share of weights and batch. Collectives are not overlapped with
    computation, which gives an upper bound.

    Args:
        plain: Prediction without a compiler, with the whole model on every device.
        target: Compilation target.
        result: Compilation result.
        accelerator: A row of the catalog.
    """
    if isinstance(result, CompileFault):
        return build_uncompiled_step(result, plain, target, accelerator)
    memory = StatedMemory(
        needed_bytes=result.needed_bytes * target.cores, fits=True if target.platform == "tpu" else None
    )
    about = f"sharded over {target.devices} devices by the model's own code"
    link = accelerator.ici_gbit_per_s_per_direction
    if not result.cycles or not accelerator.boost_mhz or (result.sent_bytes and not link):
        if isinstance(plain, NoPrediction):
            return plain
        note = f"memory of one device, {about}; the time assumes a whole model on each device"
        return replace(plain, memory=memory, note=join_notes(plain.note, note))
    constants = load_constants()["tpu"]
    parts_s = {
        "compute": compute_core_s(cycles=result.total_cycles, clock_hz=accelerator.boost_mhz * MEGA)
        * constants.slowdown,
        "launch": constants.fixed_s,
        "link": result.sent_bytes / ((link or 1.0) / BITS_PER_BYTE * GIGA * LINK_SHARE),
    }
    return StepTime(
        time_s=interval_around(sum(parts_s.values()), *constants.interval),
        basis="compiled",
        parts_s=parts_s,
        limiter=cast("Limiter", max(parts_s, key=lambda name: parts_s[name])),
        memory=memory,
        note=f"compiled for {target.topology} by {result.compiler.split(' jax')[0]}, {about}; the compiler's "
        "estimate as it is, its interval assumed",
    )


def build_uncompiled_step(
    fault: CompileFault, plain: StepTime | NoPrediction, target: CompileTarget, accelerator: Accelerator
) -> StepTime | NoPrediction:
    """Return the prediction without a compiler, with the reason for the failed compilation."""
    note = f"not compiled: {fault.message}"
    if isinstance(plain, NoPrediction):
        return NoPrediction(f"{plain.reason}; {note}")
    memory = plain.memory
    if fault.kind == "does not fit":
        note = f"memory: does not fit according to the compiler for {accelerator.name}"
        needed = fault.needed_bytes
        memory = StatedMemory(needed_bytes=None if needed is None else needed * target.cores, fits=False)
    return replace(plain, memory=memory, note=join_notes(plain.note, note))
