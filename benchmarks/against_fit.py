"""The epoch that `gpuplan profile` predicts, against real epochs of `fit()`. Part of `profile_accuracy.py`.

Two processes take turns, an epoch each (two on TensorFlow): one is measured as `gpuplan profile` measures, the
other runs `fit()` as anybody would. A rented core is shared: the same loop may take half or twice as long a
minute later. So each turn's windows are also held against the real epoch right after it (`turns`): what the
machine did falls on both alike, and the median of that is the profiler's own error. Two processes of one model
differ by a few percent for as long as they live, so a row is of several such pairs, each in new processes
(`processes`), and its `error` the mean of theirs: of three at least, and of more until the mean is known to
`SURE` or there are `MOST`. `whole_error` compares the two medians instead, as somebody would who measures once
and trains later.
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
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuplan.profile.statistics import compute_median_interval
from kept import Kept

if TYPE_CHECKING:
    from gpuplan.workload.capture.materialize import ExecutableModel

__all__ = [
    "BACKENDS",
    "MODELS",
    "ROLES",
    "ROOT",
    "child",
    "compare_with_fit",
    "enough",
    "environment",
    "fit_plainly",
    "time_epochs",
]

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = Path(__file__).with_name("profile_accuracy.py")
BACKENDS = ("jax", "tensorflow", "torch")
# Reference, batch size, samples of an epoch (see `SHARE`).
MODELS = (
    ("benchmarks/workloads.py:mlp?width=256&depth=3&features=784", 128, 6_400),
    ("benchmarks/workloads.py:tabular?vocabulary=1000&embedding=8", 256, 5_120),
    ("benchmarks/workloads.py:cifar_cnn?width=8", 32, 320),
    ("benchmarks/workloads.py:wide_resnet?blocks=1&widen=1", 32, 160),
    ("benchmarks/workloads.py:unet?image_size=32&width=8&depth=2", 8, 64),
    ("examples/models.py:lstm_text?length=40&vocabulary=2000&units=32", 32, 640),
    ("examples/models.py:transformer?depth=2&width=64&heads=2&length=32&vocabulary=500", 16, 160),
    ("MobileNetV2?input_shape=[32,32,3]&classes=10", 16, 64),
)
# Epochs of a turn, of which the last one counts: TensorFlow's input threads sleep while the other process has its
# turn, and take 0.1 to 2 s to come back. Without turns they never sleep.
EPOCHS_OF_A_TURN = {"jax": 1, "torch": 1, "tensorflow": 2}
# Of the samples: epochs of 0.1 to 0.3 s on a slow core, so that turns are many and neighbours see one machine.
# TensorFlow takes 0.1 to 0.5 s to start its iterator, a third of so short an epoch, in one process and not in the
# next: its epochs are longer.
SHARE = {"jax": 0.5, "torch": 0.375, "tensorflow": 6.0}
FEWEST_STEPS = 2
SURE = 0.02  # standard error of a row's mean of pairs, from which on no more are measured [-]
FEWEST_PAIRS, MOST = 2, 9  # pairs of a row: one alone has no standard error
Windows = tuple[list[float], list[int]]
KEPT = ("median_s", "mean_s", "low_s", "high_s", "windows", "spread")
CALM = 0.10  # of the processor, used by others: above, the machine was not ours alone [-]


def compare_with_fit(options: argparse.Namespace) -> None:
    """Profile and run real epochs, in turn; rows are kept as they come."""
    command = "python benchmarks/profile_accuracy.py fit --output benchmarks/results/profile_fit.json"
    kept = Kept(options.output, command=command, key=("model", "backend", "repeat"))
    began_s = time.monotonic()
    for repeat, (reference, batch_size, samples), backend in _cells(options):
        cell = {"model": reference, "backend": backend, "repeat": repeat}
        known = kept.find(**cell)
        pairs = list(known["processes"]) if known else []
        if enough(pairs, fewest=options.processes) or time.monotonic() - began_s > options.budget_s:
            continue
        size = _samples(samples, batch_size, backend)
        while not enough(pairs, fewest=options.processes):
            pairs.append(_compared(reference, batch_size, size, backend, options.max_time))
        found = _of_pairs(pairs)
        kept.add({**cell, **found})
        apart = " ".join(f"{pair['error']:+.1%}" for pair in pairs)
        print(
            f"{found['error']:+7.2%} ({apart})  {backend:10} {reference}  others {found['other_share']:.0%}",
            file=sys.stderr,
            flush=True,
        )
    summarize(kept.rows)


def enough(pairs: list[dict[str, Any]], *, fewest: int) -> bool:
    """Return whether the mean of the pairs is known: its standard error is at most `SURE`, or they are `MOST`."""
    if len(pairs) < max(fewest, FEWEST_PAIRS):
        return False
    errors = [pair["error"] for pair in pairs]
    return len(pairs) >= MOST or statistics.stdev(errors) / len(errors) ** 0.5 <= SURE


def _cells(options: argparse.Namespace) -> Iterator[tuple[int, tuple[str, int, int], str]]:
    """Yield every model on another backend each time, so that a run that ends early has some of everything."""
    backends = options.backend or BACKENDS
    for repeat in range(options.repeat):
        for turn in range(len(backends)):
            for number, model in enumerate(MODELS):
                if options.only in model[0]:
                    yield repeat, model, backends[(number + turn) % len(backends)]


def _samples(samples: int, batch_size: int, backend: str) -> int:
    """Return the number of samples per epoch on a backend, in whole batches [-]."""
    return batch_size * max(round(samples * SHARE[backend] / batch_size), FEWEST_STEPS)


def _of_pairs(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one row of several pairs of processes: the means of what they found, and each of them."""

    def mean(name: str) -> float:
        return statistics.fmean(pair[name] for pair in pairs)

    return {
        **{name: mean(name) for name in ("error", "whole_error", "other_share")},
        "calm": all(pair["calm"] for pair in pairs),
        "processes": pairs,
    }


