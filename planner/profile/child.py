"""Child process of `gpuplan profile`: build a model on a backend and measure it at one batch size.

    python -m gpuplan.profile.child request.json

Messages go to the original stdout, one JSON object per line; output of the user's code goes to stderr. The process
ends when its stdin is closed, so that it never outlives its parent.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import GpuplanError, UsageError
from ..profile_schema import MeasuredValues
from ..workload.capture.watch import answer_with_position, end_with_parent
from ..workload.errors import CaptureError, to_one_line
from ..workload.options import WorkloadOptions
from ..workload.reference import parse_reference
from .device_probe import require_device
from .machine import describe_environment, read_backend_facts
from .measure_model import MeasuredModel, Trace, is_out_of_memory, measure_model
from .windows import MeasurementRules, Meter

if TYPE_CHECKING:
    from ..workload.capture.materialize import ExecutableModel
    from ..workload.capture.timed_loop import TimedLoop

STDOUT, STDERR = 1, 2
# Precision of float32 products on JAX by requested precision; other precisions keep JAX's default.
JAX_PRODUCTS = {"float32": "highest", "tf32": "tensorfloat32"}


def main(request_path: str, trace: Trace | None = None) -> NoReturn:
    """Answer a request and end the process; `trace`: see `measure_model`."""
    parent, path = Parent(), Path(request_path)
    try:
        _answer(json.loads(path.read_text(encoding="utf-8")), parent, path.parent, trace)
    except Exception as error:
        parent.fail(error)
    parent.finish("failed", kind="failed", message="the model was never measured", hint=None)


class Parent:
    """The parent process, at the original stdin and stdout; the user's code gets an empty stdin, and stderr."""

    def __init__(self) -> None:
        """Take over the streams; the process ends with its parent from now on."""
        self._written = end_with_parent()
        self._out = os.fdopen(os.dup(STDOUT), "w", buffering=1, encoding="utf-8")
        os.dup2(STDERR, STDOUT)

    def send(self, event: str, **message: Any) -> None:
        """Send a message."""
        self._out.write(json.dumps({"event": event, **message}) + "\n")

    def wait_for_device(self) -> None:
        """Say that everything is compiled, and wait until the device is free."""
        self.send("prepared")
        self._written.get()

    def finish(self, event: str, **message: Any) -> NoReturn:
        """Send the last message and end the process without returning to the user's code."""
        self.send(event, **message)
        self._out.flush()
        sys.stderr.flush()
        os._exit(0)

    def fail(self, error: Exception) -> NoReturn:
        """Send an error, with its traceback on stderr unless the user can fix it, and end the process."""
        if isinstance(error, GpuplanError):
            kind = "usage" if isinstance(error, UsageError) else "capture"
            self.finish("failed", kind=kind, message=str(error), hint=error.hint)
        traceback.print_exception(error)
        kind = "out_of_memory" if is_out_of_memory(error) else "failed"
        self.finish("failed", kind=kind, message=f"{type(error).__name__}: {to_one_line(error)}", hint=None)

    def send_window(self, phase: str, meter: Meter) -> None:
        """Send the last completed window."""
        if not meter.steps_s:
            self.send("warm", phase=phase, step_s=meter.warm[-1], settled=meter.settled)
            return
        found = meter.summary()
        self.send(
            "window",
            phase=phase,
            step_s=meter.steps_s[-1],
            steps=meter.counts[-1],
            median_s=found["median_s"],
            width=found["width"],
        )


def _answer(request: dict[str, Any], parent: Parent, folder: Path, trace: Trace | None) -> None:
    options = WorkloadOptions.from_json(request["options"])
    base = Path(request["base"])
    reference = parse_reference(request["reference"], base=base)
    started_s = time.perf_counter()
    import keras  # noqa: F401  (timed separately: it loads the backend)

    facts = {"import_s": time.perf_counter() - started_s}
    from ..workload.capture.materialize import build_and_use, set_precision

    require_device(read_backend_facts(request["backend"]), request["device"])
    set_precision(options.precision)
    facts |= set_products(request["backend"], options.precision)
    answer_with_position(folder)
    started_s = time.perf_counter()

    def use(concrete: ExecutableModel) -> NoReturn:
        facts["build_s"] = time.perf_counter() - started_s
        try:
            row = _measure(concrete, request, parent, facts, trace)
        except Exception as error:  # in the measurement, not in the user's code
            parent.fail(error)
        parent.finish("done", row=row)

    meter = Meter(MeasurementRules(**request["rules"]))
    loop = None
    if request.get("brief") and not options.fit_call:
        loop = _time_loop(str(reference.folder(base)), meter, request, parent, facts)
    try:
        with nullcontext() if reference.kind == "script" else draw_weights_quickly():
            build_and_use(
                reference, use, base=base, scratch=folder, options=options, argv=request["argv"], loop=loop
            )
    except CaptureError:  # the script ended, maybe after steps of a loop of its own
        if not meter.warm:
            raise
        if meter.pause():
            parent.send_window("fit", meter)
        parent.finish("done", row={})


