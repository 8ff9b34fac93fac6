"""Arguments and flags that say what is trained, the model, its script, the run, and what starts a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..frozen import Frozen

if TYPE_CHECKING:
    from ..workload.options import WorkloadOptions

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="Script, function, Keras application or preset, .keras or .json file."
    ),
]


def _require_separator(context: typer.Context, values: list[str] | None) -> list[str] | None:
    """Return a script's arguments; UsageError without `--` before them, such as two values after one flag."""
    line = context.obj  # as typed; None when a command is called from Python
    if not values or line is None or "--" in line:
        return values
    from ..errors import UsageError

    first = values[0]
    flag, value = ("", *line[: line.index(first)])[-2:]
    named = value.partition("=")[0] if "=" in value else flag
    again = f"to give `{named}` several values, repeat it: `{named} {first}`"
    raise UsageError(
        f"`{first}`: arguments for the script come after `--`",
        hint=again if named.startswith("--") else f"write `-- {' '.join(values)}` at the end of the line",
    )


ScriptArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- ARGS]",
        help="Arguments that the script receives in sys.argv.",
        callback=_require_separator,
    ),
]
Backend = Annotated[
    Literal["jax", "tensorflow", "torch"] | None,
    typer.Option(help="Keras's backend. Default: KERAS_BACKEND, else jax."),
]
Device = Annotated[Literal["cpu", "gpu", "tpu"] | None, typer.Option(help="Device to compute on.")]
Rank = Annotated[
    int | None, typer.Option(help="Number of the offer in the plan, from 1. Default: the recommended one.")
]
Script = Annotated[str | None, typer.Option(help="Script to run if the plan's MODEL is not one.")]
MaxUsd = Annotated[float | None, typer.Option(help="Maximum cost of the run, all attempts together.")]
MaxHours = Annotated[float | None, typer.Option(help="Maximum lifetime of the machine.")]
FitFlag = Annotated[
    bool,
    typer.Option(
        "--fit",
        help="If the step does not fit, plan how it could: sharded, in smaller passes, with recomputed layers.",
    ),
]


class RunFlags(Frozen):
    """Batch size, length and precision of the run."""

    batch_size: Annotated[int | None, typer.Option(help="Samples per device and step.")] = None
    samples: Annotated[int | None, typer.Option(help="Training samples per epoch.")] = None
    epochs: Annotated[int | None, typer.Option(help="Number of passes over the samples.")] = None
    steps: Annotated[
        int | None, typer.Option(help="Number of optimizer steps on one device, instead of epochs.")
    ] = None
    precision: Annotated[
        str | None, typer.Option(help="float32, tf32, mixed_float16, mixed_bfloat16, float16 or bfloat16.")
    ] = None


class ModelFlags(Frozen):
    """What is computed, and the time that the user's code may take to build it."""

    tokens: Annotated[
        float | None, typer.Option(help="Training tokens of a language model's run (1e9), instead of epochs.")
    ] = None
    mode: Annotated[Literal["train", "infer"], typer.Option(help="Training or inference.")] = "train"
    loss: Annotated[str | None, typer.Option(help="Keras loss of a model that is not compiled.")] = None
    optimizer: Annotated[
        str | None, typer.Option(help="Keras optimizer of a model that is not compiled.")
    ] = None
    remat: Annotated[
        bool,
        typer.Option("--remat", help="Recompute each layer's activations in the backward pass (RematScope)."),
    ] = False
    script_timeout: Annotated[
        str | None, typer.Option(help="Time limit of a script: 90s, 30m. Default: 10m.")
    ] = None


def build_options(*groups: Frozen, **single: Any) -> WorkloadOptions:
    """Combine groups of flags and single ones, by the names of their fields, into tracing options."""
    from ..plan.request import build_workload_options

    return build_workload_options(
        **{name: value for one in groups for name, value in vars(one).items()}, **single
    )
