"""Following of a script in the child process: what its training calls do, and the answer that they make."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from ...errors import GpuplanError
from ..build.fit_inputs import FitInputs, read_fit_inputs
from ..errors import BackendError, find_own_frame, to_one_line
from ..model import Workload
from .phases import PhaseRecorder
from .stand_ins import StandIns, find_early_end
from .tuner_search import SearchBudget
from .watch import WHERE

LONGEST_REST_S = 60.0  # from one `fit()` to the next, until the rest of a script is left out
WATCH_S = 0.5
SAVE_EVERY_S = 2.0
LINES_NAMED = 3  # that depend on a metric [-]


class ScriptFollower(StandIns):
    """Training calls of a script that is traced phase by phase.

    Whatever ends the process after the first `fit()`, the phases so far are in the result file.
    """

    def __init__(
        self,
        trace: Callable[[Any, FitInputs, int, dict[str, Any]], Workload],
        *,
        own: Path,
        folder: Path,
        save: Callable[[dict[str, Any]], None],
    ) -> None:
        """Start before the first call.

        Args:
            trace: As for `PhaseRecorder`.
            own: Folder of the user's own files.
            folder: Folder of the result file.
            save: Function that writes the answer.
        """
        super().__init__(own=own, folder=folder)
        self._own, self._save = str(own), save
        self._where = folder / WHERE
        self._recorder = PhaseRecorder(trace)
        self._saved_s = self._rested_s = time.monotonic()
        self._busy = 0

    # --- calls of the script ------------------------------------------------------------------------------

    def fit(self, model: Any, arguments: dict[str, Any], *, calls: int = 1) -> Any:
        """Add a phase, and return its history."""
        with self._working():
            try:
                feed = read_fit_inputs(arguments)
                is_new = self._recorder.add(model, feed, arguments, fit_call=self._calls, calls=calls)
            except GpuplanError as error:
                if not self.reached or isinstance(error, BackendError):
                    raise
                self._note(f"{self._line('fit()')} is not counted: {error}")
                is_new = False
            self._note_early_end(arguments)
            is_first = not self.reached
            history = super().fit(model, arguments)
            if is_first:
                threading.Thread(target=self._watch, daemon=True).start()
            if is_new or time.monotonic() - self._saved_s > SAVE_EVERY_S:
                self.save(partial=True)
            return history

    def evaluate(self, model: Any, arguments: dict[str, Any]) -> Any:
        """Return unknown metrics."""
        self._count_passes("evaluate", model, arguments)
        return super().evaluate(model, arguments)

    def predict(self, model: Any, arguments: dict[str, Any]) -> Any:
        """Return zeros; where their shape is unknown, what the untrained model predicts."""
        self._count_passes("predict", model, arguments)
        with suppress(Exception):
            return super().predict(model, arguments)
        return model.predict(*[value for name, value in arguments.items() if name != "self"])

    def search(self, tuner: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> SearchBudget:
        """Take a search of KerasTuner as its trials, and note so."""
        budget = super().search(tuner, arguments, options)
        self._note(budget.note)
        return budget

    # --- answer -------------------------------------------------------------------------------------------

    def save(self, *, partial: bool, ended: str = "") -> None:
        """Write the phases so far.

        Args:
            partial: Whether the script goes on.
            ended: Why it ended early; empty if it did not.
        """
        self._saved_s = time.monotonic()
        notes = tuple(list(self._use.notes.values())[:LINES_NAMED])
        if ended:
            notes += (f"the script was followed until {ended}: what comes after is not counted",)
        workload = self._recorder.build_workload(notes=notes)
        self._save({"workload": workload.to_json(), "partial": partial})

    def _count_passes(
        self, kind: Literal["evaluate", "predict"], model: Any, arguments: dict[str, Any]
    ) -> None:
        """Add the forward passes of a call; a note where they cannot be counted."""
        try:
            feed = read_fit_inputs({**arguments, "steps_per_epoch": arguments.get("steps")})
            self._recorder.add_passes(kind, model, feed)
        except GpuplanError as error:
            self._note(f"{self._line(f'{kind}()')} is not counted: {error}")
        except Exception as error:  # the data is the user's code
            self._note(f"{self._line(f'{kind}()')} is not counted: {to_one_line(error)}")

    def _note(self, note: str) -> None:
        self._recorder.notes[note] = None

    def _note_early_end(self, arguments: dict[str, Any]) -> None:
        with suppress(Exception):
            name = find_early_end(arguments)
            if name is not None:
                self._note(f"{name} may end training earlier: its epochs are an upper bound")

    def _line(self, what: str) -> str:
        """Return a call with its line in the user's files."""
        frame = find_own_frame(sys._getframe(1), self._own)
        if frame is None:
            return what
        return f"{what} at {os.path.basename(frame.f_code.co_filename)}, line {frame.f_lineno}"

    # --- rest of the script -------------------------------------------------------------------------------

    @contextmanager
    def _working(self) -> Any:
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self._rested_s = time.monotonic()

    def _watch(self) -> None:
        while self._busy or time.monotonic() - self._rested_s < LONGEST_REST_S:
            time.sleep(WATCH_S)
        where: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            where = json.loads(self._where.read_bytes())
        line = f"{os.path.basename(where['file'])}, line {where['line']}" if where.get("file") else "a line"
        self.save(
            partial=False, ended=f"{line}, where {LONGEST_REST_S:.0f} s had passed without another fit()"
        )
        os._exit(0)
