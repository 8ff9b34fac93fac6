"""`gpuplan.StepTimer`: a Keras callback that times a run of `fit()`, on any machine, in one line.

model.fit(x, y, epochs=10, callbacks=[gpuplan.StepTimer()])
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Literal

import keras

from .launch.agent.timing import find_batch_size, find_epoch_iterator
from .profile.background_load import LoadMonitor
from .profile.document import complete_profile, create_profile, create_row, find_accelerator_name, find_caveats
from .profile.input_pipeline import InputWaits
from .profile.machine import describe_environment, read_device_peak_bytes, read_resident_peak_bytes
from .profile.recorder import StepRecorder
from .profile.windows import MeasurementRules, Meter
from .profile_schema import ProfileDocument, Timing
from .records import to_plain
from .units import MS_PER_S, format_duration

RULES = MeasurementRules(window_s=0.5, warm_up_s=10.0, most_s=float("inf"))
WRITE_INTERVAL_S = 60.0
MOST_WINDOWS = 2000  # beyond it windows are merged in pairs, to bound the size of the file
REPORTED_WIDTH = 0.05  # relative width of the interval below which the remaining time is printed [-]


class StepTimer(StepRecorder):
    """Keras callback that times the steps of `fit()`, prints the remaining time, and writes a profile.

    It adds no synchronization, and leaves Keras's asynchronous callbacks asynchronous.

    Args:
        path: File of the profile, written at the end and at most once a minute after an epoch; None for no file.
        name: Name of the model in the profile; by default the model's own.
        batch_size: Samples of a step over all devices; None to read it from the call of `fit()` [-].
        accelerator: The catalog's name of the device; None to look it up by the device's own name.
        predict: Whether to compare the result with the prediction for this accelerator, which takes seconds.
        verbose: Whether to print messages on standard error.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = "profile.json",
        *,
        name: str | None = None,
        batch_size: int | None = None,
        accelerator: str | None = None,
        predict: bool = True,
        verbose: bool = True,
    ) -> None:
        super().__init__(Meter(RULES), on_window=self._on_window)
        self.path = None if path is None else Path(path)
        self.name, self.batch_size, self.accelerator = name, batch_size, accelerator
        self.predict, self.verbose = predict, verbose
        self.document: ProfileDocument | None = None
        self._input = InputWaits()
        self._reported = False
        self._written_s = 0.0

    # --- callbacks ----------------------------------------------------------------------------------------

    def on_train_begin(self, logs: Any = None) -> None:
        """Start the clock, and find the batch size."""
        self.batch_size = self.batch_size or find_batch_size()
        self._watch = LoadMonitor([os.getpid()])
        self._input.watch(find_epoch_iterator(), keras.backend.backend())
        super().on_train_begin(logs)
        self._written_s = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Write the profile so far at most once a minute, and print the remaining time."""
        super().on_epoch_end(epoch, logs)
        now_s = time.perf_counter()
        if now_s - self._written_s >= WRITE_INTERVAL_S:  # reading the machine's state takes tens of ms
            self._update("running")
            self._written_s = now_s
        self._report_remaining()

    def on_train_end(self, logs: Any = None) -> None:
        """Write the profile, and print the comparison with the prediction."""
        super().on_train_end(logs)
        if not self.epochs or not self.epochs[0].steps:
            return
        document = self._update("complete")
        if self.predict:
            from .profile.end_to_end import compare_with_prediction

            for sentence in compare_with_prediction(document, self._model):
                self._say(sentence)
            self._write(document)
        if self.path is not None:
            self._say(f"wrote {self.path}")

    # --- remaining time -----------------------------------------------------------------------------------

    def _on_window(self, meter: Meter) -> None:
        if len(meter.steps_s) >= MOST_WINDOWS:
            _merge_pairs(meter)
        if self._reported or len(self.epochs) > 1 or not meter.steps_s:
            return
        width = meter.summary()["width"]
        if width is not None and width <= REPORTED_WIDTH:
            self._reported = True
            self._report_remaining()

    def remaining_s(self) -> float | None:
        """Return the remaining time of the run, with validation as in the epochs so far [s]; None if unknown."""
        params = self.params or {}
        per_epoch, epochs, step_s = params.get("steps"), params.get("epochs"), self.step_s()
        if not per_epoch or not epochs or step_s is None:
            return None
        current = self.epochs[-1]
        left = epochs - len(self.epochs)
        steps_left = left * per_epoch + (0 if current.ended_s else max(per_epoch - current.steps, 0))
        beside = [e.validation_s for e in self.epochs if e.ended_s is not None]
        validations = left + (0 if current.ended_s else 1)
        return float(steps_left * step_s + (median(beside) * validations if beside else 0.0))

    def step_s(self) -> float | None:
        """Return the median step time so far [s]; None before the first window or epoch."""
        if self.meter.steps_s:
            return median(self.meter.steps_s)
        if self.meter.warm:
            return self.meter.warm[-1]
        epoch = self.epochs[-1] if self.epochs else None
        per_call = self.steps_per_call
        if epoch is None or epoch.last_s is None or epoch.first_s is None or epoch.steps <= per_call:
            return None
        return (epoch.last_s - epoch.first_s) / (epoch.steps - per_call)

    def _report_remaining(self) -> None:
        left_s, step_s = self.remaining_s(), self.step_s()
        if left_s is None or step_s is None or left_s <= 0:
            return
        known = any(epoch.ended_s is not None for epoch in self.epochs)
        without = "" if known else ", validation not counted yet"
        self._say(f"{step_s * MS_PER_S:.4g} ms per step; done in {format_duration(left_s)}{without}")

    def _say(self, text: str) -> None:
        if self.verbose:
            sys.stderr.write(f"StepTimer: {text}\n")

    # --- the profile --------------------------------------------------------------------------------------

    def _update(self, status: Literal["running", "complete"]) -> ProfileDocument:
        self.document = document = self._build_profile(status)
        self._write(document)
        return document

    def _write(self, document: ProfileDocument) -> None:
        from .render.output import write_document

        write_document(self.path, document)

    def _build_profile(self, status: Literal["running", "complete"]) -> ProfileDocument:
        backend = keras.backend.backend()
        distribution = keras.distribution.distribution()
        devices = 1 if distribution is None else int(distribution.device_mesh.devices.size)
        document = create_profile(
            model=self.name or self._model.name,
            mode="train",
            backend=backend,
            data="script",
            rules={**to_plain(self.meter.rules), "most_s": None},
            source="step_timer",
        )
        self.batch_size = self.batch_size or self._input.batch_size
        found = describe_environment(backend)
        document |= {"status": status, "environment": found, "devices": devices, "run": self._build_run()}
        document["accelerator"] = self.accelerator or find_accelerator_name(found["device"])
        timing: Timing = self.meter.to_json() | {"stopped": "stopped"}
        if not self.meter.steps_s:  # the mean of an epoch's steps except the first
            timing["median_s"] = self.step_s()
        row = create_row(status="measured", batch_size=self.batch_size and max(1, self.batch_size // devices))
        row |= {
            "precision": str(self._model.dtype_policy.name),
            "fit": timing,
            "prepare": {"first_step_s": self.first_step_s, "parameters": self._model.count_params()},
            "memory": {
                "device_peak_bytes": read_device_peak_bytes(backend),
                "host_peak_bytes": read_resident_peak_bytes(),
            },
        }
        loading = self._input.build_record(batch_size=self.batch_size, step_s=self.step_s())
        row["pipeline"] = None if loading is None else [loading]
        row["load"] = self._watch.stop()
        row["findings"] = find_caveats(row, rules=RULES)
        document["rows"] = [row]
        return complete_profile(document)

    def _build_run(self) -> dict[str, Any]:
        params = self.params or {}
        began_s = self.train_began_s or 0.0
        return {
            "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "epochs_planned": params.get("epochs"),
            "steps_per_epoch": params.get("steps"),
            "epochs_s": [e.ended_s - e.began_s for e in self.epochs if e.ended_s is not None],
            "validation_s": [e.validation_s for e in self.epochs if e.ended_s is not None],
            "steps": [epoch.steps for epoch in self.epochs],
            "total_s": None if self.train_ended_s is None else self.train_ended_s - began_s,
            "global_batch_size": self.batch_size,
        }


def _merge_pairs(meter: Meter) -> None:
    """Merge the windows in pairs, and double their length."""
    counts = list(zip(meter.counts[::2], meter.counts[1::2], strict=False))
    pairs = zip(meter.steps_s[::2], meter.steps_s[1::2], counts, strict=False)
    meter.steps_s[:] = [(a * n + b * m) / (n + m) for a, b, (n, m) in pairs]
    meter.counts[:] = [n + m for n, m in counts]
    meter.rules = replace(meter.rules, window_s=2 * meter.rules.window_s)
