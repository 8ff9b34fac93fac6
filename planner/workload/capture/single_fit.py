"""Following of a script up to one of its `fit()` calls, whose model is used instead of traced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from ..errors import CaptureError
from .stand_ins import StandIns


class SingleFit(StandIns):
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
            own, folder: As for `StandIns`.
        """
        super().__init__(own=own, folder=folder)
        self._use_model, self._fit_call = use, fit_call

    def fit(self, model: Any, arguments: dict[str, Any], *, calls: int = 1) -> Any:
        """Use the model, or return a stand-in of the history."""
        if self._calls == self._fit_call:
            self._use_model(model, arguments)
        return super().fit(model, arguments)

    def build_missing_error(self, text: str) -> CaptureError:
        """Return the error for a script that ended before the call."""
        return CaptureError(
            f"{text} called fit() {self._calls} times, fewer than when it was first traced",
            hint="run the command again",
        )
