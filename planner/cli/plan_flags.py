"""Flags of commands that start or export what a plan chose."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from ..frozen import Frozen

Rank = Annotated[
    int | None, typer.Option(help="Number of the offer in the plan, from 1. Default: the recommended one.")
]
Script = Annotated[str | None, typer.Option(help="Script to run if the plan's MODEL is not one.")]
Requirements = Annotated[str | None, typer.Option(help="Requirements file in the source to install from.")]


class CapFlags(Frozen):
    """Limits of a run's cost, of its machine's lifetime and of the work lost in a crash."""

    max_usd: Annotated[float | None, typer.Option(help="Maximum cost of the run, all attempts together.")] = (
        None
    )
    max_hours: Annotated[float | None, typer.Option(help="Maximum lifetime of the machine.")] = None
    accept_old_prices: Annotated[
        bool, typer.Option("--accept-old-prices", help="Accept a price older than 90 days.")
    ] = False
    stop_loss: Annotated[
        Literal["off", "warn", "stop"] | None,
        typer.Option(help="Action if the first 50 steps are slower than planned. Default: warn."),
    ] = None
    guest_cap_only: Annotated[
        bool,
        typer.Option("--guest-cap-only", help="Accept the machine's own timer as the only limit."),
    ] = False
    checkpoint_every: Annotated[
        str | None,
        typer.Option(help="Maximum work lost in a crash: 60s, 10m. Default: 60s, on spot as planned."),
    ] = None

    def checkpoint_every_s(self) -> float | None:
        """Return the most work that may be lost; UsageError for an invalid duration [s]."""
        from ..plan.parsing import parse_duration_s

        return None if self.checkpoint_every is None else parse_duration_s(self.checkpoint_every)
