"""Arguments and flags shared by commands, grouped by subject; `expand_flag_groups` adds a group to a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

import typer

from ..frozen import Frozen
from .option_values import complete_accelerators, complete_providers, complete_regions

if TYPE_CHECKING:
    from ..plan.request import EstimateRequest
    from ..plan.spot.preemption import SpotTerms
    from ..workload.capture.script_options import ScriptOptions
    from ..workload.options import WorkloadOptions

__all__ = [
    "LimitFlags",
    "ModelArgument",
    "OfferFlags",
    "OutputFlags",
    "Rank",
    "Requirements",
    "Script",
    "ScriptArguments",
    "ScriptFlags",
    "SpotFlags",
    "WorkFlags",
    "expand_flag_groups",
]


ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="Script, function, Keras application, .keras or .json file.")
]
ScriptArguments = Annotated[
    list[str] | None, typer.Argument(metavar="[-- ARGS]", help="What a script finds in sys.argv.")
]
Rank = Annotated[int | None, typer.Option(help="Which offer of the plan, from 1; else its choice.")]
Script = Annotated[str | None, typer.Option(help="What to run, when the plan's MODEL is no script.")]
Requirements = Annotated[str | None, typer.Option(help="A file of the source to install from.")]


class ScriptFlags(Frozen):
    """Execution of the user's code."""

    script_timeout: Annotated[
        str | None, typer.Option(help="Longest time of a script until fit(): 90s, 30m. Default: 10m.")
    ] = None
    script_env: Annotated[
        list[str] | None,
        typer.Option(
            help="Also let a script see this environment variable; repeat for more.", metavar="NAME"
        ),
    ] = None

    def terms(self) -> ScriptOptions:
        """Convert the flags; UsageError for an invalid duration or an unset variable."""
        from ..plan.request import build_script_terms

        return build_script_terms(timeout=self.script_timeout, variables=self.script_env or ())


class WorkFlags(Frozen):
    """The run, besides the model."""

    batch_size: Annotated[int | None, typer.Option(help="Samples per device and step.")] = None
    samples: Annotated[int | None, typer.Option(help="Training samples of an epoch.")] = None
    epochs: Annotated[int | None, typer.Option(help="Passes over the samples.")] = None
    steps: Annotated[int | None, typer.Option(help="Optimizer steps on one device, instead of epochs.")] = (
        None
    )
    precision: Annotated[
        str | None, typer.Option(help="float32, tf32, mixed_float16, mixed_bfloat16, float16 or bfloat16.")
    ] = None
    mode: Annotated[Literal["train", "infer"], typer.Option(help="Training steps, or predictions.")] = "train"
    loss: Annotated[str | None, typer.Option(help="Of a model that is not compiled: a Keras loss.")] = None
    optimizer: Annotated[str | None, typer.Option(help="Likewise: a Keras optimizer.")] = None
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Trace again, and store nothing.")] = False

    def options(self, script: ScriptFlags) -> WorkloadOptions:
        """Convert the flags to tracing options; UsageError for invalid values."""
        from ..workload.options import WorkloadOptions

        return WorkloadOptions(
            batch_size=self.batch_size,
            samples=self.samples,
            epochs=self.epochs,
            steps=self.steps,
            precision=self.precision,
            mode=self.mode,
            loss=self.loss,
            optimizer=self.optimizer,
            use_cache=not self.no_cache,
            script=script.terms(),
        )


class LimitFlags(Frozen):
    """Limits of time and cost of a run, and assumptions."""

    deadline: Annotated[str | None, typer.Option(help="Longest time of the run: 90s, 15m, 12h, 2d.")] = None
    by: Annotated[str | None, typer.Option(help="When it must be done, as 'Mon 08:00' or 18:30.")] = None
    budget: Annotated[float | None, typer.Option(help="Highest cost of the run in dollars.")] = None
    assume: Annotated[
        list[str] | None,
        typer.Option(
            help="What you know better, as boot_s=90 or dataset_gb=150; repeatable (see --breakdown)."
        ),
    ] = None
    feed: Annotated[
        str | None, typer.Option(help="How samples are fed: arrays, jpeg, or samples/s of one vCPU.")
    ] = None
    sort: Annotated[Literal["cost", "time", "co2"], typer.Option(help="What comes first.")] = "cost"


