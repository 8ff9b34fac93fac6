"""`gpuplan offers`, `accelerators`, `quota` and the commands of `catalog`."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from ..errors import CredentialsError, UsageError, near_names_hint
from ..files import get_data_folder
from ..offers.catalog import load_catalog, load_user_catalog, select_offers, sort_by_device_price
from ..offers.price_history import diff_prices, load_previous_prices, summarize_ages
from ..offers.refreshed_prices import PriceStore
from ..plan.estimate_request import EstimateRequest
from ..records import Flag, to_plain
from ..render import catalog as tables
from ..render.output import emit_json, emit_result, emit_rows, emit_text, get_terminal_width
from ..render.progress import bar, say, status
from ..settings import get_today, load_settings
from .flags import OFFERS, AsJson
from .messages import format_command, get_callbacks, suggest_next

SHOWN_OFFERS = 10  # on a terminal, without --all


def offers(
    *,
    request: Annotated[EstimateRequest, OFFERS],
    retired: Annotated[bool, typer.Option(help="Include listed offers that are no longer available.")] = True,
    show_all: Annotated[
        bool, Flag("On a terminal, list every offer, not the cheapest of each kind.", name="all")
    ] = False,
    json_: AsJson = False,
) -> None:
    """List the offers with their prices, the cheapest per device first.

    Example: gpuplan offers --accelerator T4 --purchase spot --no-retired
    Example: gpuplan offers --provider gcp --region us-central1 --json
    """
    from ..offers.local import probe_local_offer
    from ..offers.refresh.background import start_refresh
    from ..plan.cost_terms import build_cost_terms
    from ..render.estimate_notes import Priced, describe_ages
    from ..render.estimate_screen import wrap

    settings = load_settings()
    catalog = load_user_catalog(settings)
    start_refresh(catalog, settings, **get_callbacks())
    found = select_offers(
        (*catalog.offers, probe_local_offer(catalog)[0]),
        **{name: getattr(request, name) for name in OFFERS},
        include_retired=retired,
        names=catalog.names,
    )
    found = sort_by_device_price(found)
    shown = list(found)
    if json_:
        rows = [tables.build_offer_row(offer) for offer in found]
        emit_json("gpuplan.offers/1", {"as_of": catalog.as_of, "offers": rows})
        return
    if sys.stdout.isatty() and not show_all:
        current = tables.select_current_offers(found)
        shown = list(current or found)[:SHOWN_OFFERS]
        emit_text("\n".join([*wrap(tables.describe_cheapest(current), get_terminal_width()), "", ""]))
    emit_rows(tables.OFFER_COLUMNS, map(tables.build_offer_row, shown))
    if len(shown) < len(found):
        emit_text(f"and {len(found) - len(shown):,} more offers: --all\n")
    if sys.stdout.isatty():  # JSON and TSV contain the dates
        terms = build_cost_terms(settings, catalog.costs)
        paid = ((o, float(o.usd_per_hour or 0) / o.devices) for o in tables.select_current_offers(found))
        if line := describe_ages(Priced(one, usd, usd, terms.price_half_width(one)) for one, usd in paid if usd):
            say(line)
    named, others = request.accelerators or [found[0].accelerator], (request.providers, request.regions)
    suggest_next(format_command("estimate", "MODEL", accelerator=named, provider=others[0], region=others[1]))


def accelerators(
    architecture: Annotated[Sequence[str], Flag("Only this architecture.")] = (), json_: AsJson = False
) -> None:
    """List the accelerators of the catalog: memory, bandwidth, and dense peaks in TFLOP/s.

    Example: gpuplan accelerators --architecture Ampere
    Example: gpuplan accelerators --json
    """
    listed = list(load_catalog(load_settings().catalog_dir).accelerators.values())
    known = {row.architecture.lower(): row.architecture for row in listed}
    for name in architecture:
        if name.lower() not in known:
            hint = near_names_hint(name, sorted(known.values()), see_all="gpuplan accelerators")
            raise UsageError(f"unknown architecture `{name}` in `--architecture`", hint=hint)
    chosen = {name.lower() for name in architecture} or known
    rows = [tables.build_accelerator_row(row) for row in listed if row.architecture.lower() in chosen]
    emit_result("gpuplan.accelerators/1", {"accelerators": rows}, tables.ACCELERATOR_COLUMNS, rows, as_json=json_)
    suggest_next(format_command("offers", accelerator=rows[0]["name"]), as_json=json_)


def quota(
    provider: Annotated[str, Flag("Provider: aws, azure or gcp.")],
    region: Annotated[str, Flag("Region, as the provider spells it.")],
    json_: AsJson = False,
) -> None:
    """Show how many accelerators your account may start in a region; nothing is requested or changed.

    A quota is a permission, not a machine: whether one is free, you learn when you start it.

    Example: gpuplan quota --provider aws --region us-east-1
    Example: gpuplan quota --provider gcp --region us-central1 --json
    """
    from ..offers.refresh.http import HttpClient
    from ..offers.refresh.quotas import read_quotas
    from ..offers.refresh.source import RefreshRequest

    request = RefreshRequest(environ=os.environ, endpoints=load_settings().endpoint)
    with closing(HttpClient()) as http, status(f"asking {provider}"):
        found = read_quotas(provider, region, request=request, http=http)
    rows = [{**to_plain(one), "sentence": one.sentence} for one in found]
    emit_result("gpuplan.quota/1", {"quotas": rows}, tables.QUOTA_COLUMNS, rows, as_json=json_)
    for one in () if json_ else found:
        if one.limit == 0:
            say(one.sentence)
    suggest_next(format_command("estimate", "MODEL", provider=provider, region=region), as_json=json_)


HELP = "Refresh and check the catalog of prices and accelerators."


def check(
    folder: Annotated[Path | None, typer.Argument(help="Your own catalog. Default: the packaged one.")] = None,
) -> None:
    """Check every row of the catalog; findings go to standard output, one per line.

    Example: gpuplan catalog check ./my-catalog
    Example: gpuplan catalog check
    """
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
    accept_moves: Annotated[bool, Flag("Accept prices that changed more than threefold.")] = False,
    verify: Annotated[bool, Flag("Ask AWS and Google Cloud themselves, with your credentials.")] = False,
    json_: AsJson = False,
) -> None:
    """Read current prices within 20 s. Suspicious prices are reported, and the old ones stay.

    Without any credentials: SkyPilot's hosted catalog (AWS, Google Cloud, Lambda, Nebius), Azure, RunPod, Vast.

    Example: gpuplan catalog refresh
    Example: gpuplan catalog refresh --verify --provider aws
    """
    from ..offers.refresh.run import TOTAL_S, build_jobs, refresh_providers

    jobs = build_jobs(
        load_catalog(),
        providers=provider,
        environ=os.environ,
        endpoints=load_settings().endpoint,
        accept_moves=accept_moves,
        verify=verify,
    )
    store = _store()
    with bar("reading prices", is_spoken=True) as progress:
        total_s = math.inf if verify else TOTAL_S
        outcomes = refresh_providers(jobs, store=store, total_s=total_s, progress=progress)
    document = {"folder": str(store.folder), "providers": [outcome.to_json() for outcome in outcomes]}
    rows = [tables.build_outcome_row(outcome) for outcome in outcomes if outcome.sources]
    emit_result("gpuplan.catalog-refresh/1", document, tables.OUTCOME_COLUMNS, rows, as_json=json_)
    for line in tables.format_outcome_lines(outcomes):
        say(line)
    if rows:
        suggest_next(format_command("catalog", "diff"), as_json=json_)
    for outcome in outcomes:
        if provider and not outcome.sources:
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
    store = _store()
    wanted = list(store.providers)
    if not wanted:
        say("no prices were refreshed yet: the packaged ones are used")
    before = load_previous_prices(store, wanted, old=old, packaged=packaged)
    after = [offer for name in wanted for offer in store.offers(name)]
    changes = diff_prices(before, after)
    if markdown and not json_:
        emit_text(tables.format_changes_markdown(changes))
        return
    emit_result("gpuplan.catalog-diff/1", {"changes": changes}, tables.CHANGE_COLUMNS, changes, as_json=json_)
    suggest_next(format_command("catalog", "age" if changes else "refresh"), as_json=json_)


def age(json_: AsJson = False) -> None:
    """Show how old the prices are, by provider and purchase option.

    Example: gpuplan catalog age
    Example: gpuplan catalog age --json
    """
    rows = summarize_ages(load_user_catalog(load_settings()).offers, today=get_today())
    emit_result("gpuplan.catalog-age/1", {"ages": rows}, tables.AGE_COLUMNS, rows, as_json=json_)
    suggest_next(format_command("catalog", "refresh"), as_json=json_)


def path() -> None:
    """Print the folder of refreshed prices, which may not exist yet.

    Example: ls "$(gpuplan catalog path)"
    Example: gpuplan catalog path
    """
    emit_text(f"{_store().folder}\n")
    suggest_next(format_command("catalog", "age"))


def _store() -> PriceStore:
    """Return the store of refreshed prices in the settings."""
    return PriceStore(get_data_folder(load_settings().data_dir))


catalog = (check, refresh, diff, age, path)
