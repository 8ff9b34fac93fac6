"""Arguments and flags shared by commands, grouped by subject."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..frozen import Frozen
from .option_values import complete_accelerators, complete_providers, complete_regions

if TYPE_CHECKING:
    from ..plan.request import EstimateRequest
    from ..plan.spot.preemption import SpotTerms
    from ..workload.options import ScriptOptions, WorkloadOptions

__all__ = [
    "FitFlag",
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
    "ValueFlags",
    "WorkFlags",
]


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
FitFlag = Annotated[
    bool,
    typer.Option(
        "--fit",
        help="Plan a step that does not fit as it could: sharded, in smaller passes, with recomputed layers.",
    ),
]
Rank = Annotated[
    int | None, typer.Option(help="Number of the offer in the plan, from 1. Default: the recommended one.")
]
Script = Annotated[str | None, typer.Option(help="Script to run if the plan's MODEL is not one.")]
Requirements = Annotated[str | None, typer.Option(help="Requirements file in the source to install from.")]


class ScriptFlags(Frozen):
    """Execution of the user's code."""

    script_timeout: Annotated[
        str | None, typer.Option(help="Time limit of a script: 90s, 30m. Default: 10m.")
    ] = None
    script_env: Annotated[
        list[str] | None,
        typer.Option(help="Pass this environment variable to the script; repeatable.", metavar="NAME"),
    ] = None

    def terms(self) -> ScriptOptions:
        """Convert the flags; UsageError for an invalid duration or an unset variable."""
        from ..plan.request import build_script_terms

        return build_script_terms(timeout=self.script_timeout, variables=self.script_env or ())


class WorkFlags(Frozen):
    """The run, besides the model."""

    batch_size: Annotated[int | None, typer.Option(help="Samples per device and step.")] = None
    samples: Annotated[int | None, typer.Option(help="Training samples per epoch.")] = None
    epochs: Annotated[int | None, typer.Option(help="Number of passes over the samples.")] = None
    steps: Annotated[
        int | None, typer.Option(help="Number of optimizer steps on one device, instead of epochs.")
    ] = None
    tokens: Annotated[
        float | None, typer.Option(help="Training tokens of a language model's run (1e9), instead of epochs.")
    ] = None
    precision: Annotated[
        str | None, typer.Option(help="float32, tf32, mixed_float16, mixed_bfloat16, float16 or bfloat16.")
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
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Trace the model again, and store nothing.")
    ] = False

    def options(self, script: ScriptFlags) -> WorkloadOptions:
        """Convert the flags to tracing options; UsageError for invalid values."""
        from ..workload.options import WorkloadOptions, count_tokens

        return WorkloadOptions(
            batch_size=self.batch_size,
            samples=self.samples,
            epochs=self.epochs,
            steps=self.steps,
            tokens=count_tokens(self.tokens),
            precision=self.precision,
            mode=self.mode,
            loss=self.loss,
            optimizer=self.optimizer,
            remat=self.remat,
            use_cache=not self.no_cache,
            script=script.terms(),
        )


class LimitFlags(Frozen):
    """Limits of time and cost of a run, and assumptions."""

    deadline: Annotated[str | None, typer.Option(help="Time limit of the run: 90s, 15m, 12h, 2d.")] = None
    by: Annotated[str | None, typer.Option(help="Time by which the run must end: 'Mon 08:00' or 18:30.")] = (
        None
    )
    budget: Annotated[float | None, typer.Option(help="Maximum cost of the run in dollars.")] = None
    assume: Annotated[
        list[str] | None,
        typer.Option(help="Replace an assumption: boot_s=90, dataset_gb=150; repeatable (see --breakdown)."),
    ] = None
    feed: Annotated[
        str | None, typer.Option(help="How samples are fed: arrays, jpeg, or samples/s per vCPU.")
    ] = None
    sort: Annotated[Literal["cost", "time", "co2"], typer.Option(help="Order of the offers.")] = "cost"
    quota: Annotated[
        bool,
        typer.Option("--quota", help="Check your quotas at AWS, Azure and Google Cloud (a few seconds)."),
    ] = False


