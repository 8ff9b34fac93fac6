"""Child process of `gpuplan profile`: build a model on a backend and measure it at one batch size.

python -m gpuplan.profile.child FOLDER
"""

from __future__ import annotations

import math
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ..child_process import Parent
from ..errors import GpuplanError, UsageError
from ..profile_schema import MeasuredValues
from ..workload.capture.process import describe_for_parent
from ..workload.capture.watch import answer_with_position
from ..workload.errors import to_one_line
from ..workload.options import WorkloadOptions
from ..workload.reference import parse_reference
from .machine import describe_environment, read_backend_facts, require_device
from .measure_model import MeasuredModel, Trace, is_out_of_memory, measure_model
from .windows import MeasurementRules, Meter

if TYPE_CHECKING:
    from ..workload.capture.materialize import ExecutableModel

# Precision of float32 products on JAX by requested precision; other precisions keep JAX's default.
JAX_PRODUCTS = {"float32": "highest", "tf32": "tensorfloat32"}


def main(folder: str, trace: Trace | None = None) -> NoReturn:
    """Answer a request and end the process; `trace`: see `measure_model`."""
    parent = Parent(folder)
    parent.end_with()
    try:
        _answer(parent, trace)
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


def _send_window(parent: Parent, phase: str, meter: Meter) -> None:
    """Send the last completed window."""
    if not meter.steps_s:
        parent.send("warm", phase=phase, step_s=meter.warm[-1], settled=meter.settled)
        return
    found = meter.summary()
    parent.send(
        "window",
        phase=phase,
        step_s=meter.steps_s[-1],
        steps=meter.counts[-1],
        median_s=found["median_s"],
        width=found["width"],
    )


def wait_for_device(parent: Parent) -> None:
    """Say that everything is compiled, and wait until the device is free."""
    parent.send("prepared")
    parent.wait()


def _answer(parent: Parent, trace: Trace | None) -> None:
    request, folder = parent.request, parent.folder
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
            row = _measure(concrete, parent, facts, trace)
        except Exception as error:  # in the measurement, not in the user's code
            _fail(parent, error)
        parent.finish("done", row=row)

    with nullcontext() if reference.kind == "script" else draw_weights_quickly():
        build_and_use(reference, use, base=base, scratch=folder, options=options, argv=request["argv"])


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
    concrete: ExecutableModel, parent: Parent, facts: dict[str, Any], trace: Trace | None
) -> MeasuredValues:
    from .input_pipeline import MOST_S, measure_pipeline

    request = parent.request
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
        tell=partial(_send_window, parent),
        wait=partial(wait_for_device, parent) if request.get("wait") else None,
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
