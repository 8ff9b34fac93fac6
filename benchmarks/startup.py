"""Waiting time for an estimate, as ratios within one run, so that slow machines can judge too.

    python benchmarks/startup.py [--repeat N]

Each line: what was measured, its median on the clock and in processor time (user and system), the ratio to
`python -c "import keras"` where that is the measure, and the bar. Exit code 1 when a bar is missed. Nothing is
trained; "nothing cached" has a cache folder of its own each time.

The bars: `--help` 0.2 x `import keras`; ResNet-50 with nothing cached 2.5 x, with its trace cached 1.0 s; a saved
workload on the whole catalog 0.6 s, on a terminal as people ask and as JSON (3,570 offers, 9 MB); on a generated
catalog of 100,000 offers 1.5 s, in 400 MiB; a Transformer of 6.7 G parameters 4 x, in 1 GiB, and 6 x quantized
to int8 with LoRA; with AdamW, and the least sharding that fits on three accelerators, 10 s. They are on the clock;
on a busy machine look at processor time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from large_catalog import write_large_catalog

ROOT = Path(__file__).parents[1]
TRANSFORMER_7B = f"{ROOT / 'examples' / 'models.py'}:transformer_7b"
QUANTIZED_7B = f"{ROOT / 'examples' / 'models.py'}:quantized_transformer_7b"
GPUPLAN = [sys.executable, "-m", "gpuplan"]
IMPORT_KERAS = [sys.executable, "-c", "import keras"]
RUN = ["--samples", "50000", "--epochs", "10"]
THREE = [part for name in ("H100-SXM", "TPU-v5e", "TPU-v6e") for part in ("--accelerator", name)]
SHARDED = ["--batch-size", "16", "--optimizer", "adamw", "--shard", "auto", *THREE]
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
    """A measured quantity and its target."""

    what: str
    value: float
    unit: str
    target: float
    seconds: float | None = None
    cpu_s: float | None = None

    def __str__(self) -> str:
        verdict = "ok" if self.value <= self.target else "MISSED"
        time_text = "" if self.seconds is None else f"{self.seconds:8.2f} s"
        cpu_text = "" if self.cpu_s is None else f"{self.cpu_s:8.2f} s cpu"
        value_text = f"{self.value:9.2f} {self.unit:<14}"
        return f"{self.what:<44}{time_text:>11}{cpu_text:>15}{value_text} target {self.target:g}  {verdict}"


class Took(NamedTuple):
    """Wall and processor time of a command, including its children [s]."""

    wall_s: float
    cpu_s: float


def timed(command: Sequence[str], *, cache: Path, terminal: bool = False) -> Took:
    """Return the time of a command, without output or on a terminal; CalledProcessError if it fails."""
    start, before = time.perf_counter(), os.times()
    with _terminal() if terminal else contextlib.nullcontext(subprocess.DEVNULL) as output:
        subprocess.run(command, check=True, stdout=output, env=environment(cache))
    wall_s, after = time.perf_counter() - start, os.times()
    user_s, system_s = (after[i] - before[i] for i in (2, 3))  # of children that have ended
    return Took(wall_s, user_s + system_s)


@contextlib.contextmanager
def _terminal() -> Iterator[int]:
    """Yield a terminal to write on; what comes is thrown away."""
    ours, theirs = os.openpty()

    def drain() -> None:
        with contextlib.suppress(OSError):  # the other end was closed
            while os.read(ours, 65536):
                pass

    reader = threading.Thread(target=drain)
    reader.start()
    try:
        yield theirs
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)


def environment(cache: Path) -> dict[str, str]:
    """Return this process's environment with a cache folder, and Keras on JAX on the CPU.

    Byte code is kept (beside the cache), as it is after the first start wherever it is not disabled.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    own = {"GPUPLAN_CACHE_DIR": str(cache), "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    own["GPUPLAN_MEASURE"] = "false"
    return {**kept, **own, "PYTHONPYCACHEPREFIX": str(cache.parent / "bytecode")}


def median_of(command: Sequence[str], *, repeat: int, cache: Callable[[], Path], terminal: bool = False) -> Took:
    """Return the medians of a command's times, each run with the cache that it is given."""
    took = [timed(command, cache=cache(), terminal=terminal) for _ in range(repeat)]
    return Took(*(statistics.median(times) for times in zip(*took, strict=True)))


def peak_gib(command: Sequence[str], *, cache: Path) -> float:
    """Return the largest resident memory of any process of a command [GiB]."""
    probe = [sys.executable, "-c", PEAK_PROBE, *command]
    done = subprocess.run(probe, check=True, capture_output=True, text=True, env=environment(cache))
    return float(done.stdout.splitlines()[-1]) / MIB_PER_GIB


def save_workload(path: Path, *, cache: Path) -> None:
    """Write ResNet50 as a saved workload."""
    code = (
        "import json, sys; from gpuplan.workload.capture.load import WorkloadOptions, load_workload;"
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
    quantized = [QUANTIZED_7B if part == TRANSFORMER_7B else part for part in transformer]
    timed(resnet, cache=warm)
    keras = median_of(IMPORT_KERAS, repeat=repeat, cache=lambda: warm)

    def relative(what: str, target: float, command: Sequence[str], cache: Callable[[], Path]) -> Line:
        took = median_of(command, repeat=repeat, cache=cache)
        return Line(what, took.wall_s / keras.wall_s, "x import keras", target, *took)

    def absolute(
        what: str,
        target: float,
        command: Sequence[str],
        cache: Callable[[], Path] = lambda: warm,
        *,
        terminal: bool = False,
    ) -> Line:
        took = median_of(command, repeat=repeat, cache=cache, terminal=terminal)
        return Line(what, took.wall_s, "s", target, cpu_s=took.cpu_s)

    from_saved = [*GPUPLAN, "estimate", str(saved)]
    write_large_catalog(folder / "large")
    from_large = ["env", f"GPUPLAN_CATALOG_DIR={folder / 'large'}", *from_saved]
    return [
        Line('python -c "import keras"', 1.0, "x import keras", 1.0, *keras),
        relative("gpuplan --help", 0.2, [*GPUPLAN, "--help"], lambda: warm),
        relative("estimate ResNet50, nothing cached", 2.5, resnet, cold),
        absolute("estimate ResNet50, trace cached", 1.0, resnet),
        absolute("estimate a saved workload, on a terminal", 0.6, from_saved, terminal=True),
        absolute("... as JSON, 3,570 offers", 0.6, [*from_saved, "--json"]),
        absolute("... on 100,000 offers, on a terminal", 1.5, from_large, terminal=True),
        Line("... its largest process", MIB_PER_GIB * peak_gib(from_large, cache=warm), "MiB", 400.0),
        relative("estimate a 6.7 G parameter Transformer", 4.0, transformer, cold),
        Line("... its largest process", peak_gib(transformer, cache=cold()), "GiB", 1.0),
        relative("... quantized to int8, with LoRA", 6.0, quantized, cold),
        Line("... its largest process", peak_gib(quantized, cache=cold()), "GiB", 1.0),
        absolute("... with AdamW, --shard auto", 10.0, [*transformer, *SHARDED], cold),
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
