"""Child process: run the user's code, build and trace the model, write the result as JSON.

    python -m gpuplan.workload.capture.child request.json result.json

Its stdout is the parent's stderr, and it ends when its stdin does. The request and the result are plain JSON,
never pickled.
"""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import os
import sys
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NoReturn

from ...errors import GpuplanError, UsageError
from ..errors import LAST_TRACE, BackendError, CaptureError, DeviceCountError, to_one_line
from ..options import DataTerms, WorkloadOptions
from ..reference import Reference, parse_reference
from .load import hash_file
from .overlays import enter_namespace
from .watch import PositionReporter, end_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..build.assemble import ModelAssembler, RunProperties
    from ..build.fit_inputs import FitInputs
    from ..model import Workload
    from .stand_in_data import StandInData
    from .training_loops import LoopStep

INTERRUPTED = 130
DETAILS = ("backend", "reached", "devices", "takes_all")  # of errors
ELSEWHERE = "weights are allocated to trace on another backend than JAX, so the model must fit in memory"
PRETRAINED = "pretrained weights were neither downloaded nor read: their values do not change the time"


def main(request_path: str, result_path: str) -> NoReturn:
    """Answer a request and end the process without returning to the user's code."""
    request = json.loads(Path(request_path).read_text(encoding="utf-8"))
    _enter_namespace(request, Path(request_path).parent)
    asked = end_with_parent()
    try:
        answer = _answer(request, Path(result_path), asked)
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
    except GpuplanError as error:
        answer = _build_error_answer(error)
    _finish(answer, Path(result_path))


def _enter_namespace(request: dict[str, Any], folder: Path) -> None:
    base = Path(request["base"])
    with contextlib.suppress(GpuplanError, OSError):  # said below
        reference = parse_reference(request["reference"], base=base)
        if reference.kind == "script":
            enter_namespace(folder, [str(reference.folder(base)), os.getcwd()])


def _build_error_answer(error: GpuplanError) -> dict[str, Any]:
    kind = "usage" if isinstance(error, UsageError) else "capture"
    details = {name: value for name, value in vars(error).items() if name in DETAILS}
    return {"error": {"kind": kind, "message": str(error), "hint": error.hint, **details}}


def _finish(answer: dict[str, Any], result_path: Path) -> NoReturn:
    _write(answer, result_path)
    _end()


def _write(answer: dict[str, Any], result_path: Path) -> None:
    """Write the result at once: the parent may end this process at any time."""
    unfinished = result_path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(answer), encoding="utf-8")
    unfinished.replace(result_path)


def _end() -> NoReturn:
    for worker in multiprocessing.active_children():
        worker.terminate()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _answer(request: dict[str, Any], result_path: Path, asked: SimpleQueue[bytes]) -> dict[str, Any]:
    from .follow import follow_mesh
    from .materialize import NOT_ABSTRACT, abstract_variables, set_precision
    from .stand_in_data import StandInData

    options = WorkloadOptions.from_json(request["options"])
    base = Path(request["base"])
    reference = parse_reference(request["reference"], base=base)
    on_jax = request["trace_on"] == "jax"
    _import_keras(request["trace_on"], request["backend"])
    set_precision(options.precision)
    own = reference.folder(base)
    PositionReporter(result_path.parent, own=str(own))
    stand_ins = StandInData(DataTerms(**request["data"]), folder=result_path.parent, own=own).install()
    if on_jax:

        def need(devices: int, takes_all: bool) -> NoReturn:
            message = f"`{reference.text}` asks for {devices} devices"
            error = DeviceCountError(message, devices=devices, takes_all=takes_all)
            _finish(_build_error_answer(error), result_path)

        follow_mesh(need, given=options.devices is not None)
    with abstract_variables() if on_jax else contextlib.nullcontext(False) as works:
        notes = () if works else (NOT_ABSTRACT if on_jax else ELSEWHERE,)
        if reference.kind == "script":
            _run_script(reference, request, options, notes, result_path, stand_ins=stand_ins)
        from .lowering import build_answer

        assembler = _build_model(reference, request, options, notes, stand_ins)
        answer = build_answer(assembler, options=options, request=request)
        answer["files"] = _local_files(reference)
        if request.get("keeps") and on_jax:
            _answer_more(assembler, answer, result_path, asked)
        return answer


def _import_keras(backend: str, wanted_backend: str | None) -> None:
    """Import Keras on a backend, then show the user's code the backend that the user set, if any."""
    os.environ["KERAS_BACKEND"] = backend
    gc.disable()  # an import creates no garbage, and looking for it takes a tenth of its time
    import keras  # noqa: F401

    gc.freeze()
    gc.enable()
    if wanted_backend is None:
        del os.environ["KERAS_BACKEND"]
    else:
        os.environ["KERAS_BACKEND"] = wanted_backend


def _backend_note() -> tuple[str, bool | None]:
    """Return the note on the backend, and whether its steps are compiled (None for the model's setting)."""
    import keras

    traced = keras.backend.backend()
    wanted = os.environ.get("KERAS_BACKEND") or traced
    compiled = False if wanted == "torch" else None
    if traced == wanted == "jax":
        return "traced with Keras on JAX", None
    if traced == "jax":
        return (
            f"set up for the {wanted} backend; traced with Keras on JAX, whose layers do the same work",
            compiled,
        )
    instead = "" if traced == wanted else f"set up for the {wanted} backend; "
    return f"{instead}traced on the {traced} backend, since its step cannot be traced on JAX", compiled


