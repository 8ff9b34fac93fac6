"""Memory of a step as XLA compiles it for the selected accelerators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from ..errors import GpuplanError, UsageError
from ..predict.compile.compiled import CompiledStep, CompileFault
from ..predict.compile.compiled_predictor import Compilation, CompiledPredictor
from ..predict.compile.targets import CompileTarget, build_sharded_target, find_compiler_version, find_target
from ..predict.compile.worker import build_missing_compiler_fault, compile_step
from .execution.sharding_choice import UNSHARDED

if TYPE_CHECKING:
    from ..offers.rows import Accelerator
    from ..predict.multi_device.sharding import Sharding
    from ..predict.step_time import StepPredictor
    from ..workload.build.lowering import LoweredStep
    from ..workload.model import Workload
    from ..workload.options import WorkloadOptions
    from .question import Question
    from .select import Selection


@dataclass(frozen=True, slots=True)
class ProgramSource:
    """Model and options from which the program to compile is lowered.

    Args:
        model: MODEL reference.
        options: Tracing options.
        argv: Arguments of a script.
        devices: Numbers of accelerators over which the model's own code may shard it [-].
        shared: Whether several devices share one batch instead of each keeping its own.
    """

    model: Any
    options: WorkloadOptions
    argv: tuple[str, ...] = ()
    devices: tuple[int, ...] = ()
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCompiler:
    """Compiler of steps for the accelerators of a selection.

    Args:
        tell: Progress callback with the accelerator, the number of finished compilations and the total.
        warn: Callback that receives one line for each failed compilation.
    """

    tell: Callable[[str, int, int], None] = lambda accelerator, done, total: None
    warn: Callable[[str], None] = lambda line: None

    def require_named(self, accelerators: Sequence[str], model: Any) -> None:
        """Raise UsageError unless accelerators and a MODEL reference are named (each compilation takes 30 s)."""
        if not accelerators:
            raise UsageError(
                "`--compile` needs at least one `--accelerator`: each takes half a minute or more",
                hint="add `--accelerator TPU-v5e`, once for each that you want",
            )
        if not isinstance(model, str):
            raise UsageError(
                "only a MODEL reference can be compiled, not a model of this process",
                hint="give the script, `file.py:function`, or the application's name",
            )

    def require_copies(self, shard: Sequence[Sharding] | None) -> None:
        """Raise UsageError if a sharded step is to be compiled."""
        if shard not in (None, UNSHARDED):
            raise UsageError(
                "`--compile` compiles the step of devices that each hold the whole model, not that of `--shard`",
                hint="leave out one of them",
            )

    def wrap_predictor(
        self,
        inner: StepPredictor,
        workload: Workload,
        *,
        accelerators: Iterable[Accelerator],
        program: ProgramSource,
    ) -> StepPredictor:
        """Return a predictor whose steps of a workload carry the compilers' memory.

        Args:
            inner: Predictor for everything that is not compiled.
            workload: Workload to compile, each of its phases.
            accelerators: Accelerators to compile for.
            program: Source of the traced workload.
        """
        wanted = _targets(accelerators)
        if not wanted:
            self.warn("--compile: no compiler describes these accelerators; their memory is modelled")
            return inner
        others = [phase for phase in workload.phases if phase.fit_call != workload.fit_call]
        for phase in (*others, workload):
            inner = self._wrap_phase(inner, phase, wanted, program)
        return inner

    def _wrap_phase(
        self,
        inner: StepPredictor,
        workload: Workload,
        wanted: Sequence[CompileTarget],
        program: ProgramSource,
    ) -> StepPredictor:
        """Return a predictor that adds the compilers' memory to the steps of one phase."""
        predictor = CompiledPredictor(inner, workload)
        several = [count for count in program.devices if count > 1] if workload.distribution else []
        counts = [*several, 1] if not several or 1 in program.devices else several
        for done, (target, count) in enumerate(product(wanted, counts)):
            self.tell(target.accelerator, done, len(wanted) * len(counts))
            build = self._compile_copy if count == 1 else self._compile_sharded
            found = build(workload, target, count, program)
            self._say(found.result, target.accelerator if count == 1 else f"{count} x {target.accelerator}")
            predictor.learn(found, devices=count)
        self.tell("", len(wanted), len(wanted))
        return predictor

    def _compile_sharded(
        self, workload: Workload, target: CompileTarget, count: int, program: ProgramSource
    ) -> Compilation:
        """Compile a program that its own code shards over accelerators."""
        whole, together = build_sharded_target(target, count), 1 if program.shared else count
        options = replace(
            program.options, batch_size=workload.batch_size * together, devices=count * target.cores
        )
        result: CompiledStep | CompileFault
        if whole is None:
            message = f"{count}x {target.accelerator} is not a slice that can be rented"
            result = CompileFault(kind="failed", message=message, hint="`--devices 4`")
        else:
            result = self._compiled(whole, workload, replace(program, options=options))
        return Compilation(whole or target, -(-(workload.batch_size * together) // count), result)

    def _say(self, result: CompiledStep | CompileFault, what: str) -> None:
        if isinstance(result, CompileFault) and result.kind != "does not fit":
            hint = f" ({result.hint})" if result.hint else ""
            self.warn(f"{what}: {result.message}{hint}; its memory is modelled")

    def _compile_copy(
        self, workload: Workload, target: CompileTarget, _: int, program: ProgramSource
    ) -> Compilation:
        """Compile for one accelerator, whose cores share its batch."""
        result: CompiledStep | CompileFault
        if workload.batch_size % target.cores:
            message = (
                f"{workload.batch_size} samples cannot be divided among the {target.cores} cores of a chip"
            )
            result = CompileFault(kind="failed", message=message, hint="an even batch size")
        else:
            options = replace(
                program.options,
                batch_size=workload.batch_size // target.cores,
                devices=1 if workload.distribution else None,
            )
            result = self._compiled(target, workload, replace(program, options=options))
        return Compilation(target, workload.batch_size, result)

    def _compiled(
        self, target: CompileTarget, workload: Workload, program: ProgramSource
    ) -> CompiledStep | CompileFault:
        if not workload.compiled:
            return CompileFault(kind="failed", message="the step runs kernel by kernel, not as one program")
        options = replace(program.options, fit_call=workload.fit_call)
        return compile_program(target, replace(program, options=options))


def _targets(accelerators: Iterable[Accelerator]) -> tuple[CompileTarget, ...]:
    distinct = {one.name: one for one in accelerators}
    return tuple(target for one in distinct.values() if (target := find_target(one)) is not None)


def count_visible_devices(selection: Selection, counts: Iterable[float]) -> int | None:
    """Return the number of devices that JAX would find on the largest requested machine; None for one [-].

    A script that shards a model over devices needs the same number of devices while it is traced.
    """
    cores = [target.cores for target in _targets(selection.accelerators)]
    most = max(_whole(counts), default=1) * max(cores, default=1)
    return most if most > max(cores, default=1) else None


def build_program_source(
    model: Any, options: WorkloadOptions, argv: Sequence[str], question: Question, workload: Workload
) -> ProgramSource:
    """Build the source of the program to compile for a question and the traced model."""
    layout = workload.layout
    return ProgramSource(
        model,
        options,
        tuple(argv),
        devices=_whole(question.filters.devices) or (() if layout is None else (layout.devices,)),
        shared=question.scaling == "strong",
    )


def _whole(counts: Iterable[float]) -> tuple[int, ...]:
    """Return the whole numbers among numbers of devices.

    Example:
        >>> _whole([0.5, 1, 8.0])
        (1, 8)
    """
    return tuple(int(count) for count in counts if count == int(count))


def compile_program(target: CompileTarget, program: ProgramSource) -> CompiledStep | CompileFault:
    """Lower the step of a program and compile it for a target."""
    if find_compiler_version(target.platform) is None:
        return build_missing_compiler_fault(target)
    try:
        lowered = _lowered(target, program)
    except GpuplanError as error:
        return CompileFault(kind="failed", message=str(error), hint=error.hint or "")
    return compile_step(
        lowered.path,
        digest=lowered.digest,
        target=target,
        use_cache=program.options.use_cache,
        mesh=lowered.mesh,
    )


def _lowered(target: CompileTarget, program: ProgramSource) -> LoweredStep:
    from ..workload.build.lowering import load_or_lower_step

    return load_or_lower_step(
        program.model, options=program.options, platform=target.platform, argv=program.argv
    )
