"""Arguments and flags that commands share: the model and its run, offers, limits, values of hours, output."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

import typer

from ..records import Frozen
from .option_values import complete_accelerators, complete_providers, complete_regions

if TYPE_CHECKING:
    from ..plan.request import EstimateRequest
    from ..workload.options import WorkloadOptions


ModelArgument = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="Script, function, Keras application or preset, .keras or .json file."),
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
    if named.startswith("--"):
        repeats = any(named in one.opts for one in context.command.params if getattr(one, "multiple", False))
        given = value.partition("=")[2] or value
        hint = f"repeat it: `{named} {first}`" if repeats else f"type `{named} {','.join((given, *values))}`"
        raise UsageError(f"`{named}` takes one value, and `{first}` is another", hint=hint)
    if value.startswith("--") and not any(word.endswith(".py") for word in line):
        raise UsageError(f"`{value}` takes no value", hint="leave out the word after it")
    raise UsageError(
        f"`{first}`: arguments for the script come after `--`",
        hint=f"write `-- {' '.join(values)}` at the end of the line",
    )


ScriptArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- ARGS]", help="Arguments that the script receives in sys.argv.", callback=_require_separator
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
    optimizer: Annotated[str | None, typer.Option(help="Keras optimizer of a model that is not compiled.")] = None
    remat: Annotated[
        bool, typer.Option("--remat", help="Recompute each layer's activations in the backward pass (RematScope).")
    ] = False
    script_timeout: Annotated[str | None, typer.Option(help="Time limit of a script: 90s, 30m. Default: 10m.")] = (
        None
    )


def build_options(*groups: Frozen, **single: Any) -> WorkloadOptions:
    """Combine groups of flags and single ones, by the names of their fields, into tracing options."""
    from ..plan.request import build_workload_options

    return build_workload_options(**{name: value for one in groups for name, value in vars(one).items()}, **single)


# Fields of a request whose flags, which may be repeated, have a name in the singular.
PLURAL = {"accelerator": "accelerators", "provider": "providers", "region": "regions"}

Accelerator = Annotated[
    list[str] | None, typer.Option(help="Only this accelerator; repeatable.", autocompletion=complete_accelerators)
]
Provider = Annotated[
    list[str] | None, typer.Option(help="Only this provider; repeatable.", autocompletion=complete_providers)
]
Region = Annotated[
    list[str] | None, typer.Option(help="Only this region; repeatable.", autocompletion=complete_regions)
]
Shard = Annotated[
    str | None,
    typer.Option(
        help="Sharding over devices: none, zero1, zero2, fsdp, tensor:N (N devices share each product), "
        "auto, or a list with commas, of which the first that fits is taken. "
        "Default: as the script says, else none."
    ),
]
Assume = Annotated[
    list[str] | None,
    typer.Option(help="Replace an assumption: boot_s=90, dataset_gb=150; repeatable (see --breakdown)."),
]


class OfferFlags(Frozen):
    """Filters of offers."""

    accelerator: Accelerator = None
    provider: Provider = None
    region: Region = None
    purchase: Annotated[Literal["on-demand", "spot", "any"], typer.Option(help="Purchase option.")] = "any"
    devices: Annotated[list[float] | None, typer.Option(help="Only this number of devices; repeatable.")] = None


class PlacementFlags(Frozen):
    """Locations of the data, and the division of the work over machines and devices."""

    residency: Annotated[
        list[str] | None, typer.Option(help="Only regions in eu, eea, uk or a country; repeatable.")
    ] = None
    hosts: Annotated[
        list[int] | None, typer.Option(help="Number of equal machines that share the work; repeatable.")
    ] = None
    scaling: Annotated[
        Literal["weak", "strong"] | None,
        typer.Option(
            help="Batch on several devices: shared (strong), or kept by each (weak), which is another training. "
            "Default: strong."
        ),
    ] = None
    shard: Shard = None
    retired: Annotated[bool, typer.Option("--retired", help="Include offers that can no longer be rented.")] = (
        False
    )


class LimitFlags(Frozen):
    """Limits of time and cost of a run, values of hours, and assumptions."""

    deadline: Annotated[
        str | None, typer.Option(help="Time limit of the run: 90s, 12h, 2d; or its end: 'Mon 08:00', 18:30.")
    ] = None
    budget: Annotated[float | None, typer.Option(help="Maximum cost of the run in dollars.")] = None
    hour_value: Annotated[
        float | None, typer.Option(help="Value of an hour of your own time in dollars. Default: 20.")
    ] = None
    wait_value: Annotated[
        float | None, typer.Option(help="Value of an hour of waiting for results in dollars. Default: 1.")
    ] = None
    assume: Assume = None


class OrderFlags(Frozen):
    """Input pipeline, order of the offers, and quotas."""

    feed: Annotated[str | None, typer.Option(help="How samples are fed: arrays, jpeg, or samples/s per vCPU.")] = (
        None
    )
    sort: Annotated[Literal["cost", "time", "co2"], typer.Option(help="Order of the offers.")] = "cost"
    quota: Annotated[
        bool, typer.Option("--quota", help="Check your quotas at AWS, Azure and Google Cloud (a few seconds).")
    ] = False


def build_request(*groups: Frozen, **single: Any) -> EstimateRequest:
    """Combine groups of flags and single ones, by the names of their fields, into a request."""
    from ..plan.request import EstimateRequest

    given = {name: value for group in groups for name, value in vars(group).items()} | single
    return EstimateRequest(**{PLURAL.get(name, name): value for name, value in given.items() if value is not None})


class OutputFlags(Frozen):
    """Output besides a table on standard output."""

    output: Annotated[Path | None, typer.Option("--output", "-o", help="Also write the JSON here.")] = None
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False

    def require_writable(self) -> None:
        """Raise UsageError before the work starts if the file is not writable."""
        from ..render.output import require_writable

        if self.output is not None:
            require_writable(self.output, flag="-o")

    def write(self, build: Callable[[], dict[str, Any]]) -> None:
        """Write a document with its schema to the file, if one is given; it is built only then."""
        from ..render.output import format_json, write_text

        if self.output is not None:
            document = build()
            write_text(self.output, format_json(document.pop("schema"), document))


R = TypeVar("R")


def expand_flag_groups(command: Callable[..., R]) -> Callable[..., R]:
    """Expand dataclass parameters of a command into their fields.

    The command line has one flag per field, in their order; the command receives the object. Groups must
    follow the command's positional parameters.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint) and isinstance(hint, type)}

    @wraps(command)
    def flat(*args: Any, **flags: Any) -> R:
        for name, group in groups.items():
            flags[name] = group(**{field.name: flags.pop(field.name) for field in fields(group)})
        return command(*args, **flags)

    signature = inspect.signature(command)
    parameters = [
        one
        for name, parameter in signature.parameters.items()
        for one in (
            _iter_parameters(groups[name])
            if name in groups
            else [parameter.replace(annotation=hints.get(name, parameter.annotation))]
        )
    ]
    flat.__signature__ = signature.replace(parameters=parameters, return_annotation=None)  # type: ignore[attr-defined]
    return flat


def _iter_parameters(group: type) -> Iterator[inspect.Parameter]:
    """Yield a keyword parameter for each field of a dataclass."""
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[field.name]
        )
