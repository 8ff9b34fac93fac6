"""How far measured step times can be trusted: against real epochs of fit(), repeated, under load, and killed.

    python benchmarks/profile_accuracy.py fit --repeat 3 --csv fit.csv     # 8 models x 3 backends
    python benchmarks/profile_accuracy.py fit --summarize fit.csv          # errors of what is in the file
    python benchmarks/profile_accuracy.py repeat --times 10                # ten profiles, again under load
    python benchmarks/profile_accuracy.py overhead                         # fit() with StepTimer and without
    python benchmarks/profile_accuracy.py kill --times 20                  # SIGKILL at random moments

Every number is of the machine and its load at that time; the load is in the rows.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BACKENDS = ("jax", "tensorflow", "torch")
# Reference, batch size, samples of an epoch: about a second or two on two slow cores.
MODELS = (
    ("benchmarks/workloads.py:mlp?width=256&depth=3&features=784", 128, 25_600),
    ("benchmarks/workloads.py:tabular?vocabulary=1000&embedding=8", 256, 25_600),
    ("benchmarks/workloads.py:cifar_cnn?width=8", 32, 1_600),
    ("benchmarks/workloads.py:wide_resnet?blocks=1&widen=1", 32, 1_280),
    ("benchmarks/workloads.py:unet?image_size=32&width=8&depth=2", 8, 400),
    ("examples/models.py:lstm_text?length=40&vocabulary=2000&units=32", 32, 1_600),
    ("examples/models.py:transformer?depth=2&width=64&heads=2&length=32&vocabulary=500", 16, 800),
    ("MobileNetV2?input_shape=[32,32,3]&classes=10", 16, 320),
)
TINY = "benchmarks/workloads.py:mlp?width=64&depth=2&features=64"
FIELDS = (
    "model", "backend", "repeat", "predicted_epoch_s", "fit_epoch_s", "error", "fit_step_ms", "beside_steps_ms",
    "width", "other_share_profile", "other_share_fit", "findings",
)  # fmt: skip


# --- against fit() ----------------------------------------------------------------------------------------


def compare_with_fit(options: argparse.Namespace) -> None:
    """Profile, then run real epochs, each in a process of its own; append a row to the file."""
    for repeat in range(options.repeat):
        for reference, batch_size, samples in MODELS:
            for backend in options.backend or BACKENDS:
                if options.only in reference:
                    row = _compared(reference, batch_size, samples, backend, options.max_time)
                    _append(options.csv, {**row, "repeat": repeat})
    if options.csv:
        summarize(options.csv)


def _compared(reference: str, batch_size: int, samples: int, backend: str, max_time: float) -> dict[str, Any]:
    profiled = _profiled(reference, batch_size, samples, backend, max_time)
    real = _child(["--real-epochs", reference, str(batch_size), str(samples)], backend)
    fit, beside_s = profiled["fit"], (profiled["epoch"] or {}).get("beside_steps_s") or 0.0
    predicted_s = samples // batch_size * fit["median_s"] + beside_s
    row = {
        "model": reference, "backend": backend, "predicted_epoch_s": predicted_s,
        "fit_epoch_s": real["epoch_s"], "error": predicted_s / real["epoch_s"] - 1,
        "fit_step_ms": 1e3 * fit["median_s"], "beside_steps_ms": 1e3 * beside_s, "width": fit["width"],
        "other_share_profile": profiled["load"]["other_share"], "other_share_fit": real["other_share"],
        "findings": len(profiled["findings"]),
    }  # fmt: skip
    say(f"{row['error']:+7.2%}  {backend:10} {reference}  others {row['other_share_fit']:.0%}")
    return row


def _profiled(reference: str, batch_size: int, samples: int, backend: str, max_time: float) -> dict[str, Any]:
    from gpuplan.measure.windows import Rules
    from gpuplan.plan.profile_run import Request, profile
    from gpuplan.workload.options import WorkloadOptions

    rules = Rules(most_s=max_time, least_s=min(1.0, max_time), warm_up_s=2.0)
    request = Request(
        model=reference, batch_sizes=(batch_size,), backend=backend, device="cpu", rules=rules, trace=False,
        options=WorkloadOptions(samples=samples),
    )  # fmt: skip
    row: dict[str, Any] = profile(request)["rows"][0]
    return row


def real_epochs(reference: str, batch_size: int, samples: int) -> None:
    """Run three epochs of fit() as anybody would, and print the time of the faster of the last two."""
    import keras
    from gpuplan.measure.load import LoadWatch
    from gpuplan.workload.concrete import Concrete, with_concrete
    from gpuplan.workload.options import WorkloadOptions
    from gpuplan.workload.reference import parse_reference
    from gpuplan.workload.synthetic import synthetic_inputs, synthetic_targets

    class Epochs(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.took_s: list[float] = []

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.began_s = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.took_s.append(time.perf_counter() - self.began_s)

    def use(concrete: Concrete) -> Any:
        x = synthetic_inputs(concrete.x, samples=samples, model=concrete.model)
        y = synthetic_targets(concrete.y, samples=samples, output=concrete.output)
        epochs = Epochs()
        watch = LoadWatch([os.getpid()])
        concrete.model.fit(x, y, batch_size=batch_size, epochs=4, verbose=0, callbacks=[epochs])
        busy = watch.stop()
        print(json.dumps({"epoch_s": statistics.median(epochs.took_s[1:]), "other_share": busy.other_share}))
        sys.stdout.flush()
        os._exit(0)

    with_concrete(
        parse_reference(reference, base=ROOT), use, base=ROOT, options=WorkloadOptions(batch_size=batch_size)
    )


def summarize(path: Path) -> None:
    """Print median and worst error of each repeat, and of rows during which nothing else ran."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    for repeat in sorted({row["repeat"] for row in rows}):
        _tell_errors(f"repeat {repeat}", [row for row in rows if row["repeat"] == repeat])
    _tell_errors("all", rows)
    shares = ("other_share_profile", "other_share_fit")
    quiet = [row for row in rows if max(float(row[name]) for name in shares) < 0.1]
    _tell_errors("less than 10 % of the CPU elsewhere", quiet)