def _run_script(
    reference: Reference,
    request: dict[str, Any],
    options: WorkloadOptions,
    notes: tuple[str, ...],
    result_path: Path,
    *,
    stand_ins: StandInData,
) -> NoReturn:
    """Follow a script, and write the answer of all its phases, or the lowered step of one of them."""
    from ..build.assemble import ModelAssembler, assemble_workload, build_workload
    from ..build.fit_inputs import FitInputs
    from .feeding import InputMeter
    from .follow import ScriptFollower, SingleFit
    from .run_script import follow_script

    path = reference.path or Path()
    describe = _prepare_description(reference, request, notes, stand_ins, folder=path.parent)

    def trace(model: Any, feed: FitInputs, epochs: int, arguments: dict[str, Any]) -> Workload:
        run = describe(_fit_notes(model, arguments, feed), feed=feed)
        try:
            return assemble_workload(model, run=run, options=options)
        except BackendError as error:
            if LAST_TRACE in os.environ:
                raise CaptureError(str(error), hint=error.hint) from error
            error.reached = follower.reached
            raise

    def assemble(step: LoopStep) -> Workload:
        feed = FitInputs(batch_size=step.batch_size)
        run = replace(describe((), feed=feed), compiled=step.compiled)
        notes = [*run.notes, "planned from the step of the script's own loop"]
        return build_workload(step.model, run, options, step.traced, batch_size=step.batch_size, notes=notes)

    def save(answer: dict[str, Any]) -> None:
        files = _local_files(reference)
        _write({**answer, "files": files, "as_stated": stand_ins.is_as_stated}, result_path)

    def lower(model: Any, arguments: dict[str, Any]) -> NoReturn:
        from ..build.fit_inputs import read_fit_inputs
        from .lowering import build_answer

        feed = read_fit_inputs(arguments)
        run = describe(_fit_notes(model, arguments, feed), feed=feed)
        save(build_answer(ModelAssembler(model, run=run), options=options, request=request))
        _end()

    if request.get("lower") is not None:
        calls = SingleFit(lower, fit_call=options.fit_call, own=path.parent, folder=result_path.parent)
        follow_script(path, text=reference.text, argv=request["argv"], calls=calls)
        raise calls.build_missing_error(reference.text)
    inputs = InputMeter() if options.measures_input else None
    folder = result_path.parent
    follower = ScriptFollower(trace, assemble=assemble, own=path.parent, folder=folder, save=save, inputs=inputs)
    ended = follow_script(path, text=reference.text, argv=request["argv"], calls=follower)
    follower.save(partial=False, ended=ended)
    _end()


def _fit_notes(model: Any, arguments: dict[str, Any], feed: FitInputs) -> tuple[str, ...]:
    notes = []
    validated = arguments.get("validation_data") is not None or arguments.get("validation_split")
    if validated and feed.validation_samples is None:
        notes.append("validation after each epoch is not counted")
    if model.steps_per_execution > 1:
        notes.append(f"steps_per_execution={model.steps_per_execution} is not modelled: counted step by step")
    return tuple(notes)


def _build_model(
    reference: Reference,
    request: dict[str, Any],
    options: WorkloadOptions,
    notes: tuple[str, ...],
    stand_ins: StandInData,
) -> ModelAssembler:
    """Build the model of a reference other than a script."""
    from ..build.assemble import ModelAssembler
    from ..build.from_reference import build_model

    base = Path(request["base"])
    describe = _prepare_description(reference, request, notes, stand_ins, folder=reference.folder(base))
    model = build_model(reference, base=base, precision=options.precision)
    return ModelAssembler(model, run=describe(()))


def _prepare_description(
    reference: Reference, request: dict[str, Any], notes: tuple[str, ...], stand_ins: StandInData, *, folder: Path
) -> Callable[..., RunProperties]:
    """Skip pretrained weights from now on, and return a function that describes a run by its notes and input."""
    from ..build.assemble import RunProperties
    from .run_script import skip_pretrained_weights
    from .strategies import StrategyWatch

    skipped, strategies = skip_pretrained_weights(), StrategyWatch()

    def describe(own: tuple[str, ...], **length: Any) -> RunProperties:
        backend, compiled = _backend_note()
        return RunProperties(
            text=reference.text,
            folders=(str(folder),),
            compiled=compiled,
            notes=(*notes, backend, *own, *stand_ins.notes, *((PRETRAINED,) if skipped() else ())),
            states_devices=request["states_devices"],
            strategy=strategies.find(length["feed"].batch_size if "feed" in length else None),
            **length,
        )

    return describe


def _answer_more(
    assembler: ModelAssembler, first: dict[str, Any], result_path: Path, asked: SimpleQueue[bytes]
) -> NoReturn:
    """Write the first answer, and one for each further request about the same model, until the parent ends."""
    _write(first, result_path)
    number = 0
    while True:
        asked.get()
        number += 1
        request = (result_path.parent / f"request-{number}.json").read_bytes()
        try:
            workload = assembler.assemble(WorkloadOptions.from_json(json.loads(request)))
            answer = {"workload": workload.to_json(), "files": first["files"]}
        except GpuplanError as error:
            answer = _build_error_answer(error)
        _write(answer, result_path.parent / f"result-{number}.json")


def _local_files(reference: Reference) -> dict[str, str]:
    """Return the hash of each user file by path: the reference and the modules it imported."""
    import sysconfig

    installed = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
    own = str(Path(__file__).resolve().parents[2])
    files = {str(reference.path)} if reference.path is not None else set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not file or not file.endswith(".py") or file.startswith(installed):
            continue
        if not os.path.realpath(file).startswith(own + os.sep):
            files.add(os.path.abspath(file))
    return {file: hash_file(Path(file)) for file in sorted(files) if os.path.isfile(file)}


if __name__ == "__main__":
    try:
        main(*sys.argv[1:3])
    except MemoryError as error:
        sys.stderr.write(f"out of memory: {to_one_line(error)}\n")
        os._exit(1)
