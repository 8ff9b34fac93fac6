"""Compiler results for the steps of a profile on accelerators that are not in this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..plain import to_plain
from ..predict.from_profile.predictor import ProfiledPredictor, read_profile_rows
from ..predict.keras_defaults import select_executed_workload
from ..predict.predictor import Predictor
from ..predict.step_time import NoPrediction, StepTime
from ..predict.xla_recomputation import compute_recomputed_bytes
from ..workload.model import Workload
from .compilation import ProgramSource, StepCompiler
from .execution.memory import available_bytes, memory_verdict, stated_verdict
from .execution.memory_parts import compute_batch_bytes

if TYPE_CHECKING:
    from ..offers.catalog import Catalog
    from ..offers.rows import Accelerator
    from ..profile.profile_request import ProfileRequest
    from ..profile_schema import CompiledStepRecord, ProfileDocument


def resolve_accelerators(names: Sequence[str], catalog: Catalog) -> tuple[Accelerator, ...]:
    """Return the accelerators to compile for.

    Raises:
        UsageError: No name is given, or a name is not in the catalog.
    """
    if not names:
        raise UsageError(
            "`--compile` needs at least one `--accelerator`: each takes half a minute or more",
            hint="add `--accelerator TPU-v5e`, once for each that you want",
        )
    return tuple(catalog.accelerators[catalog.names.resolve(name)] for name in dict.fromkeys(names))


def add_compiled(
    document: ProfileDocument,
    request: ProfileRequest,
    *,
    catalog: Catalog,
    accelerators: Sequence[Accelerator],
    compiling: StepCompiler,
) -> None:
    """Add `compiled` to a profile: each measured step on each accelerator.

    Steps that were measured at several batch sizes are compiled at the smallest and the largest.

    Args:
        document: Profile whose rows were traced.
        request: Request that produced the profile.
        catalog: Catalog with the accelerators.
        accelerators: Accelerators to compile for.
        compiling: Compiler of steps.
    """
    known = ProfiledPredictor(
        Predictor.load(),
        read_profile_rows(document, source="this profile"),
        own_cpu=None,
        accelerators=catalog.accelerators,
    )
    document["compiled"] = []
    for rows in _of_one_program(document):
        workloads = [(number, _workload(document, number)) for number in rows]
        _, first = workloads[0]
        options = replace(
            request.options, precision=document["rows"][rows[0]]["asked_precision"], compiled=first.compiled
        )
        program = ProgramSource(request.model, options, request.argv)
        predictor = compiling.wrap_predictor(known, first, accelerators=accelerators, program=program)
        compiling.compile_more(
            predictor, {one.name: [w for _, w in workloads[1:][-1:]] for one in accelerators}, program=program
        )
        for number, workload in workloads:
            for accelerator in accelerators:
                step = predictor.step_time(workload, accelerator)
                document["compiled"].append(_answer(step, workload, accelerator, row=number))


def _of_one_program(document: ProfileDocument) -> Iterator[list[int]]:
    """Yield the numbers of traced rows by precision, smaller batches first."""
    rows = document["rows"]
    traced = [number for number, row in enumerate(rows) if row["workload"] is not None]
    for precision in dict.fromkeys(rows[number]["precision"] for number in traced):
        mine = [number for number in traced if rows[number]["precision"] == precision]
        yield sorted(mine, key=lambda number: rows[number]["batch_size"] or 0)


def _workload(document: ProfileDocument, number: int) -> Workload:
    return Workload.from_json(document["workloads"][document["rows"][number]["workload"] or 0])


def _answer(
    step: StepTime | NoPrediction, workload: Workload, accelerator: Accelerator, *, row: int
) -> CompiledStepRecord:
    executed = select_executed_workload(workload, accelerator)
    verdict = memory_verdict(
        fixed_bytes=executed.memory.compute_fixed_bytes(compiled=executed.compiled),
        batch_bytes=compute_batch_bytes(executed),
        batch_size=workload.batch_size,
        available_bytes=available_bytes(memory_gib=accelerator.memory_gib, usable_gib=accelerator.usable_gib),
        recomputed_bytes=compute_recomputed_bytes(executed, accelerator),
    )
    if isinstance(step, StepTime) and step.memory is not None:
        verdict = stated_verdict(verdict, needed_bytes=step.memory.needed_bytes, fits=step.memory.fits)
    known = step if isinstance(step, StepTime) else None
    return {
        "row": row,
        "accelerator": accelerator.name,
        "batch_size": workload.batch_size,
        "precision": workload.precision,
        "step_time_s": to_plain(known.time_s) if known else None,
        "basis": known.basis if known else None,
        "limiter": known.limiter if known else None,
        "note": step.reason if isinstance(step, NoPrediction) else step.note,
        "memory_bytes": verdict.needed_bytes,
        "memory_fits": verdict.fits,
    }
