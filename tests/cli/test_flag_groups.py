"""Groups of flags as dataclasses."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from gpuplan.cli.app import app
from gpuplan.cli.flags import expand_flag_groups
from typer.testing import CliRunner


@dataclass(frozen=True, kw_only=True)
class Size:
    """A group with a flag that must be given, one that may, and one with a name of its own."""

    wide: Annotated[int, typer.Option(help="How wide.")]
    deep: Annotated[int, typer.Option(help="How deep.")] = 2
    round_: Annotated[bool, typer.Option("--round", help="Without corners.")] = False


@expand_flag_groups
def measure(name: str, *, size: Size, loud: bool = False) -> None:
    """Measure a box."""
    typer.echo(f"{name} {size} {loud}")


def test_a_group_arrives_as_one_object() -> None:
    """Flags of the group and others, in any order, find their place; those not given keep their default."""
    boxes = typer.Typer()
    boxes.command()(measure)

    result = CliRunner().invoke(boxes, ["--deep", "5", "box", "--loud", "--wide", "3", "--round"])

    assert result.output == "box Size(wide=3, deep=5, round_=True) True\n"


def test_the_signature_is_flat_and_in_order() -> None:
    """A field without a default is a flag that must be given."""
    parameters = inspect.signature(measure).parameters

    assert list(parameters) == ["name", "wide", "deep", "round_", "loud"]
    assert parameters["wide"].default is inspect.Parameter.empty
    assert parameters["deep"].default == 2


@pytest.mark.parametrize("command", ["estimate", "accuracy"])
def test_every_flag_of_a_group_has_help(command: str) -> None:
    """No flag of a command that uses groups is without a word on what it does."""
    found = typer.main.get_command(app).commands[command]  # type: ignore[attr-defined]

    assert len(found.params) > 2
    assert all(getattr(parameter, "help", None) for parameter in found.params if parameter.name != "help")
