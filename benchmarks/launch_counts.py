"""Kernels that XLA launches and operations that PyTorch dispatches in a Keras training step, beside those counted.

    pip install 'jax[cuda12]'                                    # for XLA; no driver and no GPU are needed
    python benchmarks/launch_counts.py xla --model ResNet50 --batch-size 64
    pip install torch
    python benchmarks/launch_counts.py torch                     # networks of benchmarks/workloads.py, on the CPU

XLA compiles for an H100 in bfloat16. An instruction outside loops is a launch, but for views and tuples. PyTorch's
operations are counted in both passes and the update, of which one computes and others are views and conversions.
"""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRECISION, TARGET = "mixed_bfloat16", "H100-SXM"
NO_LAUNCH = {"parameter", "get-tuple-element", "tuple", "bitcast", "constant", "after-all", "iota"}
XLA = (("benchmarks/workloads.py:cifar_cnn", 256), ("benchmarks/workloads.py:wide_resnet", 128), ("ResNet50", 64))
TORCH = (
    "mlp?width=64", "tabular", "cifar_cnn", "generator?width=64", "unet?image_size=32&width=8",
    "vision_transformer?width=48", "encoder?width=64&heads=4&length=16&vocabulary=100", "super_resolution?width=8",
    "wide_resnet?widen=1", "mlp_mixer?width=32", "audio_tcn?length=512&width=8", "unet_3d?size=16&width=4",
)  # fmt: skip
BATCH_SIZE = 2  # the number of operations does not depend on it


def count_by_xla(model: str, batch_size: int) -> int:
    """Return the launches of the program that XLA compiles [-]."""
    from xla_memory import compile_step

    text = compile_step(model, batch_size, PRECISION, TARGET).as_text()
    entry = text[text.index("\nENTRY ") :]
    operations = re.findall(r"^\s+(?:ROOT )?%[\w.\-]+ = .*? ([\w\-]+)\(", entry, re.MULTILINE)
    return sum(name not in NO_LAUNCH for name in operations)


def count_by_torch(model: str) -> int:
    """Return the `aten` operations that a step of Keras on PyTorch dispatches, views included [-]."""
    import keras
    import numpy as np
    import torch
    from gpuplan.workload.build.from_reference import build_model
    from gpuplan.workload.reference import parse_reference
    from torch.utils._python_dispatch import TorchDispatchMode

    dispatched = []

    class Counter(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            dispatched.append(func)
            return func(*args, **(kwargs or {}))

    keras.config.set_dtype_policy(PRECISION)
    built = build_model(parse_reference(model, base=ROOT), base=ROOT, precision=PRECISION)
    arrays = [np.zeros((BATCH_SIZE, *one.shape[1:]), one.dtype) for one in built.inputs]
    output = built.outputs[0]
    sparse = "sparse" in str(getattr(built.loss, "name", built.loss))
    target = np.zeros((BATCH_SIZE, *output.shape[1 : -1 if sparse else None]), "int32" if sparse else "float32")
    batch = [torch.as_tensor(array) for array in arrays]
    step = (batch if len(batch) > 1 else batch[0], torch.as_tensor(target))
    built.train_step(step)  # builds what is built at the first step
    with Counter():
        built.train_step(step)
    return len(dispatched)


def count_predicted(model: str, batch_size: int, *, backend: str) -> tuple[float, float]:
    """Return the kernels that gpuplan counts, and how many of them the host dispatches [-]."""
    from gpuplan.offers.catalog import load_catalog
    from gpuplan.predict.executed_ops import find_keras_execution
    from gpuplan.workload.capture.load import load_workload
    from gpuplan.workload.options import WorkloadOptions

    options = WorkloadOptions(batch_size=batch_size, precision=PRECISION, compiled=backend == "jax")
    workload = load_workload(model, options=options, base=ROOT)
    if backend == "torch":
        workload = replace(workload, versions={**workload.versions, "torch": "2"})
    execution = find_keras_execution(workload, load_catalog().accelerators[TARGET])
    kernels = execution.build_kernels(execution.select_ops(workload))
    return sum(one.count for one in kernels), sum(one.count for one in kernels if not one.streamed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("of", choices=("xla", "torch"))
    parser.add_argument("--model")
    parser.add_argument("--batch-size", type=int, default=BATCH_SIZE)
    arguments = parser.parse_args()
    if arguments.of == "xla":
        print(f"{'model':52} {'batch':>5} {'launched':>9} {'counted':>8}")
        for model, size in [(arguments.model, arguments.batch_size)] if arguments.model else XLA:
            counted, _ = count_predicted(model, size, backend="jax")
            print(f"{model:52} {size:5} {count_by_xla(model, size):9} {counted:8.0f}", flush=True)
        return
    os.environ["KERAS_BACKEND"] = "torch"
    print(f"{'model':72} {'aten':>6} {'dispatched':>11} {'ratio':>6}")
    for name in [arguments.model] if arguments.model else TORCH:
        model = name if arguments.model else f"benchmarks/workloads.py:{name}"
        _, counted = count_predicted(model, BATCH_SIZE, backend="torch")
        operations = count_by_torch(model)
        print(f"{model:72} {operations:6} {counted:11.0f} {operations / counted:6.2f}", flush=True)


if __name__ == "__main__":
    main()
