"""Commands on the catalog and on quotas: ``offers``, ``accelerators``, ``quota``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Annotated

import typer

from ..errors import UsageError, near_names_hint
from ..plan.estimate_request import EstimateRequest
from ..records import Flag, to_plain
from ..render.output import emit_json, emit_result, emit_rows, emit_text, get_terminal_width
from ..render.progress import say, status
from ..settings import load_settings
from .flags import OFFERS, AsJson
from .messages import format_command, suggest_next

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
    from ..offers.catalog import load_user_catalog, select_offers, sort_by_device_price
    from ..offers.local import probe_local_offer
    from ..render.catalog import OFFER_COLUMNS, build_offer_row, describe_cheapest, select_current_offers
    from ..render.estimate_notes import format_age_line
    from ..render.estimate_screen import wrap

    catalog = load_user_catalog(load_settings())
    found = select_offers(
        (*catalog.offers, probe_local_offer(catalog)[0]),
        **{name: getattr(request, name) for name in OFFERS},
        include_retired=retired,
        names=catalog.names,
    )
    found = sort_by_device_price(found)
    shown = list(found)
    if json_:
        rows = [build_offer_row(offer) for offer in found]
        emit_json("gpuplan.offers/1", {"as_of": catalog.as_of, "offers": rows})
        return
    if sys.stdout.isatty() and not show_all:
        current = select_current_offers(found)
        shown = list(current or found)[:SHOWN_OFFERS]
        emit_text("\n".join([*wrap(describe_cheapest(current), get_terminal_width()), "", ""]))
    emit_rows(OFFER_COLUMNS, map(build_offer_row, shown))
    if len(shown) < len(found):
        emit_text(f"and {len(found) - len(shown):,} more offers: --all\n")
    if sys.stdout.isatty() and (line := format_age_line(shown)):  # JSON and TSV contain the dates
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
    from ..offers.catalog import load_catalog
    from ..render.catalog import ACCELERATOR_COLUMNS, build_accelerator_row

    listed = list(load_catalog(load_settings().catalog_dir).accelerators.values())
    known = {row.architecture.lower(): row.architecture for row in listed}
    for name in architecture:
        if name.lower() not in known:
            hint = near_names_hint(name, sorted(known.values()), see_all="gpuplan accelerators")
            raise UsageError(f"unknown architecture `{name}` in `--architecture`", hint=hint)
    chosen = {name.lower() for name in architecture} or known
    rows = [build_accelerator_row(row) for row in listed if row.architecture.lower() in chosen]
    emit_result("gpuplan.accelerators/1", {"accelerators": rows}, ACCELERATOR_COLUMNS, rows, as_json=json_)
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
    from ..offers.refresh.quotas import get_quota_endpoints, read_quotas
    from ..render.catalog import QUOTA_COLUMNS

    endpoints = get_quota_endpoints(os.environ, load_settings().endpoint)
    with closing(HttpClient()) as http, status(f"asking {provider}"):
        found = read_quotas(provider, region, environ=os.environ, endpoints=endpoints, http=http)
    rows = [{**to_plain(one), "sentence": one.sentence} for one in found]
    emit_result("gpuplan.quota/1", {"quotas": rows}, QUOTA_COLUMNS, rows, as_json=json_)
    for one in () if json_ else found:
        if one.limit == 0:
            say(one.sentence)
    suggest_next(format_command("estimate", "MODEL", provider=provider, region=region), as_json=json_)
