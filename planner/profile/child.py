"""Child process of `gpuplan profile`: build a model on a backend, and measure `fit()` and its step alone.

python -m gpuplan.profile.child FOLDER
"""

from __future__ import annotations

import math
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from ..child_process import Parent
from ..errors import GpuplanError, UsageError
from ..profile_schema import MeasuredValues
from ..records import Frozen
from ..workload.capture.process import answer_with_position, describe_for_parent
from ..workload.errors import CaptureError, to_one_line
from ..workload.options import WorkloadOptions
from ..workload.reference import parse_reference
from .machine import (
    describe_environment,
    read_backend_facts,
    read_device_peak_bytes,
    read_resident_peak_bytes,
    require_device,
)
from .windows import MeasurementRules, Meter, time_windows

if TYPE_CHECKING:
    from ..workload.capture.materialize import ExecutableModel
    from .recorder import StepRecorder

Tell = Callable[[str, Meter], None]
Trace = Callable[[str, "Stepper"], dict[str, Any]]
# Messages of the frameworks for exhausted memory.
OUT_OF_MEMORY = (
    "RESOURCE_EXHAUSTED", "out of memory", "OutOfMemory", "Out of memory", "OOM when allocating",
    "Failed to allocate", "can't allocate memory", "not enough memory", "Unable to allocate",
)  # fmt: skip
EPOCHS_MEASURED = 3
SHORT_EPOCH_STEPS = 4
MANY_EPOCHS = 10**6
# Precision of float32 products on JAX by requested precision; other precisions keep JAX's default.
JAX_PRODUCTS = {"float32": "highest", "tf32": "tensorfloat32"}


def main(folder: str, trace: Trace | None = None) -> NoReturn:
    """Answer a request and end the process; `trace`: see `measure_model`."""
    parent = Parent(folder)
    parent.end_with()
    try:
        _Measurement(parent, trace).answer()
    except Exception as error:
        _fail(parent, error)
    parent.finish("failed", kind="failed", message="the model was never measured")


def _fail(parent: Parent, error: Exception) -> NoReturn:
    """Send an error, with its traceback on stderr unless the user can fix it, and end the process."""
    if isinstance(error, GpuplanError):
        parent.finish(**describe_for_parent(error))
    traceback.print_exception(error)
    kind = "out_of_memory" if is_out_of_memory(error) else "failed"
    parent.finish("failed", kind=kind, message=f"{type(error).__name__}: {to_one_line(error)}")


def wait_for_device(parent: Parent) -> None:
    """Say that everything is compiled, and wait until the device is free."""
    parent.send("prepared")
    parent.wait()