class ValueFlags(Frozen):
    """Values of hours, which decide whether paying for speed is worth it."""

    hour_value: Annotated[
        float | None, typer.Option(help="Value of an hour of your own time in dollars. Default: 0.")
    ] = None
    wait_value: Annotated[
        float | None,
        typer.Option(help="Value of an unattended hour until the run ends, in dollars. Default: 0."),
    ] = None


class SpotFlags(Frozen):
    """Properties of spot machines that replace the catalog's assumptions."""

    spot_life: Annotated[
        str | None, typer.Option(help="Mean lifetime of a spot machine: 5h. Default: observed or published.")
    ] = None
    checkpoint_every: Annotated[
        str | None, typer.Option(help="Interval between checkpoints on spot: 20m. Default: Daly's optimum.")
    ] = None
    checkpoint_time: Annotated[
        str | None, typer.Option(help="Duration of a checkpoint: 30s. Default: from the size of the weights.")
    ] = None
    restart_time: Annotated[
        str | None, typer.Option(help="Time from the start of a new spot machine until training resumes: 5m.")
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
        typer.Option(help="Only this accelerator; repeatable.", autocompletion=complete_accelerators),
    ] = None
    provider: Annotated[
        list[str] | None,
        typer.Option(help="Only this provider; repeatable.", autocompletion=complete_providers),
    ] = None
    region: Annotated[
        list[str] | None, typer.Option(help="Only this region; repeatable.", autocompletion=complete_regions)
    ] = None
    residency: Annotated[
        list[str] | None,
        typer.Option(help="Only regions in eu, eea, uk or a country; repeatable."),
    ] = None
    purchase: Annotated[Literal["on-demand", "spot", "any"], typer.Option(help="Purchase option.")] = "any"
    devices: Annotated[list[float] | None, typer.Option(help="Only this number of devices; repeatable.")] = (
        None
    )
    hosts: Annotated[
        list[int] | None, typer.Option(help="Number of equal machines that share the work; repeatable.")
    ] = None
    scaling: Annotated[
        Literal["weak", "strong"] | None,
        typer.Option(
            help="Batch on several devices: kept by each (weak), or shared (strong). Default: as the script "
            "distributes its model, else weak."
        ),
    ] = None
    shard: Annotated[
        str | None,
        typer.Option(
            help="Sharding over devices: none, zero1, zero2, fsdp, tensor:N (N devices share each product), "
            "pipeline:N (layers in N stages), auto, or a list with commas, of which the first that fits is taken. "
            "Default: as the script says, else none."
        ),
    ] = None
    retired: Annotated[
        bool, typer.Option("--retired", help="Include offers that can no longer be rented.")
    ] = False
    catalog: Annotated[Path | None, typer.Option(help="Folder with your own catalog.")] = None
    live: Annotated[
        bool, typer.Option("--live", help="Query the official clients of Colab and Kaggle first.")
    ] = False

    def build_request(
        self,
        limits: LimitFlags | None = None,
        spot: SpotFlags | None = None,
        values: ValueFlags | None = None,
    ) -> EstimateRequest:
        """Combine offer filters, limits, spot properties and values of hours."""
        from ..plan.request import EstimateRequest

        if self.live:
            _ask_notebooks()
        within, interrupted, hours = limits or LimitFlags(), spot or SpotFlags(), values or ValueFlags()
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
            shard=self.shard,
            hosts=self.hosts or (),
            deadline=within.deadline,
            by=within.by,
            feed=within.feed,
            budget=within.budget,
            sort=within.sort,
            quota=within.quota,
            assume=within.assume or (),
            spot=interrupted.terms(),
            hour_value=hours.hour_value or 0.0,
            wait_value=hours.wait_value or 0.0,
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
    from ..plan.request import refresh_notebook_accounts
    from ..render.progress import status
    from ..settings import load_settings

    with status("querying the clients of Colab and Kaggle"):
        for told in refresh_notebook_accounts(load_settings()):
            typer.echo(f"note: {told}", err=True)
