"""How long people wait for an estimate, as ratios within one run, so that slow machines can judge too.

    python benchmarks/startup.py [--repeat N]

Each line: what was measured, its median, the ratio to `python -c "import keras"` where that is the measure,
and the target. Exit code 1 when a target is missed. Nothing is trained; every run has a cache of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRANSFORMER_7B = f"{ROOT / 'examples' / 'models.py'}:transformer_7b"
GPUPLAN = [sys.executable, "-m", "gpuplan"]
IMPORT_KERAS = [sys.executable, "-c", "import keras"]
RUN = ["--samples", "50000", "--epochs", "10"]
MIB_PER_GIB = 1024.0
# Runs a command, then tells the largest resident memory of it and its children on the last line [MiB].
PEAK_PROBE = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / (1024 if sys.platform == "darwin" else 1)
print(kib / 1024)
sys.exit(code)
"""


@dataclass(frozen=True)
class Line:
    """One measured quantity beside its target."""

    what: str
    value: float
    unit: str
    target: float
    seconds: float | None = None

    def __str__(self) -> str:
        verdict = "ok" if self.value <= self.target else "MISSED"
        time_text = "" if self.seconds is None else f"{self.seconds:8.2f} s"
        value_text = f"{self.value:9.2f} {self.unit:<14}"
        return f"{self.what:<44}{time_text:>11}{value_text} target {self.target:g}  {verdict}"


def timed(command: Sequence[str], *, cache: Path) -> float:
    """Return the wall time of a command [s]; CalledProcessError when it fails."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment(cache))
    return time.perf_counter() - start


def environment(cache: Path) -> dict[str, str]:
    """Return this process's environment with a cache folder, and Keras on JAX on the CPU.

    Byte code is kept (beside the cache), as it is after the first start wherever nobody forbids it.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    own = {"GPUPLAN_CACHE_DIR": str(cache), "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    return {**kept, **own, "PYTHONPYCACHEPREFIX": str(cache.parent / "bytecode")}


def median_s(command: Sequence[str], *, repeat: int, cache: Callable[[], Path]) -> float:
    """Return the median wall time of a command, each run with the cache that it is given [s]."""
    return statistics.median(timed(command, cache=cache()) for _ in range(repeat))


def peak_gib(command: Sequence[str], *, cache: Path) -> float:
    """Return the largest resident memory of any process of a command [GiB]."""
    probe = [sys.executable, "-c", PEAK_PROBE, *command]
    done = subprocess.run(probe, check=True, capture_output=True, text=True, env=environment(cache))
    return float(done.stdout.splitlines()[-1]) / MIB_PER_GIB


def save_workload(path: Path, *, cache: Path) -> None:
    """Write ResNet50 as a saved workload."""
    code = (
        "import json, sys; from gpuplan.workload.load import WorkloadOptions, load_workload;"
        "w = load_workload('ResNet50', options=WorkloadOptions(samples=50000, epochs=10));"
        "json.dump(w.to_json(), open(sys.argv[1], 'w'))"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, env=environment(cache))


def measure(folder: Path, *, repeat: int) -> list[Line]:
    """Return all quantities, measured one after the other."""
    fresh = iter(range(10**6))
    warm, saved = folder / "warm", folder / "resnet50.json"
    save_workload(saved, cache=warm)

    def cold() -> Path:
        return folder / f"cold-{next(fresh)}"

    resnet = [*GPUPLAN, "estimate", "ResNet50", *RUN]
    transformer = [
        *GPUPLAN,
        "estimate",
        TRANSFORMER_7B,
        "--batch-size",
        "1",
        "--precision",
        "mixed_bfloat16",
        *RUN,
    ]
    timed(resnet, cache=warm)
    keras_s = median_s(IMPORT_KERAS, repeat=repeat, cache=lambda: warm)
    help_s = median_s([*GPUPLAN, "--help"], repeat=repeat, cache=lambda: warm)
    cold_s = median_s(resnet, repeat=repeat, cache=cold)
    cached_s = median_s(resnet, repeat=repeat, cache=lambda: warm)
    saved_s = median_s([*GPUPLAN, "estimate", str(saved), "--json"], repeat=repeat, cache=lambda: warm)
    large_s = median_s(transformer, repeat=repeat, cache=cold)
    ratio = "x import keras"
    return [
        Line('python -c "import keras"', 1.0, ratio, 1.0, keras_s),
        Line("gpuplan --help", help_s / keras_s, ratio, 0.2, help_s),
        Line("estimate ResNet50, nothing cached", cold_s / keras_s, ratio, 2.5, cold_s),
        Line("estimate ResNet50, trace cached", cached_s, "s", 1.0),
        Line("estimate a saved workload, whole catalog", saved_s, "s", 0.6),
        Line("estimate a 6.7 G parameter Transformer", large_s / keras_s, ratio, 4.0, large_s),
        Line("... its largest process", peak_gib(transformer, cache=cold()), "GiB", 1.0),
    ]


def main() -> int:
    """Print one line a quantity; 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3, help="runs of each command")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpuplan-benchmark-") as folder:
        lines = measure(Path(folder), repeat=options.repeat)
    print(json.dumps([vars(line) for line in lines]) if options.json else "\n".join(map(str, lines)))
    return int(any(line.value > line.target for line in lines))


if __name__ == "__main__":
    sys.exit(main())
