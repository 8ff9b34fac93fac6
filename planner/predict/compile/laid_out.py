"""A step of a model that its own code lays out over accelerators (`keras.distribution`)."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from ...offers.rows import Accelerator
from ...units import GIGA, MEGA
from ..interval import around
from ..steptime import Limiter, StatedMemory, StepTime, Unpredicted, notes_text
from .compiled import Compiled, CompileFault
from .constants import load_constants
from .targets import Target
from .tpu import LINK_SHARE, core_s

__all__ = ["laid_out_step", "without"]

BITS_PER_BYTE = 8.0


def laid_out_step(
    plain: StepTime | Unpredicted, target: Target, result: Compiled | CompileFault, accelerator: Accelerator
) -> StepTime | Unpredicted:
    """Return the step of all devices together: of one device's program, and of what it sends.

    Every device runs the same program on its share of weights and batch. Its collectives go over the chip's links
    by themselves, the bound for a program that waits for each.

    Args:
        plain: As it is known without a compiler: every device holds the whole model.
        target: What was compiled for.
        result: What came of it.
        accelerator: A row of the catalog.
    """
    if isinstance(result, CompileFault):
        return without(result, plain, target, accelerator)
    memory = StatedMemory(
        needed_bytes=result.needed_bytes * target.cores, fits=True if target.platform == "tpu" else None
    )
    about = f"laid out over {target.devices} devices as the model's own code says"
    link = accelerator.ici_gbit_per_s_per_direction
    if not result.cycles or not accelerator.boost_mhz or (result.sent_bytes and not link):
        if isinstance(plain, Unpredicted):
            return plain
        note = f"memory of one device, {about}; the time is that of whole models, each on a device"
        return replace(plain, memory=memory, note=notes_text(plain.note, note))
    constants = load_constants()["tpu"]
    parts_s = {
        "compute": core_s(cycles=result.total_cycles, clock_hz=accelerator.boost_mhz * MEGA)
        * constants.slowdown,
        "launch": constants.fixed_s,
        "link": result.sent_bytes / ((link or 1.0) / BITS_PER_BYTE * GIGA * LINK_SHARE),
    }
    return StepTime(
        time_s=around(sum(parts_s.values()), *constants.interval), basis="compiled", parts_s=parts_s,
        limiter=cast("Limiter", max(parts_s, key=lambda name: parts_s[name])), memory=memory,
        note=f"compiled for {target.topology} by {result.compiler.split(' jax')[0]}, {about}; the compiler's "
        "estimate as it is, its interval assumed",
    )  # fmt: skip


def without(
    fault: CompileFault, plain: StepTime | Unpredicted, target: Target, accelerator: Accelerator
) -> StepTime | Unpredicted:
    """Return the step as it is known without a compiler, and why it was not compiled."""
    note = f"not compiled: {fault.message}"
    if isinstance(plain, Unpredicted):
        return Unpredicted(f"{plain.reason}; {note}")
    memory = plain.memory
    if fault.kind == "does not fit":
        note = f"memory: does not fit, says the compiler for {accelerator.name}"
        needed = fault.needed_bytes
        memory = StatedMemory(needed_bytes=None if needed is None else needed * target.cores, fits=False)
    return replace(plain, memory=memory, note=notes_text(plain.note, note))
