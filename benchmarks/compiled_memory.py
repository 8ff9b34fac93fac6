"""Verdicts of `gpuplan estimate --compile` around the memory limit, compared with the compilers' own.

    pip install -e '.[tpu-compile,cuda-compile]'
    python benchmarks/compiled_memory.py       # about ten minutes on two cores; goes on where it stopped

Five pairs of a network and an accelerator, each with a batch just under and one just over the limit (3 % to either
side of where a line through a compilation near it and the weights, with gradients and moments, meets it): ten.
The compiler is asked here without gpuplan: Keras's own model with its weights, `jax.jit(model.train_step)`,
compiled for a device of JAX's topology. A TPU's compiler refuses what does not fit. For GPUs it states a size;
with half a GiB for the framework it is held against the memory that programs can use.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "benchmarks" / "results" / "compiled_memory.json"
HALF_GIB = 2**29
# Network, accelerator, and the batch size of an accelerator through which the line to its limit goes.
PAIRS = (
    ("benchmarks/workloads.py:mlp?width=1024&depth=2", "TPU-v5e", 262_144),
    ("benchmarks/workloads.py:cifar_cnn?width=32", "TPU-v5e", 16_384),
    ("benchmarks/workloads.py:cifar_cnn?width=32", "T4", 8192),
    ("benchmarks/workloads.py:encoder?depth=1&width=512&heads=8", "TPU-v2", 2048),
    ("benchmarks/workloads.py:encoder?depth=1&width=512&heads=8", "V100-16GB", 1024),
)
COPIES = 4 * 4  # bytes a weight: itself, its gradient and Adam's two moments, in float32


def once(ask: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Return an answer, from the notes of a run that was stopped where it is there."""
    from gpuplan.files import get_cache_folder

    folder = get_cache_folder("compiled_memory")
    folder.mkdir(parents=True, exist_ok=True)
    key = " ".join(map(str, (ask.__name__, *arguments)))
    path = folder / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
    if not path.exists():
        path.write_text(json.dumps(ask(*arguments)))
    return dict(json.loads(path.read_text()))


def compilers_say() -> None:
    """Ask the compilers for all pairs, in one process of its own: they keep nothing between steps."""
    environment = {
        **os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1",
        "TPU_LOG_DIR": "disabled", "TF_CPP_MIN_LOG_LEVEL": "3", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }  # fmt: skip
    subprocess.run([sys.executable, __file__, "--compilers"], env=environment, check=True, cwd=ROOT)


def ask_compiler(model: str, accelerator: str, batch_size: int) -> dict[str, Any]:
    """Compile a Keras model's own step for an accelerator; return whether it is taken, and its size."""
    import jax
    import numpy as np
    from gpuplan.offers.catalog import load_catalog
    from gpuplan.predict.compile.compiled_predictor import find_target
    from jax.experimental import topologies
    from jax.sharding import SingleDeviceSharding

    row = load_catalog().accelerators[accelerator]
    target = find_target(row)
    assert target is not None
    keras_model, x, y = built(model)
    if target.platform == "tpu":
        topology = topologies.get_topology_desc(target.topology, "tpu")
    else:
        topology = topologies.get_topology_desc(
            platform="cuda", target_config=target.description, topology=target.topology
        )
    place = SingleDeviceSharding(topology.devices[0])
    each = batch_size // target.cores

    def there(array: Any, shape: tuple[int, ...]) -> Any:
        return jax.ShapeDtypeStruct(shape, array.dtype, sharding=place)

    groups = (
        keras_model.trainable_variables,
        keras_model.non_trainable_variables,
        keras_model.optimizer.variables,
        keras_model.metrics_variables,
    )
    state = tuple([there(variable, tuple(variable.shape)) for variable in group] for group in groups)
    data = tuple(there(np.asarray(part), (each, *part.shape[1:])) for part in (x, y))
    step = jax.jit(keras_model.train_step, donate_argnums=0)
    try:
        analysis = step.trace(state, data).lower().compile().memory_analysis()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return {"fits": False, "bytes": None, "weights": keras_model.count_params()}
    names = ("argument", "output", "temp", "generated_code")
    needed = sum(getattr(analysis, f"{name}_size_in_bytes") for name in names)
    needed -= analysis.alias_size_in_bytes
    limit = (row.usable_gib or row.memory_gib or 0.0) * 2**30
    fits = True if target.platform == "tpu" else needed + HALF_GIB <= limit
    return {"fits": fits, "bytes": needed * target.cores, "weights": keras_model.count_params() * target.cores}