class _Measurement:
    """The measurement that a request asks for."""

    def __init__(self, parent: Parent, trace: Trace | None) -> None:
        self._parent, self._request, self._trace = parent, parent.request, trace
        self._options = WorkloadOptions(**self._request["options"])
        self._meter = Meter(MeasurementRules(**self._request["rules"]))  # of a loop of the script's own
        self._loop_s = 0.0
        self._facts: dict[str, Any] = {}  # on the preparation

    def answer(self) -> None:
        """Build the model, and measure it; return where that never happens."""
        request, options, base = self._request, self._options, Path(self._request["base"])
        reference = parse_reference(request["reference"], base=base)
        started_s = time.perf_counter()
        import keras  # noqa: F401  (timed separately: it loads the backend)

        self._facts["import_s"] = time.perf_counter() - started_s
        from ..workload.capture.materialize import build_and_use, set_precision
        from ..workload.capture.training_loops import TimedLoop

        require_device(read_backend_facts(request["backend"]), request["device"])
        set_precision(options.precision)
        self._facts |= set_products(request["backend"], options.precision)
        answer_with_position(self._parent.folder)
        self._started_s = time.perf_counter()
        loop = TimedLoop(str(reference.folder(base)), prepare=self._prepare_loop, add=self._add_step)
        how: dict[str, Any] = {"base": base, "scratch": self._parent.folder, "argv": request["argv"]}
        how["loop"] = loop if request.get("brief") and not options.fit_call else None
        try:
            with nullcontext() if reference.kind == "script" else draw_weights_quickly():
                build_and_use(reference, self._use, options=options, **how)
        except CaptureError:  # the script ended, maybe after steps of a loop of its own
            if not self._meter.warm:
                raise
            if self._meter.pause():
                self._send_window("fit", self._meter)
            self._parent.finish("done", row={})

    def _send_window(self, phase: str, meter: Meter) -> None:
        """Send the last completed window."""
        if not meter.steps_s:
            self._parent.send("warm", phase=phase, step_s=meter.warm[-1], settled=meter.settled)
            return
        found = meter.summary()
        window = {"steps": meter.counts[-1], "median_s": found["median_s"], "width": found["width"]}
        self._parent.send("window", phase=phase, step_s=meter.steps_s[-1], **window)

    def _send_ready(self, batch_size: int) -> None:
        environment = describe_environment(self._request["backend"])
        self._parent.send("ready", batch_size=batch_size, environment=environment, facts=self._facts)

    # --- a loop of the script's own ---------------------------------------------------------------------------

    def _prepare_loop(self, batch_size: int) -> None:
        self._send_ready(batch_size)
        wait_for_device(self._parent)
        self._meter.ended(self._loop_s)

    def _add_step(self, step_s: float) -> None:
        self._loop_s += step_s
        if self._meter.ended(self._loop_s):
            self._send_window("fit", self._meter)
        if self._meter.done:
            self._parent.finish("done", row={})

    # --- a model ----------------------------------------------------------------------------------------------

    def _use(self, concrete: ExecutableModel) -> NoReturn:
        self._facts["build_s"] = time.perf_counter() - self._started_s
        try:
            row = self._measure(concrete)
        except Exception as error:  # in the measurement, not in the user's code
            _fail(self._parent, error)
        self._parent.finish("done", row=row)

    def _measure(self, concrete: ExecutableModel) -> MeasuredValues:
        from .input_pipeline import MOST_S, draw_data, measure_pipeline

        request, rules, facts = self._request, self._meter.rules, self._facts
        model, backend = concrete.model, request["backend"]
        own, batch_size = request["data"] == "script", concrete.batch_size
        if own and concrete.arguments is None:
            raise UsageError("--data script: the model does not come from a script", hint="omit `--data`")
        started_s = time.perf_counter()
        data = draw_data(concrete, few=own)
        facts["draw_data_s"] = time.perf_counter() - started_s
        facts |= {
            "parameters": model.count_params(),
            "samples": concrete.samples,
            "notes": list(concrete.notes),
            "precision": str(model.dtype_policy.name),
        }
        for name, value in request.get("trainer", {}).items():
            setattr(model, name, value)
        facts["jit_compile"] = (backend != "torch" or "trainer" in request) and bool(model.jit_compile)
        self._send_ready(batch_size)
        subject = MeasuredModel(
            model=model,
            data=data,
            batch_size=batch_size,
            fed=(concrete.arguments or {}) if own else {},
            backend=backend,
            mode=self._options.mode,
            brief=request.get("brief", False),
        )
        pipeline = None
        if own and request["pipeline"]:
            most_s = min(MOST_S, rules.most_s)
            pipeline = [measure_pipeline(subject.fed, batch_size=batch_size, most_s=most_s)]
        wait = partial(wait_for_device, self._parent) if request.get("wait") else None
        values = measure_model(subject, rules=rules, tell=self._send_window, wait=wait, trace=self._trace)
        values["prepare"] |= facts
        return values | {"pipeline": pipeline, "batch_size": batch_size}


def draw_weights_quickly() -> AbstractContextManager[None]:
    """Return a context in which random initializers draw from NumPy, with variance one over the inputs of a unit.

    JAX compiles one program for each shape of each initializer, which takes minutes for large models. The time of
    a step does not depend on the distribution.
    """
    import keras
    import numpy as np

    from ..workload.keras_layers import replacing

    random = np.random.default_rng(0)

    def draw(self: Any, shape: Any, dtype: Any = None, **_: Any) -> Any:
        scale = 1 / math.sqrt(max(1, math.prod(shape[:-1])))
        return keras.ops.convert_to_tensor(scale * random.standard_normal(shape, dtype=np.float32), dtype)

    names = ("VarianceScaling", "RandomNormal", "RandomUniform", "TruncatedNormal", "Orthogonal")
    return replacing(*((getattr(keras.initializers, name), "__call__", draw) for name in names))