class SpotFlags(Frozen):
    """Properties of spot machines that replace the catalog's assumptions."""

    spot_life: Annotated[
        str | None, typer.Option(help="Mean life of a spot machine: 5h; else as watched or published.")
    ] = None
    checkpoint_every: Annotated[
        str | None, typer.Option(help="Work between two checkpoints on spot: 20m; else Daly's optimum.")
    ] = None
    checkpoint_time: Annotated[
        str | None, typer.Option(help="What one of them takes: 30s; else from the size of weights.")
    ] = None
    restart_time: Annotated[
        str | None, typer.Option(help="From a new spot machine's start until it works on: 5m.")
    ] = None

    def terms(self) -> SpotTerms:
        """Convert the flags to durations; UsageError for invalid ones."""
        from ..plan.request import build_spot_terms

        return build_spot_terms(
            spot_life=self.spot_life,
            checkpoint_every=self.checkpoint_every,
            checkpoint_time=self.checkpoint_time,
            restart_time=self.restart_time,
        )


class OfferFlags(Frozen):
    """Filters of offers."""

    accelerator: Annotated[
        list[str] | None,
        typer.Option(help="Only this one; repeat for more.", autocompletion=complete_accelerators),
    ] = None
    provider: Annotated[
        list[str] | None,
        typer.Option(help="Only theirs; repeat for more.", autocompletion=complete_providers),
    ] = None
    region: Annotated[
        list[str] | None, typer.Option(help="Only there; repeat for more.", autocompletion=complete_regions)
    ] = None
    residency: Annotated[
        list[str] | None,
        typer.Option(help="Only where data may lie: eu, eea, uk or a country; repeat for more."),
    ] = None
    purchase: Annotated[Literal["on-demand", "spot", "any"], typer.Option(help="How to rent.")] = "any"
    devices: Annotated[list[float] | None, typer.Option(help="Only with so many devices; repeatable.")] = None
    hosts: Annotated[
        list[int] | None, typer.Option(help="So many equal machines that share the work; repeatable.")
    ] = None
    scaling: Annotated[
        Literal["weak", "strong"],
        typer.Option(help="Several devices: each keeps the batch (weak), or they share it (strong)."),
    ] = "weak"
    retired: Annotated[bool, typer.Option("--retired", help="Also what can no longer be rented.")] = False
    catalog: Annotated[Path | None, typer.Option(help="A folder with your own catalog.")] = None
    live: Annotated[
        bool, typer.Option("--live", help="Ask the official clients of Colab and Kaggle first.")
    ] = False

    def build_request(
        self, limits: LimitFlags | None = None, spot: SpotFlags | None = None
    ) -> EstimateRequest:
        """Combine offer filters, limits and spot properties."""
        from ..plan.request import EstimateRequest

        if self.live:
            _ask_notebooks()
        within, interrupted = limits or LimitFlags(), spot or SpotFlags()
        return EstimateRequest(
            accelerators=self.accelerator or (),
            providers=self.provider or (),
            regions=self.region or (),
            purchase=self.purchase,
            devices=self.devices or (),
            retired=self.retired,
            catalog=self.catalog,
            residency=self.residency or (),
            scaling=self.scaling,
            hosts=self.hosts or (),
            deadline=within.deadline,
            by=within.by,
            feed=within.feed,
            budget=within.budget,
            sort=within.sort,
            assume=within.assume or (),
            spot=interrupted.terms(),
        )


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


def _ask_notebooks() -> None:
    """Query the clients of Colab and Kaggle, with progress on standard error."""
    from ..plan.notebook_accounts import refresh_notebook_accounts
    from ..render.progress import status
    from ..settings import load_settings

    with status("asking the clients of Colab and Kaggle"):
        for told in refresh_notebook_accounts(load_settings()):
            typer.echo(f"note: {told}", err=True)


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
