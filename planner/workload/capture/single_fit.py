"""Following of a script up to one of its `fit()` calls, whose model is used instead of traced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from ..errors import CaptureError
from .phases import count_epochs
from .stand_ins import StandIns
from .unknown_metrics import MetricUse
from .written_files import make_scratch, protect_files


class SingleFit:
    """Training calls of a script of which one is used; the others return stand-ins."""

    def __init__(
        self,
        use: Callable[[Any, dict[str, Any]], NoReturn],
        *,
        fit_call: int,
        own: Path,
        folder: Path | None = None,
    ) -> None:
        """Start before the first call.

        Args:
            use: Function that receives the model and the arguments of `fit()`; must end the process or raise.
            fit_call: Number of `fit()` calls before the one to use [-].
            own: Folder of the user's own files.
            folder: Folder for what the script writes after its first `fit()`; None for a temporary one.
        """
        self._use, self._fit_call, self._folder = use, fit_call, folder
        self._stand_ins = StandIns(MetricUse(str(own)))
        self._calls = 0

    @property
    def reached(self) -> bool:
        """Whether a `fit()` was followed."""
        return self._calls > 0

    def fit(self, model: Any, arguments: dict[str, Any]) -> Any:
        """Use the model, or return a stand-in of the history."""
        if self._calls == self._fit_call:
            self._use(model, arguments)
        if self._calls == 0:
            protect_files(make_scratch(self._folder))
        self._calls += 1
        return self._stand_ins.fit(model, arguments, epochs=count_epochs(arguments))

    def evaluate(self, model: Any, arguments: dict[str, Any]) -> Any:
        """Return unknown metrics."""
        return self._stand_ins.evaluate(model, as_dict=bool(arguments.get("return_dict")))

    def predict(self, model: Any, arguments: dict[str, Any]) -> Any:
        """Return zeros in the shape of the predictions."""
        from ..build.fit_inputs import read_fit_inputs

        return self._stand_ins.predict(model, read_fit_inputs(arguments))

    def search(self, tuner: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Take a search of KerasTuner as one `fit()` of the default hyperparameters."""
        from .tuner_search import find_budget, stand_in_for_results

        budget = find_budget(tuner, arguments, options)
        self.fit(budget.model, budget.arguments)
        stand_in_for_results(tuner, budget)

    def build_missing_error(self, text: str) -> CaptureError:
        """Return the error for a script that ended before the call."""
        return CaptureError(
            f"{text} called fit() {self._calls} times, fewer than when it was first traced",
            hint="run the command again",
        )
