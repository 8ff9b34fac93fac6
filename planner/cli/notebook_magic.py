"""The line magic `%gpuplan` of a notebook, after `%load_ext gpuplan`."""

from __future__ import annotations

import builtins
import shlex
import sys
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from typing import Any

import typer

from ..api import Estimate, estimate
from ..errors import GpuplanError, UsageError
from ..offers.clouds import COLAB
from ..plan.estimate_request import EstimateRequest
from ..render.progress import say
from .app import app_for
from .parse_errors import describe_parse_error


def load_ipython_extension(shell: Any) -> None:
    """Add `%gpuplan [MODEL] [FLAGS]`: MODEL is a variable, or what `gpuplan estimate` takes, as are FLAGS."""
    shell.register_magic_function(partial(answer_line, shell.user_ns), magic_name="gpuplan")


def answer_line(names: Mapping[str, Any], line: str) -> Estimate | None:
    """Return the estimate that a line asks for; None after an error, which is printed.

    In Colab, unless the line chooses among offers, an answer about Colab alone is displayed before.

    Args:
        names: Variables of the notebook; without MODEL, its last Keras model is taken.
        line: The line after `%gpuplan`.
    """
    words = shlex.split(line)
    name = words.pop(0) if words and not words[0].startswith("-") else ""
    command = typer.main.get_command(app_for(["estimate"])).commands["estimate"]  # type: ignore[attr-defined]
    try:
        given = command.make_context("%gpuplan", [*words, "--", name]).params
        asked = {one.name: given[one.name] for one in fields(EstimateRequest) if given[one.name] is not None}
        model = names.get(name, name) if name else _find_last_model(names)
        is_open = not any(asked.get(one) for one in ("providers", "accelerators", "own"))
        if is_open and "google.colab" in sys.modules:
            vars(builtins)["display"](estimate(model, **{**asked, "providers": ("local", COLAB)}))  # IPython's
        return estimate(model, **asked)
    except (typer.TyperException, GpuplanError) as error:
        told = error if isinstance(error, GpuplanError) else describe_parse_error(error, ["estimate", *words])
        say(f"error: {told}\nhint: {told.hint}")
    return None


def _find_last_model(names: Mapping[str, Any]) -> Any:
    keras = sys.modules.get("keras")
    models = [] if keras is None else [value for value in names.values() if isinstance(value, keras.Model)]
    if not models:
        raise UsageError(
            "there is no Keras model in this notebook", hint="define one, or type `%gpuplan train.py`"
        )
    return models[-1]
