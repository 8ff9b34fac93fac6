"""Child process: run the user's code, build and trace the model, write the result as JSON.

    python -m gpuplan.workload.capture.child FOLDER

Request and answers are plain JSON, never pickled. The last answer counts: a script has one for the phases so far.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from base64 import b64encode
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from ...child_process import Parent
from ...errors import GpuplanError
from ..backend import LAST_TRACE, get_user_backend
from ..errors import BackendError, CaptureError, DeviceCountError, to_one_line
from ..keras_layers import import_with
from ..options import DataTerms, WorkloadOptions
from ..reference import Reference, parse_reference
from .load import hash_file
from .process import answer_with_position, describe_for_parent

if TYPE_CHECKING:
    from ..build.assemble import ModelAssembler, RunProperties
    from ..build.fit_inputs import FitInputs
    from ..model import Workload
    from .training_loops import LoopStep

INTERRUPTED = 130
ELSEWHERE = "weights are allocated to trace on another backend than JAX, so the model must fit in memory"
PRETRAINED = "pretrained weights were neither downloaded nor read: their values do not change the time"


def main(folder: str) -> NoReturn:
    """Answer a request and end the process without returning to the user's code."""
    parent = Parent(folder)
    try:
        answer = _Task(parent).answer()
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
    except GpuplanError as error:
        answer = describe_for_parent(error)
    parent.finish(**answer)


# Modules that Keras imports on JAX and most models do not use: half of the time of its import.
_SELDOM_USED = (
    *("IPython", "h5py", "pandas", "requests", "rich", "rich.console", "rich.markup", "rich.table"),
    *("scipy.sparse", "scipy.sparse.linalg", "jax.experimental.pallas.ops.tpu.splash_attention"),
)


class LoadedOnUse(ModuleType):
    """A module that stands in during the import of Keras, or a part of it; each use loads the real one."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is not self:
            return resolve_name(f"{self.__name__}.{name}")
        if name == "__path__" and "." not in self.__name__:  # a module of it is imported
            del sys.modules[self.__name__]
            return import_module(self.__name__).__path__
        if name.startswith("__"):
            raise AttributeError(name)
        return LoadedOnUse(f"{self.__name__}.{name}")

    def __instancecheck__(self, one: object) -> bool:
        is_loaded = self.__name__.partition(".")[0] in sys.modules
        return is_loaded and isinstance(one, resolve_name(self.__name__))


def import_keras(backend: str, wanted_backend: str | None) -> None:
    """Import Keras on a backend, then show the user's code the backend that the user set, if any."""
    os.environ["KERAS_BACKEND"] = backend
    seldom = _SELDOM_USED if backend == "jax" else ()
    unloaded = {name: LoadedOnUse(name) for name in seldom if find_spec(name.partition(".")[0]) is not None}
    gc.disable()  # an import creates no garbage, and looking for it takes a tenth of its time
    import_with(unloaded, "keras")
    gc.freeze()
    gc.enable()
    del os.environ["KERAS_BACKEND"]
    os.environ.update({} if wanted_backend is None else {"KERAS_BACKEND": wanted_backend})


def _backend_note() -> tuple[str, bool | None]:
    """Return the note on the backend, and whether its steps are compiled (None for the model's setting)."""
    import keras

    traced = keras.backend.backend()
    stated, wanted = os.environ.get("KERAS_BACKEND"), get_user_backend() or traced
    instead = "" if traced == wanted else f"set up for the {wanted} backend; "
    if instead and stated is None:
        instead = f"planned for {wanted}, on which Keras runs here (with KERAS_BACKEND=jax, for TPUs too); "
    if traced == "jax":
        how = f"traced with Keras on JAX{', whose layers do the same work' if instead else ''}"
    else:
        how = f"traced on the {traced} backend, since its step cannot be traced on JAX"
    return f"{instead}{how}", False if wanted == "torch" else None


