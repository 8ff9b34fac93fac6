"""Memory of a step as XLA compiles it for the selected accelerators."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import GpuplanError, UsageError
from ..predict.compile.compiled_predictor import (
    CompiledPredictor,
    CompiledStep,
    CompileTarget,
    find_compiler_version,
    find_target,
)
from ..predict.compile.worker import compile_step
from ..workload.capture.load import compute_entry_key, read_entry, write_entry
from ..workload.capture.tracing_process import LoweredStep, lower_step
from ..workload.reference import parse_reference
from .memory import UNSHARDED

if TYPE_CHECKING:
    from ..workload.model import Workload
    from ..workload.options import WorkloadOptions
    from .question import EstimateContext, Question

FORMAT = "gpuplan.compiled/3"
# What the program of one core does not depend on.
LENGTH: Mapping[str, Any] = dict.fromkeys(("samples", "epochs", "steps", "compiled"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCompiler:
    """Compiler of steps for the accelerators of a selection."""

    # Progress callback with the accelerator, the number of finished compilations and the total
    tell: Callable[[str, int, int], None] = lambda accelerator, done, total: None
    warn: Callable[[str], None] = lambda line: None  # callback that receives one line for each failed compilation

    def require_compilable(self, question: Question, model: Any) -> None:
        """Raise UsageError unless accelerators and a MODEL reference are named, and nothing is sharded."""
        if not question.filters.accelerators:
            raise UsageError(
                "`--compile` needs at least one `--accelerator`: each takes half a minute or more",
                hint="add `--accelerator TPU-v5e`, once for each that you want",
            )
        if not isinstance(model, str):
            raise UsageError(
                "only a MODEL reference can be compiled, not a model of this process",
                hint="give the script, `file.py:function`, or the application's name",
            )
        if question.shard not in (None, UNSHARDED):
            raise UsageError(
                "`--compile` compiles the step of devices that each hold the whole model, not that of `--shard`",
                hint="leave out one of them",
            )

    def add_memory(self, context: EstimateContext, model: str, *, argv: Sequence[str]) -> EstimateContext:
        """Return a context whose predicted steps carry the compilers' memory."""
        workload, inner = context.workload, context.predictor
        accelerators = (one.accelerator for one in context.selection.offers if one.accelerator is not None)
        targets = [find_target(one) for one in {one.name: one for one in accelerators}.values()]
        wanted = [target for target in targets if target is not None]
        if not wanted:
            self.warn("--compile: no compiler describes these accelerators; their memory is modelled")
            return context
        lower = cache(partial(lower_step, model, argv=argv))
        others = [phase for phase in workload.phases if phase.fit_call != workload.fit_call]
        for phase in (*others, workload):
            known = {}
            for done, target in enumerate(wanted):
                self.tell(target.accelerator, done, len(wanted))
                size = phase.batch_size // target.cores
                program = replace(context.options, batch_size=size, fit_call=phase.fit_call, **LENGTH)
                found = _check_compilable(phase, target) or _compile_or_load(
                    target, model, options=program, argv=argv, lower=lower
                )
                if found.has_failed:
                    hint = f" ({found.hint})" if found.hint else ""
                    self.warn(f"{target.accelerator}: {found.message}{hint}; its memory is modelled")
                known[target.accelerator] = target, found
            self.tell("", len(wanted), len(wanted))
            inner = CompiledPredictor(inner, phase, known)
        return replace(context, predictor=inner)


def _check_compilable(workload: Workload, target: CompileTarget) -> CompiledStep | None:
    """Return the reason why a step cannot be compiled for a target; None if it can be."""
    message = hint = ""
    if workload.distribution:
        message = f"the script lays its step out over devices (`{workload.distribution}`)"
    elif workload.batch_size % target.cores:
        message = f"{workload.batch_size} samples cannot be divided among the {target.cores} cores of a chip"
        hint = "an even batch size"
    elif not workload.compiled:
        message = "the step runs kernel by kernel, not as one program"
    return CompiledStep(fault="failed", message=message, hint=hint) if message else None


def _compile_or_load(
    target: CompileTarget,
    model: str,
    *,
    options: WorkloadOptions,
    argv: Sequence[str],
    lower: Callable[..., LoweredStep],
) -> CompiledStep:
    """Compile the step of a program for a target, or load the cached result.

    Its key is a digest of everything that it depends on except file contents.
    """
    compiler = find_compiler_version(target.platform)
    if compiler is None:
        message = f"no compiler for {target.accelerator} is installed"
        hint = f"`pip install 'gpuplan[{target.platform}-compile]'`"
        return CompiledStep(fault="missing", message=message, hint=hint)
    try:
        base = Path.cwd()
        entry = compute_entry_key(parse_reference(model, base=base), base=base, options=options, argv=argv)
        key = hashlib.sha256(json.dumps([FORMAT, entry, asdict(target), compiler]).encode()).hexdigest()
        known = read_entry(key) if options.use_cache else None
        if known is not None:
            return CompiledStep(**known)
        lowered = lower(options=options, platform=target.platform)
    except GpuplanError as error:
        return CompiledStep(fault="failed", message=str(error), hint=error.hint or "")
    found = compile_step(lowered.module, target=target, compiler=compiler)
    if options.use_cache and not found.has_failed:
        write_entry(key, workload=asdict(found), files=lowered.files)
    return found