def _tell_errors(name: str, rows: list[dict[str, str]]) -> None:
    if rows:
        errors = [abs(float(row["error"])) for row in rows]
        print(
            f"{name}: {len(rows)} rows, median error {statistics.median(errors):.2%}, worst {max(errors):.2%}"
        )


# --- repeated, under load ---------------------------------------------------------------------------------


def repeat_profiles(options: argparse.Namespace) -> None:
    """Profile one model several times, quiet and with one core kept busy."""
    for loaded in (False, True) if options.load else (False,):
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if loaded else None
        try:
            rows = [
                _profiled(options.model, 128, 25_600, options.backend[0], options.max_time)
                for _ in range(options.times)
            ]
        finally:
            if busy is not None:
                busy.kill()
                busy.wait()
        medians = [row["fit"]["median_s"] for row in rows]
        half = (max(medians) - min(medians)) / 2 / statistics.median(medians)
        told = sum(any("unsteady" in finding for finding in row["findings"]) for row in rows)
        others = statistics.median(row["load"]["other_share"] for row in rows)
        print(
            f"{'one core busy' if loaded else 'as it is'}: {len(rows)} profiles, half range of medians "
            f"{half:.2%}, {told} with a finding of unsteadiness, others used {others:.0%} of the CPU"
        )


# --- StepTimer --------------------------------------------------------------------------------------------


def measure_overhead(options: argparse.Namespace) -> None:
    """Run epochs with StepTimer and without, in turn, and compare their medians."""
    for backend in options.backend or BACKENDS:
        found = _child(["--overhead-child", str(options.times)], backend)
        print(
            f"{backend}: {found['steps_s']:.0f} steps/s, overhead {found['overhead']:+.3%} ± {found['sure']:.3%}"
        )


