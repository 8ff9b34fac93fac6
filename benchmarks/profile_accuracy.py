"""Reliability of measured step times: against real epochs of fit(), repeated, under load, and killed.

    python benchmarks/profile_accuracy.py fit --output benchmarks/results/profile_fit.json   # 8 models x 3 backends x 3
    python benchmarks/profile_accuracy.py answer --output benchmarks/results/profile_answer.json   # 8 models, as users do
    python benchmarks/profile_accuracy.py repeat --times 10                # ten profiles, again under load
    python benchmarks/profile_accuracy.py overhead                         # fit() with StepTimer and without
    python benchmarks/profile_accuracy.py kill --times 20                  # SIGKILL at random moments

Every number is of the machine and its load at that time; the load is in the rows. `--budget-s` ends after a while; run
the same command again, and it goes on with what is missing.
"""  # noqa: E501

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import pty
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from against_fit import BACKENDS, MODELS, ROLES, ROOT, child, compare_with_fit, environment, time_epochs
from kept import Kept

TINY = "benchmarks/workloads.py:mlp?width=64&depth=2&features=64"
HIDDEN_LAYERS = 2
HERE = "python benchmarks/profile_accuracy.py"
PROFILE = [sys.executable, "-m", "gpuplan", "profile"]
TRAINING_SCRIPT = """import sys

sys.path.insert(0, {folder!r})
from against_fit import fit_plainly

fit_plainly(*{run!r})
"""


# --- the command as it is typed ---------------------------------------------------------------------------


def measure_answers(options: argparse.Namespace) -> None:
    """Run `gpuplan profile` with its defaults on each model, between real epochs of `fit()`."""
    kept = Kept(
        options.output, command=f"{HERE} answer --repeat {options.repeat}", key=("model", "backend", "repeat")
    )
    for repeat, (reference, batch_size, samples), backend in itertools.product(
        range(options.repeat), MODELS, options.backend or ["jax"]
    ):
        cell = {"model": reference, "backend": backend, "repeat": repeat}
        if options.only in reference and kept.find(**cell) is None:
            kept.add({**cell, **_answered(reference, batch_size, samples, backend, options)})
            row = kept.rows[-1]
            print(
                f"{row['error']:+7.2%}  first value {row['first_value_s']:.0f} s, answer {row['took_s']:.0f} s  "
                f"{backend:10} {reference}  others {row['other_share']:.0%}",
                flush=True,
            )
    errors = [abs(row["error"]) for row in kept.rows]
    longest = {name: max(row[name] for row in kept.rows) for name in ("first_value_s", "took_s")}
    print(
        f"{len(errors)} rows, median error {statistics.median(errors):.2%}, worst {max(errors):.2%}; first value "
        f"within {longest['first_value_s']:.0f} s, answer within {longest['took_s']:.0f} s"
    )


def _answered(
    reference: str, batch_size: int, samples: int, backend: str, options: argparse.Namespace
) -> dict[str, Any]:
    """Return the times of one profile and the error of its epoch against those run before and after it."""
    from gpuplan.profile.document import compute_epoch

    def run_epochs() -> list[list[float]]:
        return time_epochs(
            reference, batch_size=batch_size, samples=samples, backend=backend, processes=2, epochs=options.epochs
        )

    before_s = run_epochs()
    row, first_value_s, took_s = _profile_on_terminal(reference, batch_size, samples, backend)
    epochs_s = [*before_s, *run_epochs()]
    real_s = statistics.median(statistics.median(times) for times in epochs_s)
    predicted_s = compute_epoch(row, samples=samples, batch_size=batch_size)["total_s"]
    return {
        "error": predicted_s / real_s - 1.0,
        "first_value_s": first_value_s,
        "took_s": took_s,
        "predicted_epoch_s": predicted_s,
        "fit_epoch_s": real_s,
        "fit_epochs_s": epochs_s,
        "process_medians_s": row["fit"]["process_medians_s"],
        "interval_s": [row["fit"]["low_s"], row["fit"]["high_s"]],
        "findings": row["findings"],
        "other_share": row["load"]["other_share"],
    }