def set_products(backend: str, precision: str | None) -> dict[str, Any]:
    """Set the precision of float32 products if float32 or TF32 was requested, and return the setting."""
    if precision not in JAX_PRODUCTS:
        return {"float32_products": None}
    if backend == "jax":
        import jax

        jax.config.update("jax_default_matmul_precision", JAX_PRODUCTS[precision])
        return {"float32_products": JAX_PRODUCTS[precision]}
    if backend == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")
    else:
        import torch

        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
    return {"float32_products": precision}


# --- the measurement ---------------------------------------------------------------------------------------


class MeasuredModel(Frozen):
    """A model and its input, to be measured."""

    model: Any  # a compiled Keras model
    data: tuple[Any, Any, Any]  # `(x, y, sample_weight)` as NumPy arrays of many samples; None where not given
    batch_size: int  # samples of a step [-]
    # arguments of the script's own `fit()`, to use its data; if empty, ``data`` is used
    fed: Mapping[str, Any] = field(default_factory=dict)
    backend: str  # Keras backend
    mode: Literal["train", "infer"] = "train"  # training or inference
    # whether the steps of the loop are all that is measured: neither the step alone nor epochs
    brief: bool = False

    @property
    def first_batch(self) -> tuple[Any, ...]:
        """The first batch, in the form a step takes."""
        import keras

        x, y, weight = keras.tree.map_structure(
            lambda array: None if array is None else array[: self.batch_size], self.data
        )
        if self.mode == "infer":
            return (x,)
        return (x, y) if weight is None else (x, y, weight)

    def run(self, meter: Meter, *, epochs: int = 1, **how: Any) -> StepRecorder:
        """Run `fit()`, or `predict()` once, and return what recorded its steps, by the arguments `how`."""
        from .recorder import PredictRecorder, StepRecorder

        x, y, weight = self.data
        if self.mode == "infer":
            recorder: StepRecorder = PredictRecorder(meter, **how)
            self.model.predict(x, batch_size=self.batch_size, verbose=0, callbacks=[recorder])
            return recorder
        recorder = StepRecorder(meter, **how)
        given = {"x": x, "y": y, "sample_weight": weight, "batch_size": self.batch_size}
        if self.fed:
            from ..workload.capture.feeding import INPUT_ARGUMENTS

            names = (*INPUT_ARGUMENTS, "validation_split")
            given = {name: self.fed[name] for name in names if self.fed.get(name) is not None}
            given["validation_freq"] = MANY_EPOCHS + 1  # none
        self.model.fit(**given, epochs=epochs, verbose=0, callbacks=[recorder])
        return recorder


def measure_model(
    subject: MeasuredModel,
    *,
    rules: MeasurementRules,
    tell: Tell,
    wait: Callable[[], None] | None = None,
    trace: Trace | None = None,
) -> MeasuredValues:
    """Measure a configuration: times, warm-up, raw samples, memory.

    Args:
        subject: Model to measure; it is unusable afterwards.
        rules: Rules to start and stop.
        tell: Callback after each window, with the phase (`fit`, `step`) and the meter.
        wait: Called after a first step, which compiles; what follows has the device to itself. None: in one go.
        trace: Called at the end with backend and step alone; returns the kernels of the step.
    """
    before_bytes = read_resident_peak_bytes()
    first = None
    if wait is not None:
        one = replace(subject, data=(*subject.first_batch, None, None)) if subject.mode == "infer" else subject
        first = one.run(Meter(rules), most_steps=1)
        wait()
    meter = Meter(rules)
    how: dict[str, Any] = {"stop": True, "on_window": partial(tell, "fit")}
    loop = subject.run(meter, epochs=MANY_EPOCHS, **how)
    while subject.mode == "infer" and not meter.done:
        subject.run(meter, **how)
    first_s = (first or loop).first_step_s
    middle_s = meter.summary()["median_s"] if meter.steps_s else None
    beside_s = None
    if middle_s is not None and subject.mode == "train" and not subject.fed and not subject.brief:
        beside_s = _measure_epochs(subject, middle_s, loop)
    values: MeasuredValues = {
        "fit": meter.to_json(),
        "prepare": {
            "first_step_s": first_s,
            "compile_s": None if first_s is None or middle_s is None else max(first_s - middle_s, 0.0),
        },
        "epoch": {"beside_steps_s": beside_s},
        "step": None,
    }
    stepper = None if subject.brief else build_stepper(subject)
    if stepper is not None:
        alone, on_window = Meter(rules), partial(tell, "step")
        start, wait_for_all, steps = stepper.step, stepper.synchronize, stepper.steps
        time_windows(start, wait_for_all, meter=alone, steps_per_call=steps, on_window=on_window)
        values["step"] = alone.to_json()
    peak_bytes = read_resident_peak_bytes()
    values["memory"] = {
        "device_peak_bytes": read_device_peak_bytes(subject.backend),
        "host_peak_bytes": peak_bytes,
        "host_growth_bytes": peak_bytes - before_bytes,
    }
    if stepper is not None and trace is not None:
        values["kernels"] = trace(subject.backend, stepper)
    return values


