"""Division of the steps of a script by XLA, over as many devices of the host as its mesh has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..predict.compile.compiled import CompiledStep, CompileFault
from ..predict.compile.targets import build_host_target
from ..predict.multi_device.sharding import Sharding
from .execution.partitions import NO_PARTITIONS, Partitions
from .script_layout import follow_script

if TYPE_CHECKING:
    from ..workload.model import Workload
    from .compilation import ProgramSource
    from .question import EstimateContext, Question

__all__ = ["add_partitions"]


def add_partitions(context: EstimateContext, question: Question, program: ProgramSource) -> EstimateContext:
    """Let XLA divide the steps of a script that lays its model out over devices; see `_divide_steps`."""
    return replace(context, partitions=_divide_steps(context.workload, question, program))


def _divide_steps(workload: Workload, question: Question, program: ProgramSource) -> Partitions:
    """Return the steps of all phases as XLA divides them; none where the script's layout is not followed.

    The division does not depend on the kind of device; it takes seconds, since no code is generated for it that
    is worth running.

    Args:
        workload: Traced script.
        question: The question as asked.
        program: Script, with the number of devices of its mesh; the step of a Keras model cannot be divided.
    """
    followed = follow_script(question, workload)
    if followed.shard != (Sharding.SCRIPT,):
        return NO_PARTITIONS
    found = {}
    for phase in workload.phases:
        together = 1 if followed.scaling == "strong" or phase.layout is None else phase.layout.replicas
        batch_size = phase.batch_size * together
        options = replace(program.options, batch_size=batch_size, fit_call=phase.fit_call)
        found[phase.fit_call, batch_size] = _divide(phase, replace(program, options=options))
    return found


def _divide(phase: Workload, program: ProgramSource) -> CompiledStep | CompileFault:
    from .compilation import compile_program

    if not isinstance(program.model, str) or phase.layout is None:
        return CompileFault(kind="failed", message="only the step of a script can be divided")
    return compile_program(build_host_target(phase.layout.devices), program)
