"""`gpuplan quota`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ..plain import to_plain
from .next_step import format_command, suggest_next

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("quota")(quota)


def quota(
    provider: Annotated[str, typer.Option(help="aws, azure or gcp.")],
    region: Annotated[str, typer.Option(help="As the provider spells it.")],
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show how many accelerators your account may start in a region; nothing is asked for or changed.

    A quota is a permission, not a machine: whether one is free shows when it is started.

    Example: gpuplan quota --provider aws --region us-east-1

    Example: gpuplan quota --provider gcp --region us-central1 --json
    """
    from ..offers.quotas import read_quotas
    from ..offers.refresh.http import HttpClient
    from ..render.output import emit_json, emit_rows
    from ..render.prices import QUOTA_COLUMNS
    from ..render.progress import status
    from ..settings import load_settings

    http = HttpClient()
    try:
        endpoints = _endpoints(load_settings().endpoint)
        with status(f"asking {provider}"):
            found = read_quotas(provider, region, environ=os.environ, endpoints=endpoints, http=http)
    finally:
        http.close()
    rows = [{**to_plain(one), "sentence": one.sentence} for one in found]
    if json_:
        emit_json("gpuplan.quota/1", {"quotas": rows})
        return
    emit_rows(QUOTA_COLUMNS, rows)
    for one in found:
        if one.limit == 0:
            typer.echo(one.sentence, err=True)
    suggest_next(format_command("estimate", "MODEL", provider=provider, region=region))


def _endpoints(settings: object) -> dict[str, str]:
    """Return endpoints from the settings, overridden by the environment."""
    names = ("aws-quotas", "azure-quotas", "gcp-quotas")
    from_environment = {
        name: os.environ[variable]
        for name in names
        if (variable := "GPUPLAN_ENDPOINT_" + name.upper().replace("-", "_")) in os.environ
    }
    return {**(settings if isinstance(settings, dict) else {}), **from_environment}
