"""`gpuplan catalog check`, `refresh`, `diff`, `age`, `history` and `path`: refreshed and previous prices."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import CredentialsError, UsageError, near_names_hint
from ..files import get_data_folder
from ..records import Flag
from ..render.output import emit_result, emit_text
from ..render.progress import bar, say, status
from ..settings import get_today, load_settings
from .flags import AsJson
from .messages import format_command, suggest_next

if TYPE_CHECKING:
    from ..offers.refresh.http import HttpClient
    from ..offers.refresh.run import RefreshJob, RefreshOutcome
    from ..offers.refreshed_prices import PriceStore

HELP = "Refresh and check the catalog of prices and accelerators."
NO_PRICES = "no prices were refreshed yet: the packaged ones are used"


def check(
    folder: Annotated[Path | None, typer.Argument(help="Your own catalog. Default: the packaged one.")] = None,
) -> None:
    """Check every row of the catalog; findings go to standard output, one per line.

    Example: gpuplan catalog check ./my-catalog
    Example: gpuplan catalog check
    """
    from ..offers.catalog import load_catalog
    from ..offers.check import check_catalog

    with status("checking every row"):
        report = check_catalog(load_catalog(folder).folder, today=get_today())
    for finding in report.findings:
        emit_text(f"{finding}\n")
    counts = f"{report.offers} prices of {report.providers} providers, {report.accelerators} accelerators"
    if report.findings:
        say(f"{len(report.findings)} findings in {counts}")
        raise typer.Exit(1)
    say(f"ok: {counts}")
    step = ("catalog", "age") if folder is None else ("estimate", "MODEL")
    suggest_next(format_command(*step, catalog=folder))


def refresh(
    provider: Annotated[Sequence[str], Flag("Only this provider.")] = (),
    region: Annotated[list[str] | None, Flag("Only this region; repeatable; `all` for all regions.")] = None,
    accept_moves: Annotated[bool, Flag("Accept prices that changed more than threefold.")] = False,
    file: Annotated[
        Path | None, Flag("Read a catalog in SkyPilot's format instead.", name="from", metavar="FILE")
    ] = None,
    json_: AsJson = False,
) -> None:
    """Read current prices from the vendors. Suspicious prices are reported, and the old ones stay.

    Without any credentials: AWS, Azure, Vast, and Google Cloud by way of SkyPilot's catalog.

    Example: gpuplan catalog refresh --provider azure --region eastus
    Example: gpuplan catalog refresh --provider azure
    """
    from ..offers.catalog import load_catalog
    from ..offers.refresh.http import HttpClient
    from ..offers.refresh.jobs import build_jobs
    from ..offers.refresh.run import refresh_provider

    jobs = build_jobs(
        load_catalog(),
        providers=provider,
        regions=region or (),
        environ=os.environ,
        endpoints=load_settings().endpoint,
        accept_moves=accept_moves,
        file=file,
    )
    store, outcomes = _store(), []
    with closing(HttpClient(say=say)) as http, bar("reading prices", is_spoken=True) as progress:
        for job in jobs:
            outcomes.append(refresh_provider(job, store=store, http=http, progress=progress))
            if job.provider == "aws" and file is None:
                _refresh_interruptions(job, store, http)
    _show_outcomes(outcomes, jobs, store=store, as_json=json_)
    _raise_failures(outcomes, asked=bool(provider))


def _refresh_interruptions(job: RefreshJob, store: PriceStore, http: HttpClient) -> None:
    """Read the Spot Advisor's rates; a failure is reported, but rejects no price."""
    from ..offers.refresh.aws_public import refresh_interruption_rates
    from ..offers.refresh.errors import FetchError

    try:
        count = refresh_interruption_rates(store, job.request, http)
        say(f"aws: {count} interruption rates from the Spot Advisor")
    except FetchError as error:
        say(f"not read: aws: the Spot Advisor's interruption rates: {error}")


def _show_outcomes(
    outcomes: list[RefreshOutcome], jobs: list[RefreshJob], *, store: PriceStore, as_json: bool
) -> None:
    """Write the outcomes; anomalies and unmet requirements go to standard error."""
    from ..render.catalog import OUTCOME_COLUMNS, build_outcome_row, format_outcome_lines

    document = {"folder": str(store.folder), "providers": [outcome.to_json() for outcome in outcomes]}
    rows = [build_outcome_row(outcome) for outcome in outcomes if outcome.sources]
    emit_result("gpuplan.catalog-refresh/1", document, OUTCOME_COLUMNS, rows, as_json=as_json)
    for line in format_outcome_lines(outcomes, asked_regions=any(job.request.regions for job in jobs)):
        say(line)
    if any(outcome.sources for outcome in outcomes):
        suggest_next(format_command("catalog", "diff"), as_json=as_json)


