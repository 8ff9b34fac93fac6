"""Letting XLA compile a step for the accelerators of a selection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..errors import GpuplanError, UsageError
from ..predict.compile.compiled import CompileFault
from ..predict.compile.predictor import CompiledPredictor, Outcome
from ..predict.compile.targets import Target, compiler_version, target_of
from ..predict.compile.worker import Limits, compile_step, missing_compiler

if TYPE_CHECKING:
    from ..offers.rows import Accelerator
    from ..workload.lowering import Lowered
    from ..workload.model import Workload
    from ..workload.options import WorkloadOptions
    from .estimate import StepPredictor
    from .select import Selection

__all__ = ["Compiling", "Program"]


@dataclass(frozen=True, slots=True)
class Program:
    """What is lowered: a MODEL argument, with what is said beside it."""

    model: Any
    options: WorkloadOptions
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiling:
    """How steps are compiled.

    Args:
        limits: Of each compilation.
        tell: Called while one runs: accelerator, how many are done, of how many.
        warn: Takes one line on each compilation that failed.
    """

    limits: Limits = field(default_factory=Limits)
    tell: Callable[[str, int, int], None] = lambda accelerator, done, total: None
    warn: Callable[[str], None] = lambda line: None

    def require_named(self, accelerators: Sequence[str], model: Any) -> None:
        """Raise UsageError unless it is said what to compile, and for what: each takes half a minute or more."""
        if not accelerators:
            raise UsageError(
                "`--compile` takes half a minute or more an accelerator, and none is named",
                hint="add `--accelerator TPU-v5e`, once for each that you want",
            )
        if not isinstance(model, str):
            raise UsageError(
                "only a MODEL reference can be compiled, not a model of this process",
                hint="give the script, `file.py:function`, or the application's name",
            )

    def around(
        self, inner: StepPredictor, workload: Workload, *, selection: Selection, program: Program
    ) -> StepPredictor:
        """Return a predictor that knows what the compilers say of a workload.

        Args:
            inner: Knows everything else.
            workload: What runs.
            selection: Its accelerators are compiled for.
            program: What the workload was traced from.
        """
        wanted = _targets(selection)
        if not wanted:
            self.warn("--compile: no compiler describes these accelerators; their steps are modelled")
            return inner
        outcomes: dict[str, Outcome] = {}
        for done, target in enumerate(wanted):
            self.tell(target.accelerator, done, len(wanted))
            result = self._one(target, workload, program)
            if isinstance(result, CompileFault) and result.kind != "does not fit":
                hint = f" ({result.hint})" if result.hint else ""
                self.warn(f"{target.accelerator}: {result.message}{hint}; its step is modelled")
            outcomes[target.accelerator] = Outcome(target, result)
        self.tell("", len(wanted), len(wanted))
        return CompiledPredictor(inner, workload, outcomes)

    def _one(self, target: Target, workload: Workload, program: Program) -> Any:
        if workload.batch_size % target.cores:
            message = f"{workload.batch_size} samples cannot be shared by the {target.cores} cores of a chip"
            return CompileFault(kind="failed", message=message, hint="an even batch size")
        if not workload.compiled:
            return CompileFault(kind="failed", message="the step runs kernel by kernel, not as one program")
        if compiler_version(target.platform) is None:
            return missing_compiler(target)
        try:
            lowered = _lowered(target, workload, program)
        except GpuplanError as error:
            return CompileFault(kind="failed", message=str(error), hint=error.hint or "")
        return compile_step(
            lowered.path, digest=lowered.digest, target=target, limits=self.limits,
            use_cache=program.options.use_cache,
        )  # fmt: skip


def _targets(selection: Selection) -> tuple[Target, ...]:
    accelerators: dict[str, Accelerator] = {
        one.accelerator.name: one.accelerator for one in selection.offers if one.accelerator is not None
    }
    return tuple(target for one in accelerators.values() if (target := target_of(one)) is not None)


def _lowered(target: Target, workload: Workload, program: Program) -> Lowered:
    """Return the step of one core, which works on its share of an accelerator's batch."""
    from ..workload.lowering import lowered_step

    options = replace(program.options, batch_size=workload.batch_size // target.cores)
    return lowered_step(program.model, options=options, platform=target.platform, argv=program.argv)