def _profile_on_terminal(
    reference: str, batch_size: int, samples: int, backend: str
) -> tuple[dict[str, Any], float | None, float]:
    """Return a script's row of its profile, the time until the first value, and of all of it [s].

    The script has the samples of the run: how many there are decides whether batches are read from a cache.
    """
    with tempfile.TemporaryDirectory() as folder:
        output, script = Path(folder, "profile.json"), Path(folder, "train.py")
        script.write_text(
            TRAINING_SCRIPT.format(folder=str(ROOT / "benchmarks"), run=(reference, batch_size, samples))
        )
        ours, its = pty.openpty()
        began_s = time.monotonic()
        first_value_s = None
        with subprocess.Popen(
            [*PROFILE, str(script), "--device", "cpu", "--backend", backend, "-o", str(output)],
            cwd=ROOT,
            env=environment(backend) | {"TERM": "xterm", "COLUMNS": "120"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=its,
        ) as process:
            os.close(its)
            seen = ""
            while text := _read(ours):
                seen += text
                if first_value_s is None and re.search(r"\d ms\b", seen):
                    first_value_s = time.monotonic() - began_s
        took_s = time.monotonic() - began_s
        os.close(ours)
        if process.returncode != 0:
            raise SystemExit(f"gpuplan profile {reference} ended with {process.returncode}: {seen[-500:]}")
        rows = json.loads(output.read_text())["rows"]
        return next(row for row in rows if row["batch_size"] == batch_size), first_value_s, took_s


def _read(descriptor: int) -> str:
    """Return what a terminal shows next; an empty text once its processes have ended."""
    try:
        return os.read(descriptor, 65_536).decode(errors="replace")
    except OSError:  # EIO: every process has closed it
        return ""


# --- repeated, under load ---------------------------------------------------------------------------------


def repeat_profiles(options: argparse.Namespace) -> None:
    """Profile one model several times, quiet and with one core kept busy."""
    kept = Kept(
        options.output,
        command=f"{HERE} repeat --max-time {options.max_time:g}",
        key=("model", "backend", "one_core_busy"),
    )
    for loaded in {"no": (False,), "only": (True,), "both": (False, True)}[options.load]:
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if loaded else None
        try:
            rows = [_profiled(options) for _ in range(options.times)]
        finally:
            if busy is not None:
                busy.kill()
                busy.wait()
        found = _spread(rows) | {"model": options.model, "backend": options.backend[0], "one_core_busy": loaded}
        kept.add(found)
        print(
            f"{'one core busy' if loaded else 'as it is'}: {len(rows)} profiles, half range of medians "
            f"{found['half_range']:.2%}, {found['hold_the_middle']} intervals hold their middle, "
            f"{found['told']} with a finding of unsteadiness, others used "
            f"{found['other_share']:.0%} of the CPU"
        )


def _profiled(options: argparse.Namespace) -> dict[str, Any]:
    """Return the row of a profile created by the `gpuplan profile` command."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "profile.json")
        command = [
            *PROFILE, options.model, "--batch-size", "128", "--device", "cpu", "--backend", options.backend[0],
            "--max-time", str(options.max_time), "-o", str(output),
        ]  # fmt: skip
        subprocess.run(command, cwd=ROOT, env=environment(options.backend[0]), check=True, capture_output=True)
        row: dict[str, Any] = json.loads(output.read_text())["rows"][0]
        return row


def _spread(rows: list[dict[str, Any]]) -> dict[str, Any]:
    medians = [row["fit"]["median_s"] for row in rows]
    ends = [(row["fit"]["low_s"], row["fit"]["high_s"]) for row in rows]
    middle_s = statistics.median(medians)
    told = [any("unsteady" in finding for finding in row["findings"]) for row in rows]
    return {
        "medians_s": medians,
        "processes": [len(row["fit"]["process_medians_s"]) for row in rows],
        "intervals_s": ends,
        "hold_the_middle": sum(low_s <= middle_s <= high_s for low_s, high_s in ends),
        "half_range": (max(medians) - min(medians)) / 2 / middle_s,
        "told": sum(told),
        "told_each": told,
        "other_share": statistics.median(row["load"]["other_share"] for row in rows),
        "other_shares": [row["load"]["other_share"] for row in rows],
    }


# --- StepTimer --------------------------------------------------------------------------------------------


def measure_overhead(options: argparse.Namespace) -> None:
    """Run epochs with StepTimer and without, in turn, and compare their medians.

    Once with the progress bar that `fit()` has by default (it goes nowhere), once in silence: there Keras calls
    nothing at all after a batch, and the first callback that wants to know of batches pays for its machinery.
    """
    command = f"{HERE} overhead --width {options.width} --samples {options.samples} --times {options.times}"
    kept = Kept(options.output, command=command, key=("backend", "progress_bar", "width"))
    for backend, bar in itertools.product(options.backend or BACKENDS, (True, False)):
        numbers = map(str, (options.times, int(bar), options.width, options.samples))
        found = child(["--overhead-child", *numbers], backend)
        kept.add({"backend": backend, "progress_bar": bar, "width": options.width, **found})
        name = f"{backend}, with the progress bar" if bar else backend
        print(
            f"{name}: {found['steps_per_s']:.0f} steps/s, overhead {found['overhead']:+.3%} ± "
            f"{found['sure']:.3%}, others used {found['other_share']:.0%} of the CPU"
        )


def overhead_child(pairs: int, *, bar: bool, width: int, samples: int) -> None:
    """Print the ratio of epochs with the timer to their neighbours without.

    Args:
        pairs: Of epochs [-].
        bar: Whether Keras shows its progress.
        width: Units of the hidden layers, which set how long a step takes [-].
        samples: Of an epoch: few, so that neighbours see one machine [-].
    """
    import gpuplan
    import keras
    import numpy as np
    from gpuplan.profile.background_load import LoadMonitor
    from gpuplan.profile.statistics import compute_median_interval

    x = np.random.default_rng(0).random((samples, 64), dtype=np.float32)
    y = x.sum(axis=1, keepdims=True)
    hidden = [keras.layers.Dense(width) for _ in range(HIDDEN_LAYERS)]
    model = keras.Sequential([keras.Input((64,)), *hidden, keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")

    def epoch_s(callbacks: list[Any]) -> float:
        with redirect_stdout(io.StringIO()):  # the progress bar
            began_s = time.perf_counter()
            model.fit(x, y, batch_size=64, epochs=1, verbose=int(bar), callbacks=callbacks)
            return time.perf_counter() - began_s

    epoch_s([])
    watch = LoadMonitor([os.getpid()])
    timer = gpuplan.StepTimer(None, predict=False, verbose=False)
    timer.on_train_begin = lambda logs=None: None  # type: ignore[method-assign]  # start-up is not a step's
    timer.on_train_end = lambda logs=None: None  # type: ignore[method-assign]
    ratios, plain = [], []
    for pair in range(pairs):
        order = (False, True) if pair % 2 else (True, False)
        took = {with_it: epoch_s([timer] if with_it else []) for with_it in order}
        ratios.append(took[True] / took[False] - 1)
        plain.append(took[False])
    low, high = compute_median_interval(ratios) or (float("nan"), float("nan"))
    answer = {
        "overhead": statistics.median(ratios),
        "sure": (high - low) / 2,
        "pairs": ratios,
        "steps_per_s": len(x) / 64 / statistics.median(plain),
        "other_share": watch.stop()["other_share"],
    }
    print(json.dumps(answer))


# --- killed -----------------------------------------------------------------------------------------------


def kill_at_random(options: argparse.Namespace) -> None:
    """Start a profile, kill it at a random moment of its life, and look at the file: whole or absent."""
    draw, seen = random.Random(options.seed), {"absent": 0, "whole": 0}
    kept = Kept(options.output, command=f"{HERE} kill", key=("seed",))
    whole_s = _lives_s(None)
    for number in range(options.times):
        seen["whole" if _lives_s(draw.uniform(0.0, 1.1 * whole_s)) else "absent"] += 1
        kept.add({"seed": options.seed, "times": number + 1, "whole_s": whole_s, "half": 0, **seen})
        print(f"killed {number + 1} times within {1.1 * whole_s:.1f} s: {seen}, never half a file", flush=True)


def _lives_s(kill_after_s: float | None) -> float:
    """Return the time of a profile; if killed, 1 if the file is complete and 0 if there is none [s]."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "profile.json")
        began_s = time.monotonic()
        process = subprocess.Popen(
            [*PROFILE, TINY, "--max-time", "0.2", "-o", str(output)],
            cwd=ROOT,
            env=environment("jax"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if kill_after_s is None:
            process.wait()
            return time.monotonic() - began_s
        time.sleep(kill_after_s)
        process.kill()
        process.wait()
        if output.exists():
            json.loads(output.read_text())  # raises on half a file
        return float(output.exists())


# --- the command ------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    fit = commands.add_parser("fit", help="predicted epochs against real ones")
    fit.add_argument("--repeat", type=int, default=3)
    fit.add_argument("--processes", type=int, default=3, help="pairs of processes a row, at least")
    fit.add_argument("--only", default="", help="models whose reference holds this text")
    fit.add_argument("--budget-s", type=float, default=float("inf"), help="start nothing more after so long [s]")
    fit.set_defaults(run=compare_with_fit)
    answer = commands.add_parser("answer", help="the command with its defaults: time, and error of an epoch")
    answer.add_argument("--repeat", type=int, default=1)
    answer.add_argument("--epochs", type=int, default=8, help="real epochs a process")
    answer.add_argument("--only", default="", help="models whose reference holds this text")
    answer.set_defaults(run=measure_answers)
    repeat = commands.add_parser("repeat", help="several profiles of one model")
    repeat.add_argument("--times", type=int, default=10)
    repeat.add_argument("--model", default="benchmarks/workloads.py:mlp?width=256&depth=3&features=784")
    repeat.add_argument("--load", choices=("no", "only", "both"), default="both", help="with one core kept busy")
    repeat.set_defaults(run=repeat_profiles)
    overhead = commands.add_parser("overhead", help="StepTimer's cost")
    overhead.add_argument("--times", type=int, default=600, help="pairs of epochs")
    overhead.add_argument("--width", type=int, default=256, help="units of a layer: how long a step takes")
    overhead.add_argument("--samples", type=int, default=8_000, help="of an epoch")
    overhead.set_defaults(run=measure_overhead)
    kill = commands.add_parser("kill", help="SIGKILL at random moments")
    kill.add_argument("--times", type=int, default=20)
    kill.add_argument("--seed", type=int, default=0)
    kill.set_defaults(run=kill_at_random)
    for one in (fit, answer, repeat, overhead, kill):
        one.add_argument("--backend", action="append", choices=BACKENDS)
        one.add_argument("--max-time", type=float, default=5.0, help="of the windows [s]")
        one.add_argument("--core", type=int, help="number of the one core to use; Linux")
        one.add_argument("--output", type=Path, help="JSON file that the rows are kept in")
    return parser


def main() -> None:
    """Answer one command."""
    if len(sys.argv) > 1 and sys.argv[1] in ROLES:
        ROLES[sys.argv[1]](sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
    elif sys.argv[1:2] == ["--overhead-child"]:
        pairs, bar, width, samples = map(int, sys.argv[2:6])
        overhead_child(pairs, bar=bool(bar), width=width, samples=samples)
    else:
        options = _parser().parse_args()
        if options.run is repeat_profiles and options.backend is None:
            options.backend = ["jax"]
        options.output = options.output and options.output.absolute()
        os.chdir(ROOT)
        if options.core is not None:
            os.sched_setaffinity(0, {options.core})
        options.run(options)


if __name__ == "__main__":
    main()