class _Task:
    """The run of a reference, as a request asks for it."""

    def __init__(self, parent: Parent) -> None:
        self._parent, request = parent, parent.request
        self._request, self._folder = request, parent.folder
        self._options = WorkloadOptions(**request["options"])
        self._base = Path(request["base"])
        self._reference = parse_reference(request["reference"], base=self._base)
        self._own = self._reference.folder(self._base)
        parent.end_with()

    def answer(self) -> dict[str, Any]:
        """Run the user's code, and return the answer unless it was written."""
        import_keras(self._request["trace_on"], self._request["backend"])
        if self._reference.kind != "script":
            gc.disable()  # building and tracing a model leaves no garbage either
        from ..build.assemble import ModelAssembler
        from ..build.from_reference import build_model
        from .devices import StrategyWatch, follow_mesh
        from .follow import skip_pretrained_weights
        from .materialize import NOT_ABSTRACT, abstract_variables, set_precision
        from .stand_in_data import StandInData

        on_jax, folder = self._request["trace_on"] == "jax", self._folder
        set_precision(self._options.precision)
        answer_with_position(folder)
        self._stand_ins = StandInData(DataTerms(**self._request["data"]), folder=folder, own=self._own).install()
        if on_jax:
            follow_mesh(self._need_devices, given=self._options.devices is not None)
        with abstract_variables() if on_jax else contextlib.nullcontext(False) as works:
            self._notes = () if works else (NOT_ABSTRACT if on_jax else ELSEWHERE,)
            self._skipped, self._strategies = skip_pretrained_weights(), StrategyWatch()
            if self._reference.kind == "script":
                self._run_script()
            model = build_model(self._reference, base=self._base, precision=self._options.precision)
            assembler = ModelAssembler(model, run=self._describe(()))
            files = _local_files(self._reference)
            answer = {"event": "answer", **self._build_answer(assembler), "files": files}
            while self._request["keeps"]:  # one answer more for each further request about the model
                self._parent.send(**answer)
                options = WorkloadOptions(**self._parent.wait())
                try:
                    workload = assembler.assemble(options).to_json()
                    answer = {"event": "answer", "workload": workload, "files": files}
                except GpuplanError as error:
                    answer = describe_for_parent(error)
            return answer

    def _need_devices(self, devices: int, takes_all: bool) -> NoReturn:
        message = f"`{self._reference.text}` asks for {devices} devices"
        error = DeviceCountError(message, devices=devices, takes_all=takes_all)
        self._parent.finish(**describe_for_parent(error))

    def _describe(self, own: tuple[str, ...], **length: Any) -> RunProperties:
        from ..build.assemble import RunProperties

        backend, compiled = _backend_note()
        pretrained = (PRETRAINED,) if self._skipped() else ()
        return RunProperties(
            text=self._reference.text,
            folders=(str(self._own),),
            compiled=compiled,
            notes=(*self._notes, backend, *own, *self._stand_ins.notes, *pretrained),
            states_devices=self._request["states_devices"],
            strategy=self._strategies.find(length["feed"].batch_size if "feed" in length else None),
            **length,
        )

    def _build_assembler(self, model: Any, feed: FitInputs, arguments: dict[str, Any]) -> ModelAssembler:
        from ..build.assemble import ModelAssembler

        notes = []
        validated = arguments.get("validation_data") is not None or arguments.get("validation_split")
        if validated and feed.validation_samples is None:
            notes.append("validation after each epoch is not counted")
        if model.steps_per_execution > 1:
            notes.append(f"steps_per_execution={model.steps_per_execution} is not modelled: counted step by step")
        return ModelAssembler(model, run=self._describe(tuple(notes), feed=feed))

    def _run_script(self) -> NoReturn:
        """Follow a script, and write the answer of all its phases, or the lowered step of one of them."""
        from .feeding import InputMeter
        from .follow import follow_one_fit, follow_script
        from .phases import ScriptFollower

        path, folder = self._reference.path or Path(), self._folder
        how: dict[str, Any] = {"text": self._reference.text, "argv": self._request["argv"]}
        if self._request.get("lower") is not None:
            follow_one_fit(path, self._lower, fit_call=self._options.fit_call, folder=folder, **how)
        self._follower = ScriptFollower(
            self._trace,
            assemble=self._assemble_loop,
            own=self._own,
            folder=folder,
            save=self._save,
            inputs=InputMeter() if self._options.measures_input else None,
        )
        ended = follow_script(path, calls=self._follower, **how)
        self._follower.save(partial=False, ended=ended)
        self._parent.end()

    def _trace(self, model: Any, feed: FitInputs, arguments: dict[str, Any]) -> Workload:
        try:
            return self._build_assembler(model, feed, arguments).assemble(self._options)
        except BackendError as error:
            if LAST_TRACE in os.environ:
                raise CaptureError(str(error), hint=error.hint) from error
            error.reached = self._follower.reached
            raise

    def _assemble_loop(self, step: LoopStep) -> Workload:
        from ..build.assemble import build_workload
        from ..build.fit_inputs import FitInputs

        size = step.batch_size
        run = replace(self._describe((), feed=FitInputs(batch_size=size)), compiled=step.compiled)
        notes = [*run.notes, "planned from the step of the script's own loop"]
        return build_workload(step.model, run, self._options, step.traced, batch_size=size, notes=notes)

    def _lower(self, model: Any, arguments: dict[str, Any]) -> NoReturn:
        from ..build.fit_inputs import read_fit_inputs

        self._save(self._build_answer(self._build_assembler(model, read_fit_inputs(arguments), arguments)))
        self._parent.end()

    def _save(self, answer: dict[str, Any]) -> None:
        files = _local_files(self._reference)
        self._parent.send("answer", **answer, files=files, as_stated=self._stand_ins.is_as_stated)

    def _build_answer(self, assembler: ModelAssembler) -> dict[str, Any]:
        """Return the traced workload, or the lowered step."""
        from .materialize import lower_model

        if (platform := self._request["lower"]) is None:
            return {"workload": assembler.assemble(self._options).to_json()}
        module = lower_model(assembler.model, assembler.run, self._options, platform=platform)
        return {"module": b64encode(module).decode()}


def _local_files(reference: Reference) -> dict[str, str]:
    """Return the hash of each user file by path: the reference and the modules it imported."""
    import sysconfig

    installed = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
    own = str(Path(__file__).resolve().parents[2])
    files = {str(reference.path)} if reference.path is not None else set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None) or ""
        is_own = file.endswith(".py") and not file.startswith(installed)
        if is_own and not os.path.realpath(file).startswith(own + os.sep):
            files.add(os.path.abspath(file))
    return {file: hash_file(Path(file)) for file in sorted(files) if os.path.isfile(file)}


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except MemoryError as error:
        sys.stderr.write(f"out of memory: {to_one_line(error)}\n")
        os._exit(1)