def _compared(reference: str, batch_size: int, samples: int, backend: str, max_time: float) -> dict[str, Any]:
    from gpuplan.profile.background_load import LoadMonitor

    place = [reference, str(batch_size), str(samples), str(max_time)]
    measured, plain = (_Turn(role, place, backend) for role in ("--measured-epochs", "--plain-epochs"))
    try:
        measured.wait()
        plain.wait()
        watch = LoadMonitor([os.getpid()])
        pairs: list[tuple[Windows, float]] = []
        while measured.go():
            plain.go()
            pairs.append((measured.said["windows"], plain.said["epoch_s"]))
        busy, row = watch.stop(), measured.said["row"]
    finally:
        measured.end()
        plain.end()
    return _found(row, pairs) | {
        "batch_size": batch_size,
        "cores": len(os.sched_getaffinity(0)),
        "other_share": busy["other_share"],
        "calm": busy["other_share"] < CALM,
    }


def _mean(steps_s: list[float], counts: list[int]) -> float:
    return sum(s * n for s, n in zip(steps_s, counts, strict=True)) / sum(counts)


def _found(row: dict[str, Any], pairs: list[tuple[Windows, float]]) -> dict[str, Any]:
    """Return the deviation of the profile from the epochs.

    Args:
        row: Of the profile.
        pairs: Windows of a turn that counted (time of a step, and steps), and the epoch after it [s].
    """
    steps, beside_s = row["epoch"]["steps"], row["epoch"]["beside_steps_s"]
    # The first turns warm up, the last ones look at what lies beside the steps.
    measured = [(_mean(*windows), epoch_s) for windows, epoch_s in pairs[1:] if windows[0]]
    turns = [(steps * step_s + beside_s) / epoch_s - 1.0 for step_s, epoch_s in measured]
    epochs_s = [epoch_s for _, epoch_s in measured]
    predicted_s, real_s = row["epoch"]["total_s"], statistics.median(epochs_s)
    low, high = compute_median_interval(turns) or (None, None)
    return {
        "error": statistics.median(turns),
        "error_low": low,
        "error_high": high,
        "whole_error": predicted_s / real_s - 1.0,
        "steps": steps,
        "predicted_epoch_s": predicted_s,
        "fit_epoch_s": real_s,
        "fit_epochs_s": _short(epochs_s),
        "turns": _short(turns),
        "step_s": {name: row["fit"][name] for name in KEPT},
        "beside_steps_s": beside_s,
    }


def _short(values: list[float]) -> list[float]:
    return [round(value, 6) for value in values]


class _Turn:
    """A process that runs one epoch whenever it is told to."""

    def __init__(self, role: str, place: list[str], backend: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), role, *place],
            cwd=ROOT,
            env=environment(backend),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.said: dict[str, Any] = {}

    def wait(self) -> bool:
        """Return whether it waits for its next turn (else it is done), once it says so."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.said = json.loads(line)
                return bool(self.said["more"])
        raise SystemExit(f"{' '.join(map(str, self.process.args))} ended with {self.process.wait()}")  # type: ignore[arg-type]

    def go(self) -> bool:
        """Let it run an epoch."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self.wait()

    def end(self) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate()


def time_epochs(
    reference: str, *, batch_size: int, samples: int, backend: str, processes: int, epochs: int
) -> list[list[float]]:
    """Return the times of epochs of a plain `fit()` of each of several processes, the first one left out [s]."""
    times_s = []
    for _ in range(processes):
        process = _Turn("--plain-epochs", [reference, str(batch_size), str(samples), "0"], backend)
        try:
            process.wait()
            process.go()
            times_s.append([process.said["epoch_s"] for _ in range(epochs) if process.go()])
        finally:
            process.end()
    return times_s


def _take_turn(**said: Any) -> None:
    """Say that this process waits, and wait."""
    print(json.dumps({"more": True, **said}), flush=True)
    if not sys.stdin.readline():
        os._exit(1)