def built(model: str) -> tuple[Any, Any, Any]:
    """Return a model of benchmarks/workloads.py with all of its variables, and two samples."""
    import importlib
    from urllib.parse import parse_qsl

    import numpy as np

    sys.path.insert(0, str(ROOT / "benchmarks"))
    name, _, arguments = model.split(":")[1].partition("?")
    function = getattr(importlib.import_module("workloads"), name)
    keras_model = function(**{key: int(value) for key, value in parse_qsl(arguments)})
    x = np.zeros((2, *keras_model.input_shape[1:]), keras_model.inputs[0].dtype)
    y = np.zeros((2,), "int32")
    keras_model.fit(x, y, batch_size=2, verbose=0)
    return keras_model, x, y


def gpuplan_says(model: str, accelerator: str, batch_size: int, *flags: str) -> dict[str, Any]:
    """Return the memory verdict of `gpuplan estimate`."""
    command = [
        sys.executable,
        "-m",
        "gpuplan",
        "estimate",
        model,
        "--accelerator",
        accelerator,
        "--batch-size",
        str(batch_size),
        "--retired",
        "--json",
        *flags,
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    from gpuplan.estimate_document import read_offers

    offers = read_offers(json.loads(done.stdout))
    offer = min(offers, key=lambda one: one["devices"])  # a v2 is rented in fours, each with this batch
    return {"fits": offer["memory_fits"], "bytes": offer["memory_bytes"], "verdict": offer["memory_verdict"]}


def limit_bytes(accelerator: str) -> float:
    """Return the memory available to a step on an accelerator, as counted by its compiler [bytes]."""
    from gpuplan.offers.catalog import load_catalog

    row = load_catalog().accelerators[accelerator]
    usable = (row.usable_gib or row.memory_gib or 0.0) * 2**30
    return usable if row.kind == "tpu" else usable - HALF_GIB


def batches_around(model: str, accelerator: str, known: int) -> tuple[int, int]:
    """Return batch sizes 3 % under and over the limit, both even."""
    said = once(ask_compiler, model, accelerator, known)
    fixed = said["weights"] * COPIES
    limit = known * (limit_bytes(accelerator) - fixed) / (said["bytes"] - fixed)
    near = int(limit * 0.94) // 2 * 2  # a sample takes less in larger batches: the line starts again from here
    said = once(ask_compiler, model, accelerator, near)
    if said["bytes"] is not None:
        limit = near * (limit_bytes(accelerator) - fixed) / (said["bytes"] - fixed)
    return int(limit * 0.97) // 2 * 2, int(limit * 1.03) // 2 * 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compilers", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.compilers:
        for model, accelerator, size in PAIRS:
            for each in batches_around(model, accelerator, size):
                print(model, accelerator, each, once(ask_compiler, model, accelerator, each), flush=True)
        return 0
    compilers_say()
    rows = [
        row_of(model, accelerator, each)
        for model, accelerator, size in PAIRS
        for each in batches_around(model, accelerator, size)
    ]
    OUTPUT.write_text(json.dumps({"versions": versions(), "rows": rows}, indent=1) + "\n")
    agree = sum(row["compile"]["fits"] == row["compiler"]["fits"] for row in rows)
    modelled = sum(row["modelled"]["fits"] == row["compiler"]["fits"] for row in rows)
    print(f"{agree} of {len(rows)} verdicts of --compile are the compiler's; of the model's, {modelled}")
    return 0 if agree == len(rows) == 2 * len(PAIRS) else 1


def row_of(model: str, accelerator: str, batch_size: int) -> dict[str, Any]:
    """Ask all three, and print what they say."""
    started_s = time.monotonic()
    row = {
        "model": model, "accelerator": accelerator, "batch_size": batch_size,
        "compiler": once(ask_compiler, model, accelerator, batch_size),
        "compile": once(gpuplan_says, model, accelerator, batch_size, "--compile"),
        "modelled": once(gpuplan_says, model, accelerator, batch_size),
    }  # fmt: skip
    print(json.dumps(row), f"{time.monotonic() - started_s:.0f} s", flush=True)
    return row


def versions() -> dict[str, str]:
    """Return the versions that the answers depend on."""
    from importlib.metadata import version

    return {name: version(name) for name in ("jax", "keras", "libtpu", "jax-cuda12-plugin")}


if __name__ == "__main__":
    sys.exit(main())