def _raise_failures(outcomes: list[RefreshOutcome], *, asked: bool) -> None:
    """Exit with 4 if a requested provider needs credentials, with 1 if a part was rejected."""
    for outcome in outcomes:
        if asked and not outcome.sources:
            raise CredentialsError(
                f"the prices of `{outcome.provider}` cannot be read without credentials",
                hint="; ".join(outcome.needs),
            )
    if any(outcome.refused for outcome in outcomes):
        raise typer.Exit(1)


def diff(
    old: Annotated[Path | None, typer.Argument(help="Another data folder. Default: the previous prices.")] = None,
    packaged: Annotated[bool, Flag("Compare with the packaged prices.")] = False,
    markdown: Annotated[bool, Flag("Print Markdown for a pull request.")] = False,
    json_: AsJson = False,
) -> None:
    """Show which prices changed with the last refresh, the largest moves first.

    Example: gpuplan catalog diff --packaged
    Example: gpuplan catalog diff --markdown
    """
    from ..offers.price_history import diff_prices, load_previous_prices
    from ..render.catalog import CHANGE_COLUMNS, format_changes_markdown

    store = _store()
    wanted = list(store.providers)
    if not wanted:
        say(NO_PRICES)
    before = load_previous_prices(store, wanted, old=old, packaged=packaged)
    after = [offer for name in wanted for offer in store.offers(name)]
    changes = diff_prices(before, after)
    rows = [asdict(change) for change in changes]
    if markdown and not json_:
        emit_text(format_changes_markdown(changes))
        return
    emit_result("gpuplan.catalog-diff/1", {"changes": rows}, CHANGE_COLUMNS, rows, as_json=json_)
    step = ("history", changes[0].instance_type) if changes else ("refresh",)
    suggest_next(format_command("catalog", *step), as_json=json_)


def age(json_: AsJson = False) -> None:
    """Show how old the prices are, by provider and purchase option.

    Example: gpuplan catalog age
    Example: gpuplan catalog age --json
    """
    from ..offers.catalog import load_user_catalog
    from ..offers.price_history import summarize_ages
    from ..render.catalog import AGE_COLUMNS

    rows = summarize_ages(load_user_catalog(load_settings()).offers, today=get_today())
    emit_result("gpuplan.catalog-age/1", {"ages": rows}, AGE_COLUMNS, rows, as_json=json_)
    suggest_next(format_command("catalog", "refresh"), as_json=json_)


def history(
    instance: Annotated[str, typer.Argument(metavar="INSTANCE", help="Instance type: g5.xlarge.")],
    region: Annotated[str | None, Flag("Only in this region.")] = None,
    json_: AsJson = False,
) -> None:
    """Show every dated price of an instance type: what came with gpuplan, and what was read since.

    Example: gpuplan catalog history g5.xlarge --region us-east-1
    Example: gpuplan catalog history g4dn.xlarge --json
    """
    from ..offers.catalog import load_catalog
    from ..offers.price_history import collect_price_history
    from ..render.catalog import HISTORY_COLUMNS

    offers = load_catalog().offers
    found = collect_price_history(instance, offers, _store())
    if not found:
        names = {offer.instance_type for offer in offers}
        hint = near_names_hint(instance, names, see_all="gpuplan offers")
        raise UsageError(f"no price of an instance type `{instance}` is known", hint=hint)
    rows = [asdict(row) for row in found if region in (None, row.region)]
    emit_result("gpuplan.catalog-history/1", {"prices": rows}, HISTORY_COLUMNS, rows, as_json=json_)
    suggest_next(format_command("catalog", "refresh", provider=found[0].provider, region=region), as_json=json_)


def path() -> None:
    """Print the folder of refreshed prices, which may not exist yet.

    Example: ls "$(gpuplan catalog path)"
    Example: gpuplan catalog path
    """
    emit_text(f"{_store().folder}\n")
    suggest_next(format_command("catalog", "age"))


def _store() -> PriceStore:
    """Return the store of refreshed prices in the settings."""
    from ..offers.refreshed_prices import PriceStore

    return PriceStore(get_data_folder(load_settings().data_dir))


catalog = (check, refresh, diff, age, history, path)
