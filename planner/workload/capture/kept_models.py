"""Models that stay built in their process, to be traced again with other options of the step."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from ..options import WorkloadOptions
from .process import ScriptOutput, ScriptProcess

OF_STEP = ("batch_size", "remat", "tensor", "use_cache")  # options that change the trace and not the model

_kept: ContextVar[KeptModels | None] = ContextVar("kept_models", default=None)


def compute_model_key(text: str, *, base: Path, options: WorkloadOptions, argv: Sequence[str]) -> str:
    """Return a key of a built model: its reference and all options but those of the step."""
    fixed = {name: value for name, value in options.to_json().items() if name not in OF_STEP}
    variables = {name: os.environ.get(name) for name in ("KERAS_BACKEND", *options.script.variables)}
    return json.dumps([text, str(base), list(argv), fixed, variables], sort_keys=True)


class KeptModel:
    """A process that has answered a request, and answers it again with other options of the step."""

    def __init__(
        self, child: ScriptProcess, folder: Path, *, output: ScriptOutput, close: Callable[[], None]
    ) -> None:
        """Take a process, the folder of its requests and results, and a function that ends both."""
        self._child, self._folder, self._output, self.close = child, folder, output, close
        self._asked = 0

    def ask(self, options: WorkloadOptions) -> dict[str, Any] | None:
        """Return the answer of the process; None if it ended without one.

        Raises:
            ScriptTimeoutError: The user's code exceeded its time limit.
        """
        self._asked += 1
        result_path = self._folder / f"result-{self._asked}.json"
        request_path = self._folder / f"request-{self._asked}.json"
        request_path.write_text(json.dumps(options.to_json()), encoding="utf-8")
        with self._output.shown_on_failure():
            if not (self._child.ask() and self._child.wait_for(result_path)):
                return None
        answer: dict[str, Any] = json.loads(result_path.read_bytes())
        return answer


class KeptModels(dict[str, KeptModel]):
    """Processes by what their models depend on."""

    def ask(self, key: str, options: WorkloadOptions) -> dict[str, Any] | None:
        """Return the answer of a process; None if there is none, or if it ended."""
        answer = self[key].ask(options) if key in self else None
        if answer is None:
            self.drop(key)
        return answer

    def drop(self, key: str) -> None:
        """End a process, if there is one."""
        if key in self:
            self.pop(key).close()


def get_kept_models() -> KeptModels | None:
    """Return the models that are kept in this context; None if they are not."""
    return _kept.get()


@contextmanager
def keep_models_built() -> Iterator[None]:
    """Context in which a model that was traced in a process of its own is not built again for another trace.

    Keras is then imported once, and the model is built once, however many batch sizes and ways of recomputation
    are traced. Scripts and models that are not traced on JAX are run again for each. Contexts may be nested.
    """
    if _kept.get() is not None:
        yield
        return
    kept = KeptModels()
    token = _kept.set(kept)
    try:
        yield
    finally:
        _kept.reset(token)
        for key in list(kept):
            kept.drop(key)
