"""Surface of predictions: models x modes x precisions x compiled or not x batch sizes x accelerators."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any, Literal

from gpuplan.offers.rows import Accelerator
from gpuplan.predict.executed_ops import Execution, find_keras_execution
from gpuplan.predict.kernel_table import CONTRACTIONS
from gpuplan.predict.predictor import Predictor
from gpuplan.predict.resize import can_resize, interpolate_workload
from gpuplan.predict.run_config import compute_memory_pressure
from gpuplan.predict.step_time import StepTime
from gpuplan.records import Frozen
from gpuplan.units import GIGA, TERA
from gpuplan.workload.capture.load import load_workload
from gpuplan.workload.model import Workload
from gpuplan.workload.options import WorkloadOptions

from .physical_bound import LeastWork, compute_bound_s, count_least_work

Mode = Literal["train", "infer"]
Progress = Callable[[str], None]

# Convolutional networks of every kind (residual, depthwise, plain, dense, many filter sizes, large filters),
# transformers (encoder, decoder, vision), a recurrent network, and one whose arrays stay large.
MODELS = (
    "keras.applications.ResNet50", "keras.applications.MobileNetV2", "keras.applications.EfficientNetB0",
    "keras.applications.VGG16", "keras.applications.DenseNet121", "keras.applications.InceptionV3",
    "keras.applications.ConvNeXtTiny", "language.py:bert_classification", "language.py:mpt?sequence_length=1024",
    "vision_transformer.py:vit", "recurrent.py:lstm_language_model", "vision_unet.py:nnunet_2d",
)  # fmt: skip
MODES: tuple[Mode, ...] = ("train", "infer")
PRECISIONS = ("float32", "tf32", "mixed_float16", "mixed_bfloat16")
BATCHES = tuple(2**power for power in range(10))
DEVICES = (2, 4, 8)
LAUNCH_S, DISPATCH_S = 1e-5, 1e-4  # of a kernel, and by the host if nothing is compiled: more than is fitted
TRACED = (256, 32)  # batch sizes; all others lie on the line through both
# tf32 is float32 whose products may run on other units: one trace serves both.
POLICIES = {name: "float32" if name == "tf32" else name for name in PRECISIONS}
TRACED_POLICIES = tuple(dict.fromkeys(POLICIES.values()))


class Model(Frozen):
    """A model, traced at two batch sizes.

    Args:
        name: Reference of the model.
        traces: By mode and dtype policy, at the batch sizes of `TRACED`.
    """

    name: str
    traces: Mapping[tuple[Mode, str], tuple[Workload, Workload]]

    def workload(self, mode: Mode, precision: str, batch_size: int) -> Workload:
        """Return the workload at a batch size."""
        one, other = self.traces[mode, POLICIES[precision]]
        found = interpolate_workload(one, other, batch_size=batch_size)
        return replace(found, precision=precision, tf32="none")


def trace_models(
    names: Sequence[str], *, policies: Sequence[str] = TRACED_POLICIES, use_cache: bool, progress: Progress
) -> Iterator[Model]:
    """Trace models, as many runs at a time as there are cores.

    Args:
        names: References, relative to `profiles/published`.
        policies: Dtype policies; precisions of others are not predicted.
        use_cache: Whether traces are read from and written to the user's cache.
        progress: Is told what is being traced.

    Raises:
        ValueError: A model has other operations at another batch size, so that no line can be drawn.
    """
    base = Path(str(resources.files("gpuplan.profiles.published")))

    def trace(key: tuple[str, Mode, str, int]) -> Workload:
        name, mode, policy, batch = key
        options = WorkloadOptions(batch_size=batch, precision=policy, mode=mode, use_cache=use_cache)
        return load_workload(name, options=options, base=base)

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for name in names:
            progress(f"tracing {name}")
            runs = list(product(MODES, policies))
            keys = [(name, mode, policy, batch) for mode, policy in runs for batch in TRACED]
            found = iter(pool.map(trace, keys))
            traces = {run: _align(next(found), next(found)) for run in runs}
            for one, other in traces.values():
                if not can_resize(one, other):
                    raise ValueError(f"{name} has other operations at batch {other.batch_size}")
            yield Model(name=name, traces=traces)


def _align(one: Workload, other: Workload) -> tuple[Workload, Workload]:
    """Return two traces with the names of the first.

    Which of several equal primitives a row is named after may depend on the sizes; no time depends on the name.
    """
    if len(one.ops) != len(other.ops):
        return one, other
    ops = (replace(b, name=a.name) for a, b in zip(one.ops, other.ops, strict=True))
    return one, replace(other, ops=tuple(ops))


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """Predictions for one model; NaN where there is none.

    All arrays are [modes, precisions, compiled, batches, accelerators], compiled in the order of `COMPILED`.

    Args:
        model: Reference of the model.
        accelerators: Of the last axis.
        batches: Of the axis before it [-].
        mid_s, low_s: The central estimate, and the low end of its interval [s].
        devices_s: The central estimate on several devices with the same batch each, by number of devices [s].
        bound_s: No device can be faster [s]; see `physical_bound`.
        pressure: Memory needed over memory usable; 0 where the memory is not known [-].
        compute_heavy: Whether products at the datasheet's peak for float32 take longer than all launches, and all
            traffic of the step at the datasheet's bandwidth, together.
        launches: Kernels of the step [-].
        streamed_bytes: Traffic of all kernels but products [bytes].
    """

    model: str
    accelerators: tuple[Accelerator, ...]
    batches: tuple[int, ...]
    mid_s: Any
    low_s: Any
    devices_s: Mapping[int, Any]
    bound_s: Any
    pressure: Any
    compute_heavy: Any
    launches: Any
    streamed_bytes: Any


COMPILED = (True, False)
_FIELDS = ("mid_s", "low_s", "bound_s", "pressure", "compute_heavy", "launches", "streamed_bytes")


def compute_surface(
    model: Model, accelerators: Sequence[Accelerator], *, predictor: Predictor, batches: Sequence[int] = BATCHES
) -> Surface:
    """Predict a model in every combination, without look-up of measurements."""
    import numpy as np

    shape = (len(MODES), len(PRECISIONS), len(COMPILED), len(batches), len(accelerators))
    values = {name: np.full(shape, np.nan) for name in _FIELDS}
    devices_s = {number: np.full(shape, np.nan) for number in DEVICES}
    for (i, mode), (j, precision), (b, batch) in product(
        enumerate(MODES), enumerate(PRECISIONS), enumerate(batches)
    ):
        if (mode, POLICIES[precision]) not in model.traces:
            continue
        traced = model.workload(mode, precision, batch)
        least = count_least_work(traced, without_batch=model.workload(mode, precision, 0))
        for c, compiled in enumerate(COMPILED):
            for a, found in enumerate(
                _predict(replace(traced, compiled=compiled), least, accelerators, predictor)
            ):
                for name, value in found.items():
                    target = values[name] if isinstance(name, str) else devices_s[name]
                    target[i, j, c, b, a] = value
    return Surface(
        model=model.name, accelerators=tuple(accelerators), batches=tuple(batches), devices_s=devices_s, **values
    )


def _predict(
    workload: Workload, least: LeastWork, accelerators: Sequence[Accelerator], predictor: Predictor
) -> Iterator[dict[str | int, float]]:
    """Yield the values at one point of the surface for each accelerator; empty without a prediction."""
    fresh = replace(predictor, peers={1.0: accelerators})  # whose cache ends with this workload
    sizes: dict[object, tuple[float, float, float]] = {}
    launch_s = LAUNCH_S + (0.0 if workload.compiled else DISPATCH_S)
    for accelerator in accelerators:
        found = fresh.step_time(workload, accelerator, look_up=False)
        if not isinstance(found, StepTime):
            yield {}
            continue
        execution = find_keras_execution(workload, accelerator)
        if execution.cudnn_layers not in sizes:
            sizes[execution.cudnn_layers] = _count_kernels(workload, execution.cudnn_layers)
        launches, streamed_bytes, moved_bytes = sizes[execution.cudnn_layers]
        peak = accelerator.fp32_tflop_per_s or accelerator.bf16_tensor_tflop_per_s or 0.0
        traffic_s = moved_bytes / ((accelerator.memory_gb_per_s or 0.0) * GIGA)
        several = {n: fresh.step_time(workload, accelerator, devices=n, look_up=False) for n in DEVICES}
        yield {
            "mid_s": found.time_s.mid,
            "low_s": found.time_s.low,
            "bound_s": compute_bound_s(least, accelerator, precision=workload.precision),
            "pressure": compute_memory_pressure(workload.memory.total_bytes, accelerator),
            "compute_heavy": float(least.product_flops / (peak * TERA) > traffic_s + launches * launch_s),
            "launches": launches,
            "streamed_bytes": streamed_bytes,
            **{n: step.time_s.mid for n, step in several.items() if isinstance(step, StepTime)},
        }


def _count_kernels(workload: Workload, cudnn_layers: frozenset[str]) -> tuple[float, float, float]:
    """Return launches, bytes of all kernels but products, and bytes of all kernels."""
    kernels = Execution(compiled=workload.compiled, cudnn_layers=cudnn_layers).build_kernels(workload.ops)
    streamed = sum(k.bytes_moved * k.count for k in kernels if k.category not in CONTRACTIONS)
    moved = sum(k.bytes_moved * k.count for k in kernels)
    return sum(k.count for k in kernels), streamed, moved
