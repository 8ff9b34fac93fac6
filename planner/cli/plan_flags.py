"""Flags of commands that start or export what a plan chose."""

from __future__ import annotations

from typing import Annotated

import typer

Rank = Annotated[
    int | None, typer.Option(help="Number of the offer in the plan, from 1. Default: the recommended one.")
]
Script = Annotated[str | None, typer.Option(help="Script to run if the plan's MODEL is not one.")]
MaxUsd = Annotated[float | None, typer.Option(help="Maximum cost of the run, all attempts together.")]
MaxHours = Annotated[float | None, typer.Option(help="Maximum lifetime of the machine.")]
