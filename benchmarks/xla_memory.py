"""Memory of a training step according to XLA on a CUDA target, compiled without a GPU.

    pip install 'jax[cuda12]'                                    # about 5 GB; no driver and no GPU are needed
    python benchmarks/xla_memory.py -o profiles/xla_memory.csv   # about 30 s per row; resumes where it stopped
    python -m lab accuracy --memory                              # predictions of gpuplan for the rows

Each row is compiled in a separate process. The descriptions of the targets hold data-sheet values in XLA's format.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuplan.workload.options import WorkloadOptions

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = (
    "model", "batch_size", "precision", "target", "argument_bytes", "output_bytes", "alias_bytes", "temp_bytes",
    "jax", "source",
)  # fmt: skip
# (cores, lanes a core, shared memory a core, clock in GHz, bandwidth in B/s, L2, memory, compute capability)
TARGETS = {
    "V100-16GB": (80, 64, 98304, 98304, 1.53, 898048000000, 6291456, 16935682048, 7, 0),
    "A100-40GB": (108, 64, 167936, 166912, 1.41, 1555200000000, 41943040, 42331013120, 8, 0),
    "H100-SXM": (132, 128, 233472, 232448, 1.98, 3352000000000, 52428800, 84929000000, 9, 0),
}
DESCRIPTION = """
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  core_count: {0} fpus_per_core: {1} shared_memory_per_core: {2} shared_memory_per_block_optin: {3}
  clock_rate_ghz: {4} memory_bandwidth: {5} l2_cache_size: {6} device_memory_size: {7}
  cuda_compute_capability {{ major: {8} minor: {9} }}
  threads_per_core_limit: 2048 registers_per_core_limit: 65536 registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