def _time_loop(
    folder: str, meter: Meter, request: dict[str, Any], parent: Parent, facts: dict[str, Any]
) -> TimedLoop:
    """Return what times a loop of a script's own with a meter, and ends the process when it is done."""
    from ..workload.capture.timed_loop import TimedLoop

    elapsed_s = 0.0

    def prepare(batch_size: int) -> None:
        environment = describe_environment(request["backend"])
        parent.send("ready", batch_size=batch_size, environment=environment, facts=facts)
        parent.wait_for_device()
        meter.ended(elapsed_s)

    def add(step_s: float) -> None:
        nonlocal elapsed_s
        elapsed_s += step_s
        if meter.ended(elapsed_s):
            parent.send_window("fit", meter)
        if meter.done:
            parent.finish("done", row={})

    return TimedLoop(folder, prepare=prepare, add=add)


@contextmanager
def draw_weights_quickly() -> Iterator[None]:
    """Let random initializers draw from NumPy, with variance one over the inputs of a unit.

    JAX compiles one program for each shape of each initializer, which takes minutes for large models. The time of
    a step does not depend on the distribution.
    """
    import keras
    import numpy as np

    random = np.random.default_rng(0)

    def draw(self: Any, shape: Any, dtype: Any = None, **_: Any) -> Any:
        scale = 1 / math.sqrt(max(1, math.prod(shape[:-1])))
        return keras.ops.convert_to_tensor(scale * random.standard_normal(shape, dtype=np.float32), dtype)

    names = ("VarianceScaling", "RandomNormal", "RandomUniform", "TruncatedNormal", "Orthogonal")
    kinds = [getattr(keras.initializers, name) for name in names]
    before = [kind.__call__ for kind in kinds]
    try:
        for kind in kinds:
            kind.__call__ = draw
        yield
    finally:
        for kind, call in zip(kinds, before, strict=True):
            kind.__call__ = call


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


def _measure(
    concrete: ExecutableModel, request: dict[str, Any], parent: Parent, facts: dict[str, Any], trace: Trace | None
) -> MeasuredValues:
    from .input_pipeline import MOST_S, measure_pipeline

    model, backend, mode = concrete.model, request["backend"], request["options"]["mode"]
    own, batch_size = request["data"] == "script", concrete.batch_size
    if own and concrete.arguments is None:
        raise UsageError("--data script: the model does not come from a script", hint="omit `--data`")
    started_s = time.perf_counter()
    data = _draw_arrays(concrete, few=own)
    facts["draw_data_s"] = time.perf_counter() - started_s
    facts |= {"parameters": model.count_params(), "samples": concrete.samples, "notes": list(concrete.notes)}
    facts["precision"] = str(model.dtype_policy.name)
    for name, value in request.get("trainer", {}).items():
        setattr(model, name, value)
    facts["jit_compile"] = (backend != "torch" or "trainer" in request) and bool(model.jit_compile)
    parent.send("ready", batch_size=batch_size, environment=describe_environment(backend), facts=facts)
    rules = MeasurementRules(**request["rules"])
    fed = (concrete.arguments or {}) if own else {}
    pipeline = None
    if own and mode == "train" and request["pipeline"]:
        pipeline = measure_pipeline(fed, batch_size=batch_size, most_s=min(MOST_S, rules.most_s))
    values = measure_model(
        MeasuredModel(
            model=model,
            data=data,
            batch_size=batch_size,
            backend=backend,
            mode=mode,
            brief=request.get("brief", False),
            fed=fed,
        ),
        rules=rules,
        tell=parent.send_window,
        wait=parent.wait_for_device if request.get("wait") else None,
        trace=trace,
    )
    values["prepare"] |= facts
    return values | {"pipeline": pipeline, "batch_size": batch_size}


def _draw_arrays(concrete: ExecutableModel, *, few: bool) -> tuple[Any, Any, Any]:
    """Draw random x, y and sample weights; `few`: only one batch, because the script provides the data."""
    from .input_pipeline import compute_sample_bytes, compute_samples_to_draw, draw_inputs, draw_targets

    size = compute_sample_bytes(concrete.x, concrete.y, concrete.sample_weight)
    count = concrete.batch_size
    if not few:
        count = compute_samples_to_draw(batch_size=count, bytes_per_sample=size, known=concrete.samples)
    x = draw_inputs(concrete.x, samples=count, model=concrete.model)
    y = draw_targets(concrete.y, samples=count, output=concrete.output)
    weight = draw_targets(concrete.sample_weight, samples=count, output=concrete.output)
    return x, y, weight


if __name__ == "__main__":
    main(sys.argv[1])
