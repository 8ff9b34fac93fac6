"""Do TensorFlow's graph and PyTorch's fake tensors count the FLOPs of a step as JAX's trace does?

    python benchmarks/trace_agreement.py -o benchmarks/results/trace_agreement.json
    python benchmarks/trace_agreement.py --only lstm --backend torch

Traces each example on each backend in a process of its own (about five minutes for all); nothing is trained. Exit
code 1 when one differs by more than 3 %. A result that is already in the file is replaced.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gpuplan.workload.capture.tracing_process import trace_in_child
from gpuplan.workload.model import Workload
from gpuplan.workload.options import WorkloadOptions

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = (
    "cifar_pipeline", "custom_layer", "generator_regression", "imdb_lstm", "mnist_cnn", "tabular",
    "tiny_transformer", "unet",
)  # fmt: skip
MODELS = (
    *(f"examples/{name}.py" for name in SCRIPTS),
    "examples/models.py:lstm_text",
    "examples/models.py:transformer?depth=2&width=64&heads=2&length=32&vocabulary=500",
    "examples/models.py:vgg13?image_size=32",
    "MobileNetV2?input_shape=[32,32,3]&classes=10",
)
PACKAGES = {"jax": "jax", "tensorflow": "tensorflow-cpu", "torch": "torch"}
ALLOWED = 0.03


def traced(model: str, backend: str) -> Workload:
    """Return the step of a model, traced on a backend."""
    batch_size = None if model.endswith(".py") else 16
    answer = trace_in_child(
        model, base=ROOT, options=WorkloadOptions(batch_size=batch_size), argv=(), backend=backend
    )
    return Workload.from_json(answer["workload"])


def compared(model: str, backend: str, on_jax: Workload) -> dict[str, Any]:
    """Return a row: FLOPs on both, and where they differ most."""
    other = traced(model, backend)
    return {
        "model": model,
        "backend": backend,
        "batch_size": other.batch_size,
        "flops_jax": on_jax.flops_per_step,
        "flops": other.flops_per_step,
        "difference": other.flops_per_step / on_jax.flops_per_step - 1.0,
        "by_kind": {kind: [_of(on_jax, kind), _of(other, kind)] for kind in _kinds(on_jax, other)},
    }


def _kinds(*workloads: Workload) -> list[str]:
    return sorted({str(op.kind) for workload in workloads for op in workload.ops})


def _of(workload: Workload, kind: str) -> float:
    return sum(op.flops * op.count for op in workload.ops if op.kind == kind)


def _kept(path: Path | None, rows: list[dict[str, Any]]) -> None:
    if path is None:
        return
    new = {(row["model"], row["backend"]) for row in rows}
    before = json.loads(path.read_text())["rows"] if path.exists() else []
    kept = [row for row in before if (row["model"], row["backend"]) not in new]
    body = {
        "made_by": "python benchmarks/trace_agreement.py",
        "versions": {p: version(p) for p in PACKAGES.values()},
        "rows": sorted(kept + rows, key=lambda row: (MODELS.index(row["model"]), row["backend"])),
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(body, indent=1) + "\n")


def main() -> int:
    """Print a line for each model and backend."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="models whose reference holds this text")
    parser.add_argument("--backend", action="append", choices=("tensorflow", "torch"))
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows = []
    for model in (model for model in MODELS if options.only in model):
        on_jax = traced(model, "jax")
        for backend in options.backend or ("tensorflow", "torch"):
            rows.append(compared(model, backend, on_jax))
            print(f"{rows[-1]['difference']:+8.2%}  {backend:10} {model}", flush=True)
            _kept(options.output, rows)
    return int(any(abs(row["difference"]) > ALLOWED for row in rows))


if __name__ == "__main__":
    sys.exit(main())
