"""The epoch that `gpuplan profile` predicts, against real epochs of `fit()`. Part of `profile_accuracy.py`."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kept import Kept

__all__ = [
    "BACKENDS",
    "MODELS",
    "ROOT",
    "child",
    "compare_with_fit",
    "environment",
    "profiled",
    "real_epochs",
]

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = Path(__file__).with_name("profile_accuracy.py")
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
HIGHEST = -20
CALM = 0.10  # of the processor, used by others: above, neither number says what the other would have been [-]


def compare_with_fit(options: argparse.Namespace) -> None:
    """Profile, then run real epochs, each in a process of its own; rows that are there and calm are kept."""
    command = "python benchmarks/profile_accuracy.py fit --output benchmarks/results/profile_fit.json"
    kept = Kept(options.output, command=command, key=("model", "backend", "repeat"))
    began_s = time.monotonic()
    for repeat, (reference, batch_size, samples), backend in _cells(options):
        cell = {"model": reference, "backend": backend, "repeat": repeat}
        if kept.has(**cell, calm=True) or time.monotonic() - began_s > options.budget_s:
            continue
        kept.add({**cell, **_compared(reference, batch_size, samples, backend, options.max_time)})
    summarize(kept.rows)


def _cells(options: argparse.Namespace) -> Iterator[tuple[int, tuple[str, int, int], str]]:
    """Yield every model on another backend each time, so that a run that ends early has some of everything."""
    backends = options.backend or BACKENDS
    for repeat in range(options.repeat):
        for turn in range(len(backends)):
            for number, model in enumerate(MODELS):
                if options.only in model[0]:
                    yield repeat, model, backends[(number + turn) % len(backends)]


def _compared(reference: str, batch_size: int, samples: int, backend: str, max_time: float) -> dict[str, Any]:
    row = profiled(reference, batch_size, samples, backend, max_time)
    real = child(["--real-epochs", reference, str(batch_size), str(samples)], backend)
    fit, epoch = row["fit"], row["epoch"]
    others = max(row["load"]["other_share"], real["other_share"])
    found = {
        "batch_size": batch_size, "steps": epoch["steps"], "predicted_epoch_s": epoch["total_s"],
        "fit_epoch_s": statistics.median(real["epochs_s"]), "fit_epochs_s": real["epochs_s"],
        "step_s": {name: fit[name] for name in ("median_s", "mean_s", "low_s", "high_s", "windows", "spread")},
        "beside_steps_s": epoch["beside_steps_s"], "other_share": others, "calm": others < CALM,
        "preferred": preferred(), "findings": row["findings"],
    }  # fmt: skip
    found["error"] = found["predicted_epoch_s"] / found["fit_epoch_s"] - 1.0
    print(
        f"{found['error']:+7.2%}  {backend:10} {reference}  others {others:.0%}", file=sys.stderr, flush=True
    )
    return found


def profiled(reference: str, batch_size: int, samples: int, backend: str, max_time: float) -> dict[str, Any]:
    """Return the row of a profile of one batch size."""
    from gpuplan.measure.windows import Rules
    from gpuplan.plan.profile_run import Request, profile
    from gpuplan.workload.options import WorkloadOptions

    rules = Rules(most_s=max_time, least_s=min(2.0, max_time))
    request = Request(
        model=reference, batch_sizes=(batch_size,), backend=backend, device="cpu", rules=rules, trace=False,
        options=WorkloadOptions(samples=samples),
    )  # fmt: skip
    row: dict[str, Any] = profile(request)["rows"][0]
    return row


def prefer() -> None:
    """Let the sessions of this process and of all that it starts have the processor before others (Linux, root).

    Not single threads: those that wait for each other must stay equals. A process that measures has a session of
    its own, so that new ones are looked for all the time.
    """

    def look() -> None:
        while True:
            _raise_sessions()
            time.sleep(0.5)

    _raise_sessions()
    atexit.register(Path("/proc/self/autogroup").write_text, "0")  # this session may be a shell's
    threading.Thread(target=look, daemon=True).start()


def _raise_sessions() -> None:
    import psutil

    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(OSError):
            path = Path(f"/proc/{process.pid}/autogroup")
            if not path.read_text().strip().endswith(f"nice {HIGHEST}"):
                path.write_text(str(HIGHEST))


def preferred() -> bool:
    """Return whether this process was put before others."""
    try:
        return Path("/proc/self/autogroup").read_text().strip().endswith(f"nice {HIGHEST}")
    except OSError:
        return False


def real_epochs(reference: str, batch_size: int, samples: int) -> None:
    """Run four epochs of fit() as anybody would, and print the times of all but the first."""
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
        print(json.dumps({"epochs_s": epochs.took_s[1:], "other_share": busy.other_share}), flush=True)
        os._exit(0)

    with_concrete(
        parse_reference(reference, base=ROOT), use, base=ROOT, options=WorkloadOptions(batch_size=batch_size)
    )


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
        **os.environ, "KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }  # fmt: skip


def child(arguments: list[str], backend: str) -> dict[str, Any]:
    """Return what `profile_accuracy.py` printed last in a process of its own."""
    command = [sys.executable, str(SCRIPT), *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(backend), stdout=subprocess.PIPE, text=True, check=True
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