def _measured_epochs(reference: str, batch_size: int, samples: int, most_s: float) -> None:
    """Measure as `gpuplan profile` does, each epoch in its turn."""
    from gpuplan.profile import child, recorder
    from gpuplan.profile.document import compute_epoch
    from gpuplan.profile.windows import MeasurementRules

    epochs = EPOCHS_OF_A_TURN[os.environ["KERAS_BACKEND"]]

    class InTurn(recorder.StepRecorder):
        known = 0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch % epochs == 0:
                new = slice(self.known, None)
                _take_turn(windows=[self.meter.steps_s[new], self.meter.counts[new]])
            if epoch % epochs == epochs - 1:
                self.known = len(self.meter.steps_s)
            if epoch > 1 and epoch % epochs:
                self.epochs.pop()  # of sleeping threads: what lies beside its steps is not a plain one's
            super().on_epoch_begin(epoch, logs)

    def use(concrete: ExecutableModel) -> None:
        subject = child.MeasuredModel(
            model=concrete.model,
            data=_data(concrete, samples),
            batch_size=batch_size,
            backend=os.environ["KERAS_BACKEND"],
        )
        enough_s = most_s * epochs  # of every turn the last epoch counts
        row = child.measure_model(
            subject, rules=MeasurementRules(least_s=enough_s, most_s=enough_s), tell=lambda *_: None
        )
        row["epoch"] |= compute_epoch(row, samples=samples, batch_size=batch_size)
        print(json.dumps({"more": False, "row": row}), flush=True)
        os._exit(0)

    recorder.StepRecorder = InTurn  # type: ignore[misc]
    child.build_stepper = lambda *_: None
    _with_model(reference, batch_size, use)


def _plain_epochs(reference: str, batch_size: int, samples: int, most_s: float) -> None:
    """Run epochs of a plain fit() in turn, and report the time of the last one."""
    import keras

    epochs = EPOCHS_OF_A_TURN[os.environ["KERAS_BACKEND"]]

    class InTurn(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.took_s: float | None = None

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch % epochs == 0:
                _take_turn(epoch_s=self.took_s)
            self.began_s = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.took_s = time.perf_counter() - self.began_s

    def use(concrete: ExecutableModel) -> None:
        x, y, _ = _data(concrete, samples)
        concrete.model.fit(x, y, batch_size=batch_size, epochs=10**6, verbose=0, callbacks=[InTurn()])

    _with_model(reference, batch_size, use)


def fit_plainly(reference: str, batch_size: int, samples: int) -> None:
    """Run `fit()` as a script does; `gpuplan profile` stops it at the call and measures in its place."""

    def use(concrete: ExecutableModel) -> None:
        x, y, _ = _data(concrete, samples)
        concrete.model.fit(x, y, batch_size=batch_size, epochs=3, verbose=0)

    _with_model(reference, batch_size, use)


ROLES = {"--measured-epochs": _measured_epochs, "--plain-epochs": _plain_epochs}


def _data(concrete: Any, samples: int) -> tuple[Any, Any, None]:
    from gpuplan.profile.input_pipeline import draw_inputs, draw_targets

    x = draw_inputs(concrete.x, samples=samples, model=concrete.model)
    return x, draw_targets(concrete.y, samples=samples, output=concrete.output), None


def _with_model(reference: str, batch_size: int, use: Any) -> None:
    from gpuplan.workload.capture.materialize import build_and_use
    from gpuplan.workload.options import WorkloadOptions
    from gpuplan.workload.reference import parse_reference

    options = WorkloadOptions(batch_size=batch_size)
    scratch = Path(tempfile.mkdtemp())
    build_and_use(parse_reference(reference, base=ROOT), use, base=ROOT, scratch=scratch, options=options)


def summarize(rows: list[dict[str, Any]]) -> None:
    """Print median and worst error of each repeat, and of rows during which nothing else ran."""
    for repeat in sorted({row["repeat"] for row in rows}):
        _tell(f"repeat {repeat}", [row for row in rows if row["repeat"] == repeat])
    _tell("all", rows)
    for backend in BACKENDS:
        _tell(backend, [row for row in rows if row["backend"] == backend])
    _tell(f"less than {CALM:.0%} of the CPU elsewhere", [row for row in rows if row["calm"]])


def _tell(name: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        errors = [abs(row["error"]) for row in rows]
        middle, worst = statistics.median(errors), max(errors)
        print(f"{name}: {len(rows)} rows, median error {middle:.2%}, worst {worst:.2%}")


def environment(backend: str) -> dict[str, str]:
    """Return the environment of a process that computes on the CPU."""
    return {
        **os.environ,
        "KERAS_BACKEND": backend,
        "JAX_PLATFORMS": "cpu",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def child(arguments: list[str], backend: str) -> dict[str, Any]:
    """Run `profile_accuracy.py` in a child process and return its last output."""
    command = [sys.executable, str(SCRIPT), *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(backend), stdout=subprocess.PIPE, text=True, check=True
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
