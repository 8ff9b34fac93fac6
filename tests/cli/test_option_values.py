"""Values that pass typer's adapters by are what the adapters would have made of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from factories import make_product, make_workload
from gpuplan.cli.app import COMMANDS, app_for
from gpuplan.cli.option_values import convert_plain_value

TEXTS = [
    "x",
    "train",
    "spot",
    "7",
    "007",
    "-1",
    "+3",
    " 7",
    "1_000",
    "1e3",
    "7.0",
    "²",
    "٣",
    "9" * 15,
    "9" * 40,
    "",
    "true",
]


def leaves(command: Any) -> list[Any]:
    """Return the parameters of a command and of those below it."""
    below = getattr(command, "commands", {}).values()
    return [*command.params, *(parameter for one in below for parameter in leaves(one))]


@pytest.mark.parametrize("name", COMMANDS)
def test_what_passes_is_what_the_adapter_makes_of_it(name: str) -> None:
    """Every parameter of every command: typer's own conversion is the reference."""
    command = typer.main.get_command(app_for([name]))
    context = typer.Context(command)
    compared = 0
    for parameter in leaves(command):
        several = getattr(parameter, "multiple", False) or parameter.nargs == -1
        for value in [None, *([text] if several else text for text in TEXTS)]:
            passes, taken = convert_plain_value(parameter, value)
            if passes and parameter.callback is None:
                usual = parameter.process_value(context, value)
                assert (taken, type(taken)) == (usual, type(usual)), (parameter.name, value)
                compared += 1
    assert compared


def test_most_of_what_is_typed_passes() -> None:
    """By hand, for `estimate`: nothing given passes everywhere, text and digits where they are wanted."""
    command = typer.main.get_command(app_for(["estimate"])).commands["estimate"]  # type: ignore[attr-defined]
    flags = {parameter.name: parameter for parameter in command.params}

    assert [name for name, flag in flags.items() if not convert_plain_value(flag, None)[0]] == ["model"]
    assert convert_plain_value(flags["model"], "ResNet50") == (True, "ResNet50")
    assert convert_plain_value(flags["epochs"], "90") == (True, 90)
    assert convert_plain_value(flags["mode"], "infer") == (True, "infer")
    assert convert_plain_value(flags["mode"], "sing")[0] is False
    assert convert_plain_value(flags["accelerators"], ["T4", "L4"]) == (True, ["T4", "L4"])


def test_an_estimate_of_a_saved_workload_imports_no_pydantic(tmp_path: Path) -> None:
    """Neither the command line, nor settings, nor the catalog need it; the second answer is the same."""
    saved = tmp_path / "saved.json"
    product = make_product(layer="dense", layer_group=0, fused_group=0)
    saved.write_text(json.dumps(make_workload(ops=(product,)).to_json()), encoding="utf-8")
    code = (
        "import sys; from gpuplan.cli.app import run; code = run(sys.argv[1:]);"
        "print([m for m in ('pydantic', 'rich', 'keras') if m in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    command = [sys.executable, "-c", code, "estimate", str(saved), "--json"]
    environment = {**os.environ, "GPUPLAN_CACHE_DIR": str(tmp_path / "cache")}
    first, second = (
        subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment)
        for _ in range(2)
    )

    assert first.stdout == second.stdout
    assert [first.stderr, second.stderr] == ["[]\n", "[]\n"]
