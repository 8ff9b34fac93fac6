"""The last line on a terminal: the command that one would type next, and nothing of it anywhere else."""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import names, parse
from gpuplan.cli import app as application
from gpuplan.cli.messages import changed_flags, format_command
from gpuplan.plan.estimate_request import EstimateRequest
from launch.export.plans import GIT, OFFERS, write_plan

Run = Callable[..., Any]

# What is typed, with files of `folder`, and what the line says. What needs a cloud, a real training or an hour is
# not here: NOT_RUN.
ANSWERS = {
    "estimate {saved} --provider aws": (
        "gpuplan estimate {saved} --provider aws --output plan.json && gpuplan launch plan.json --dry-run"
    ),
    "estimate {saved} --provider local -o {folder}/new.json": "gpuplan report {folder}/new.json --open",
    "estimate {saved} --provider azure --accelerator A10 --steps 1000 -o a.json": (
        "gpuplan report a.json --open, or no image of `gpuplan launch` serves the Standard_NV"
    ),
    "estimate {saved} --provider colab -o c.json": "gpuplan report c.json --open, or gpuplan export",
    "breakeven {saved}": "gpuplan estimate {saved} --provider",
    "sweep {saved} --batch-sizes 128 --precisions float32": "gpuplan estimate",
    "rig --accelerator T4 --price 900": "gpuplan rig MODEL --accelerator T4",
    "offers --accelerator T4 --provider aws": "gpuplan estimate MODEL --accelerator T4 --provider aws",
    "accelerators --architecture Turing": "gpuplan offers --accelerator T4",
    "catalog check": "gpuplan catalog age",
    "catalog age": "gpuplan catalog refresh",
    "catalog diff": "gpuplan catalog refresh",
    "catalog path": "gpuplan catalog age",
    "accuracy": "gpuplan profile MODEL",
    "doctor --quick": "gpuplan estimate ResNet50",
    "report {plan} -o {folder}/report.html": "gpuplan launch {plan} --dry-run",
    "launch {plan} --rank 1 --script train.py --dry-run": "the same without `--dry-run`",
    "launch {plan} --script train.py --dry-run -o {folder}/l.json": "gpuplan launch {folder}/l.json",
    "ps": "gpuplan ps --cloud",
    "export {cloud} --to skypilot --source {git}": "add `-o FILE`, then sky launch",
    "export {cloud} --to skypilot --source {git} -o {folder}/task.yaml": "sky launch",
    "reconcile --forget": "gpuplan estimate MODEL",
}
NOT_RUN = {"profile", "benchmark", "quota", "stop", "reap", "catalog refresh"}
# Speaks a protocol on standard input and output.
SERVERS = {"mcp"}


@pytest.fixture(scope="module")
def files(saved: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A folder with what the commands read."""
    folder = tmp_path_factory.mktemp("files")
    plan = folder / "plan.json"
    assert application.run(["estimate", saved, "--provider", "local", "-o", str(plan)]) == 0
    (folder / "cloud").mkdir()
    cloud = str(write_plan(folder / "cloud", OFFERS["aws"]))
    return {"folder": str(folder), "saved": saved, "plan": str(plan), "cloud": cloud, "git": GIT}


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Standard output and error say that they are a terminal; state is the test's own."""
    for kind in {type(sys.stdout), type(sys.stderr)}:  # of pytest: the streams themselves change before the call
        monkeypatch.setattr(kind, "isatty", lambda stream: True)
    monkeypatch.setenv("TERM", "dumb")  # no spinner
    monkeypatch.setenv("GPUPLAN_TODAY", "2026-11-28")  # `catalog check`: no row is read later
    monkeypatch.chdir(tmp_path)
    for name in ("STATE", "DATA"):
        monkeypatch.setenv(f"GPUPLAN_{name}_DIR", str(tmp_path / name))


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("line", ANSWERS)
def test_an_answer_ends_on_the_next_command(line: str, files: dict[str, str], gpuplan: Run) -> None:
    """The last line of standard error; what begins with `gpuplan` can be read by the program."""
    done = gpuplan(*shlex.split(line.format(**files)))
    last = done.err.splitlines()[-1]

    assert done.code == 0, done.err
    assert last.startswith(f"next: {ANSWERS[line].format(**files)}")
    for command in re.split(", or | && ", last.removeprefix("next: ")):
        if command.startswith("gpuplan "):
            parse(shlex.split(command)[1:])


@pytest.mark.parametrize("line", ["estimate {saved}", "offers --accelerator T4", "doctor --quick"])
def test_a_pipe_and_a_reader_of_json_get_no_such_line(
    line: str, files: dict[str, str], gpuplan: Run, request: pytest.FixtureRequest
) -> None:
    """Neither where nothing is a terminal, nor on a terminal with `--json`."""
    words = shlex.split(line.format(**files))
    assert "next:" not in gpuplan(*words).err
    request.getfixturevalue("terminal")
    assert "next:" not in gpuplan(*words, "--json").err


def test_no_command_is_forgotten() -> None:
    """Each is seen above, or named with those that are not run; of these the code is read."""
    known = {" ".join(words) for words in names()}
    seen = {name for name in known if any(line == name or line.startswith(f"{name} ") for line in ANSWERS)}

    assert known == seen | NOT_RUN | SERVERS
    for name in NOT_RUN:
        assert "suggest_next(" in _source(name.split()), name


def _source(words: list[str]) -> str:
    """Return the code of a command with the functions of its module that it names."""
    import typer

    node: Any = typer.main.get_command(application.app)
    for word in words:
        node = node.commands[word]
    callback = inspect.unwrap(node.callback)
    source = inspect.getsource(callback)
    near = inspect.getmembers(sys.modules[callback.__module__], inspect.isfunction)
    return source + "".join(
        inspect.getsource(one) for name, one in near if f" {name}(" in source and name.startswith("_")
    )


def test_a_command_is_written_as_a_shell_reads_it() -> None:
    """Quotes where they are needed, flags that differ from their default only, a script's own arguments last."""
    work = changed_flags(EstimateRequest(samples=100, regions=["eu"]), "samples", "precision")
    line = format_command("estimate", "my train.py", **work, region=None, arguments=["--lr", "1e-3"])

    assert line == "gpuplan estimate 'my train.py' --samples 100 -- --lr 1e-3"