def overhead_child(pairs: int) -> None:
    """Print the ratio of epochs with the timer to their neighbours without."""
    import gpuplan
    import keras
    import numpy as np

    x = np.random.default_rng(0).random((64_000, 64), dtype=np.float32)
    y = x.sum(axis=1, keepdims=True)
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")

    def epoch_s(callbacks: list[Any]) -> float:
        began_s = time.perf_counter()
        model.fit(x, y, batch_size=64, epochs=1, verbose=0, callbacks=callbacks)
        return time.perf_counter() - began_s

    epoch_s([])
    timer = gpuplan.StepTimer(None, predict=False, verbose=False)
    timer.on_train_begin = lambda logs=None: None  # type: ignore[method-assign]  # start-up is not a step's
    timer.on_train_end = lambda logs=None: None  # type: ignore[method-assign]
    ratios, plain = [], []
    for pair in range(pairs):
        order = (False, True) if pair % 2 else (True, False)
        took = {with_it: epoch_s([timer] if with_it else []) for with_it in order}
        ratios.append(took[True] / took[False] - 1)
        plain.append(took[False])
    from gpuplan.measure.statistics import median_interval

    low, high = median_interval(ratios) or (float("nan"), float("nan"))
    steps_s = 1000 / statistics.median(plain)
    print(json.dumps({"overhead": statistics.median(ratios), "sure": (high - low) / 2, "steps_s": steps_s}))


# --- killed -----------------------------------------------------------------------------------------------


def kill_at_random(options: argparse.Namespace) -> None:
    """Start a profile, kill it at a random moment, and look at the file: whole or absent."""
    draw, seen = random.Random(options.seed), {"absent": 0, "whole": 0}
    for _ in range(options.times):
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder, "profile.json")
            command = [
                sys.executable,
                "-m",
                "gpuplan",
                "profile",
                TINY,
                "--max-time",
                "0.2",
                "-o",
                str(output),
            ]
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=_environment("jax"),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(draw.uniform(0.0, options.within_s))
            process.kill()
            process.wait()
            if output.exists():
                json.loads(output.read_text())  # raises on half a file
            seen["whole" if output.exists() else "absent"] += 1
    print(f"{options.times} times killed within {options.within_s:g} s: {seen}, never half a file")


# --- processes and files ----------------------------------------------------------------------------------


def _environment(backend: str) -> dict[str, str]:
    return {
        **os.environ, "KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }  # fmt: skip


def _child(arguments: list[str], backend: str) -> dict[str, Any]:
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=_environment(backend), stdout=subprocess.PIPE, text=True, check=True
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _append(path: Path | None, row: dict[str, Any]) -> None:
    if path is None:
        return
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if new:
            writer.writeheader()
        writer.writerow(row)


def say(text: str) -> None:
    """Talk on stderr."""
    print(text, file=sys.stderr, flush=True)


def _parsers() -> Iterator[argparse.ArgumentParser]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    fit = commands.add_parser("fit", help="predicted epochs against real ones")
    fit.add_argument("--repeat", type=int, default=3)
    fit.add_argument("--only", default="", help="models whose reference holds this text")
    fit.add_argument("--csv", type=Path)
    fit.add_argument("--summarize", type=Path, help="only print what a file says")
    fit.set_defaults(run=lambda o: summarize(o.summarize) if o.summarize else compare_with_fit(o))
    repeat = commands.add_parser("repeat", help="several profiles of one model")
    repeat.add_argument("--times", type=int, default=10)
    repeat.add_argument("--model", default=MODELS[0][0])
    repeat.add_argument("--load", action=argparse.BooleanOptionalAction, default=True)
    repeat.set_defaults(run=repeat_profiles)
    overhead = commands.add_parser("overhead", help="StepTimer's cost")
    overhead.add_argument("--times", type=int, default=20, help="pairs of epochs")
    overhead.set_defaults(run=measure_overhead)
    kill = commands.add_parser("kill", help="SIGKILL at random moments")
    kill.add_argument("--times", type=int, default=20)
    kill.add_argument("--within-s", type=float, default=12.0)
    kill.add_argument("--seed", type=int, default=0)
    kill.set_defaults(run=kill_at_random)
    for one in (fit, repeat, overhead):
        one.add_argument("--backend", action="append", choices=BACKENDS)
        one.add_argument("--max-time", type=float, default=5.0, help="of the windows [s]")
    yield parser


def main() -> None:
    """Answer one command."""
    if sys.argv[1:2] == ["--real-epochs"]:
        real_epochs(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    elif sys.argv[1:2] == ["--overhead-child"]:
        overhead_child(int(sys.argv[2]))
    else:
        options = next(_parsers()).parse_args()
        if getattr(options, "backend", None) is None and options.run is repeat_profiles:
            options.backend = ["jax"]
        os.chdir(ROOT)
        options.run(options)


if __name__ == "__main__":
    main()