device_description_str: "{name}"
"""
CASES = (
    ("ResNet50", 64, "float32"), ("ResNet50", 128, "mixed_float16"), ("VGG16", 32, "float32"),
    ("MobileNetV2", 64, "float32"), ("DenseNet121", 32, "float32"), ("EfficientNetB0", 64, "mixed_float16"),
    ("InceptionV3", 64, "float32"), ("Xception", 32, "mixed_float16"), ("ConvNeXtTiny", 32, "float32"),
    ("benchmarks/workloads.py:cifar_cnn", 512, "float32"),
    ("benchmarks/workloads.py:wide_resnet", 128, "float32"),
    ("benchmarks/workloads.py:unet?image_size=128", 16, "float32"),
    ("benchmarks/workloads.py:unet_3d", 4, "float32"), ("benchmarks/workloads.py:mlp", 512, "float32"),
    ("benchmarks/workloads.py:tabular", 4096, "float32"),
    ("benchmarks/workloads.py:encoder", 32, "float32"), ("benchmarks/workloads.py:encoder", 64, "mixed_float16"),
    ("benchmarks/workloads.py:decoder", 4, "mixed_float16"),
    ("benchmarks/workloads.py:vision_transformer", 64, "float32"),
    ("benchmarks/workloads.py:lstm_language", 64, "float32"),
    ("benchmarks/workloads.py:audio_tcn", 32, "float32"),
)  # fmt: skip
BFLOAT16 = (
    ("benchmarks/workloads.py:encoder", 64, "mixed_bfloat16", "A100-40GB"),
    ("benchmarks/workloads.py:encoder", 64, "mixed_bfloat16", "H100-SXM"),
    ("benchmarks/workloads.py:decoder", 8, "mixed_bfloat16", "A100-40GB"),
    ("benchmarks/workloads.py:decoder", 8, "mixed_bfloat16", "H100-SXM"),
    ("ConvNeXtTiny", 64, "mixed_bfloat16", "A100-40GB"), ("EfficientNetB0", 64, "mixed_bfloat16", "A100-40GB"),
    ("ResNet50", 128, "mixed_bfloat16", "A100-40GB"),
)  # fmt: skip
# Steps beyond the limit above which XLA recomputes values in the backward pass.
RECOMPUTED = (
    ("ResNet50", 512, "float32", "A100-40GB"), ("ResNet50", 1024, "mixed_bfloat16", "A100-40GB"),
    ("benchmarks/workloads.py:encoder", 512, "mixed_bfloat16", "A100-40GB"),
    ("MobileNetV2", 352, "float32", "V100-16GB"), ("InceptionV3", 192, "float32", "V100-16GB"),
    ("ResNet50", 512, "float32", "V100-16GB"), ("MobileNetV2", 704, "float32", "V100-16GB"),
    ("benchmarks/workloads.py:encoder", 512, "mixed_float16", "V100-16GB"),
    ("benchmarks/workloads.py:decoder", 24, "mixed_float16", "V100-16GB"),
    ("benchmarks/workloads.py:vision_transformer", 256, "float32", "V100-16GB"),
    ("benchmarks/workloads.py:unet?image_size=128", 256, "float32", "V100-16GB"),
    ("ConvNeXtTiny", 192, "float32", "V100-16GB"), ("ResNet50", 1024, "float32", "A100-40GB"),
    ("benchmarks/workloads.py:encoder", 1024, "mixed_bfloat16", "A100-40GB"),
    ("benchmarks/workloads.py:decoder", 48, "mixed_bfloat16", "A100-40GB"),
    ("MobileNetV2", 1536, "float32", "A100-40GB"),
    ("benchmarks/workloads.py:unet?image_size=128", 768, "float32", "A100-40GB"),
)  # fmt: skip


def compiled_memory(model: str, batch_size: int, precision: str, target: str) -> dict[str, object]:
    """Return `memory_analysis()` of the training step that `fit()` compiles, for a target."""
    import jax

    analysis = compile_step(model, batch_size, precision, target).memory_analysis()
    names = ("argument", "output", "alias", "temp")
    sizes = {f"{name}_bytes": getattr(analysis, f"{name}_size_in_bytes") for name in names}
    return {**sizes, "jax": jax.__version__}


def compile_step(model: str, batch_size: int, precision: str, target: str) -> Any:
    """Return the training step that `fit()` compiles, compiled for a target."""
    os.environ["KERAS_BACKEND"], os.environ["JAX_PLATFORMS"] = "jax", "cpu"
    import jax
    from gpuplan.workload.options import WorkloadOptions
    from jax.experimental import topologies
    from jax.sharding import SingleDeviceSharding

    text = DESCRIPTION.format(*TARGETS[target], name=target)
    topology = topologies.get_topology_desc(platform="cuda", target_config=text, topology="1x1x1")
    place = SingleDeviceSharding(topology.devices[0])
    found: list[Any] = []

    def there(spec: object) -> object:
        return jax.ShapeDtypeStruct(spec.shape, spec.dtype, sharding=place)

    from gpuplan.workload.trace.jax import step as tracing

    prepare_step = tracing.prepare_step

    def prepare_and_compile(*model: object, **options: object) -> object:
        function, state, batch = prepared = prepare_step(*model, **options)
        step = jax.jit(function, donate_argnums=0)
        found.append(step.trace(*jax.tree.map(there, (state, batch))).lower().compile())
        return prepared

    tracing.prepare_step = prepare_and_compile
    _load(model, WorkloadOptions(batch_size=batch_size, precision=precision))
    return found[0]


def _load(model: str, options: WorkloadOptions) -> None:
    from gpuplan.workload.build.assemble import ModelAssembler, RunProperties
    from gpuplan.workload.build.from_reference import build_model
    from gpuplan.workload.capture.child import import_keras
    from gpuplan.workload.capture.materialize import abstract_variables, set_precision
    from gpuplan.workload.reference import parse_reference

    import_keras("jax", "jax")
    set_precision(options.precision)
    with abstract_variables():
        built = build_model(parse_reference(model, base=ROOT), base=ROOT, precision=options.precision)
        ModelAssembler(built, run=RunProperties(text=model)).assemble(options)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "profiles" / "xla_memory.csv")
    parser.add_argument("--target", choices=TARGETS, action="append")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        model, batch_size, precision, target = arguments.one
        print("RESULT" + json.dumps(compiled_memory(model, int(batch_size), precision, target)))
        return 0
    known = []
    if arguments.output.exists():
        known = list(csv.DictReader(arguments.output.open()))
    done = {(row["model"], row["batch_size"], row["precision"], row["target"]) for row in known}
    steps = [(*case, target) for target in ("V100-16GB", "A100-40GB") for case in CASES]
    for model, batch_size, precision, target in (*steps, *BFLOAT16, *RECOMPUTED):
        key = (model, str(batch_size), precision, target)
        if key not in done and target in (arguments.target or TARGETS):
            row = _in_a_process(key)
            if row is not None:
                known.append(row)
                _write(arguments.output, known)
    return 0


def _in_a_process(key: tuple[str, ...]) -> dict[str, object] | None:
    command = [sys.executable, __file__, "--one", *key]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in finished.stdout.splitlines() if line.startswith("RESULT")]
    if not lines:
        print(f"{' '.join(key)}: {finished.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    print(" ".join(key), lines[0], file=sys.stderr)
    names = ("model", "batch_size", "precision", "target")
    return {**dict(zip(names, key, strict=True)), **json.loads(lines[0][6:]), "source": "memory_analysis()"}


def _write(path: Path, rows: list[dict[str, object]]) -> None:
    temporary = path.with_name(f".{path.name}.part")
    with temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main())