def _measure_epochs(subject: MeasuredModel, step_s: float, loop: StepRecorder) -> float | None:
    """Return the time of an epoch outside its steps [s]: shuffling, starting the iterator, collecting logs.

    The median of the loop's whole epochs, extended by short ones if it ran only a few: occasionally an epoch of
    TensorFlow waits up to seconds for its iterator, which too few epochs would misrepresent.
    """
    epochs = loop.epochs[1:-1]  # without the first (compilation) and the last (interrupted)
    for _ in range(EPOCHS_MEASURED - len(epochs)):
        epochs += subject.run(Meter(loop.meter.rules), most_steps=SHORT_EPOCH_STEPS).epochs[:1]
    beside = [
        epoch.first_s - epoch.began_s - step_s + epoch.ended_s - epoch.last_s
        for epoch in epochs
        if epoch.first_s is not None and epoch.last_s is not None and epoch.ended_s is not None
    ]
    return statistics.median(beside) if beside else None


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error reports exhausted memory.

    Example:
        >>> is_out_of_memory(RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes"))
        True
    """
    return isinstance(error, MemoryError) or any(text in str(error) for text in OUT_OF_MEMORY)


@dataclass(frozen=True, slots=True)
class Stepper:
    """A call of the compiled function: its start, the wait for all that were started, and its steps [-]."""

    step: Callable[[], None]
    synchronize: Callable[[], None]
    steps: int = 1


def build_stepper(subject: MeasuredModel) -> Stepper | None:
    """Build a stepper from the trainer's own compiled step on the first batch, after `fit()` or `predict()`.

    It excludes reading and copying data, callbacks and logs. The model is unusable afterwards: its weights
    are updated only within the stepper. None on several devices, whose batches the loop distributes.
    """
    import keras

    if keras.distribution.distribution() is not None:
        return None
    model = subject.model
    data = keras.tree.map_structure(keras.ops.convert_to_tensor, subject.first_batch)
    if subject.mode == "train":
        model.make_train_function()
        function = model.train_function
    else:
        model.make_predict_function()
        function = model.predict_function
    if subject.backend == "jax":
        return _build_jax_stepper(model, function, data, is_training=subject.mode == "train")
    steps = int(model.steps_per_execution)
    batches, logs = [data] * steps, [None]

    def step() -> None:
        logs[0] = function(batches)

    def copy_to_host() -> None:  # which waits for all tensors
        for leaf in keras.tree.flatten(logs[0]):
            if hasattr(leaf, "numpy"):
                leaf.numpy()

    return Stepper(step, copy_to_host if subject.backend == "tensorflow" else get_torch_synchronize(), steps)


def _build_jax_stepper(model: Any, function: Any, data: Any, *, is_training: bool) -> Stepper:
    """Step from state to state, each donated to the next step, as in `fit()`."""
    import jax

    groups = [model.trainable_variables, model.non_trainable_variables]
    if is_training:
        groups += [model.optimizer.variables, model.metrics_variables]
    kept: list[Any] = [tuple([variable.value for variable in group] for group in groups), None]
    batches = repeat(data)

    def step() -> None:
        kept[1], kept[0] = function(kept[0], batches)

    return Stepper(step, lambda: jax.block_until_ready(kept), int(model.steps_per_execution))


def get_torch_synchronize() -> Callable[[], None]:
    import torch

    return torch.cuda.synchronize if torch.cuda.is_available() else lambda: None


if __name__ == "__main__":
    main(sys.argv[1])
