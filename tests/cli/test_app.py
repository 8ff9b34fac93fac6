"""The application: help, exit codes, and errors of one line."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import gpuplan as package
import pytest
import typer
from gpuplan.cli import app as app_module
from gpuplan.errors import CredentialsError, GpuplanError, NoAnswerError, UsageError

ROOT = Path(__file__).parents[2]
HEAVY = ("keras", "jax", "numpy", "boto3", "google", "rich", "pydantic")


@pytest.mark.parametrize(
    ("arguments", "allowed"), [(["--help"], []), (["--version"], []), (["estimate", "--help"], ["pydantic"])]
)
def test_help_loads_nothing_heavy(arguments: list[str], allowed: list[str]) -> None:
    """Start-up stays fast: help imports none of the heavy packages; a command's, at most what typer does."""
    probe = (
        "import sys; from gpuplan.cli.app import run; code = run(sys.argv[1:]);"
        f"heavy = [m for m in {HEAVY!r} if m in sys.modules]; print('HEAVY', heavy); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", probe, *arguments], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] in {"HEAVY []", f"HEAVY {allowed}"}


def test_importing_the_package_loads_nothing_heavy() -> None:
    """`import gpuplan` is free; names load when they are used."""
    probe = f"import sys, gpuplan; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_only_the_program_itself_has_one_thread_of_blas() -> None:
    """NumPy reads C's environment; processes of the user's code get Python's, which keeps what the user set."""
    probe = (
        "import atexit, os, subprocess, sys; from gpuplan.__main__ import main; sys.argv[1:] = ['--version'];"
        "show = lambda how: subprocess.run(['sh', '-c', 'echo own=$OPENBLAS_NUM_THREADS'], **how);"
        "atexit.register(lambda: [show({}), show({'env': os.environ})]); main()"
    )
    plain = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    set_by_user = {**plain, "OPENBLAS_NUM_THREADS": "3"}
    command = [sys.executable, "-uc", probe]
    shown = [
        subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split()[2:]
        for env in (plain, set_by_user)
    ]

    assert shown == [["own=1", "own="], ["own=3", "own=3"]]


def test_help_ends_with_real_examples(gpuplan: Callable[..., object]) -> None:
    """The last lines of the command's help can be typed as they are."""
    done = gpuplan("estimate", "--help")

    assert done.code == 0
    assert done.out.count("gpuplan estimate ") >= 3
    assert "Examples:" in done.out.split("--help")[-1]


def test_version_is_the_projects(gpuplan: Callable[..., object]) -> None:
    """`--version` prints what pyproject.toml says."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert gpuplan("--version").out == f"gpuplan {project['version']}\n"
    assert package.__version__ == project["version"]


@pytest.mark.parametrize(
    ("error", "code"), [(GpuplanError, 1), (UsageError, 2), (NoAnswerError, 3), (CredentialsError, 4)]
)
def test_errors_become_exit_codes(
    gpuplan: Callable[..., object], monkeypatch: pytest.MonkeyPatch, error: type[GpuplanError], code: int
) -> None:
    """Each class has its code; what, a blank line, the hint."""

    def fail(**_: object) -> None:
        raise error("the thing at the place", hint="the way out")

    monkeypatch.setattr(app_module, "_command_for", lambda _: fail)
    done = gpuplan("estimate")

    assert (done.code, done.out) == (code, "")
    assert done.err == "error: the thing at the place\n\nhint: the way out\n"


def test_the_table_of_commands_is_what_the_modules_register() -> None:
    """A command line loads one command alone; the program's help, none; anything else, all."""
    for name in app_module.COMMANDS:
        found = typer.main.get_command(app_module.app_for([name])).commands  # type: ignore[attr-defined]
        assert tuple(found) == (name,)
    everything = typer.main.get_command(app_module.app_for(["--debug"])).commands  # type: ignore[attr-defined]
    assert sorted(everything) == sorted(app_module.COMMANDS)
    assert typer.main.get_command(app_module.app_for(["--help"])).commands == {}  # type: ignore[attr-defined]


def test_debug_shows_the_traceback(gpuplan: Callable[..., object]) -> None:
    """`--debug` lets the error through, to where it was raised."""
    with pytest.raises(UsageError, match="no such file"):
        gpuplan("--debug", "estimate", "missing.py")


def test_a_bug_keeps_its_traceback(gpuplan: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a user can fix is turned into a line of text."""

    def fail(**_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(app_module, "_command_for", lambda _: fail)
    with pytest.raises(ZeroDivisionError):
        gpuplan("estimate")


def test_an_interrupt_is_code_130(gpuplan: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C says "interrupted" and nothing else."""

    def interrupt(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(app_module, "_command_for", lambda _: interrupt)
    done = gpuplan("estimate")

    assert (done.code, done.out, done.err) == (130, "", "interrupted\n")


def test_a_reader_that_goes_away_is_no_error() -> None:
    """`gpuplan estimate --help | head -1`, and the same for data: no traceback, no complaint."""
    command = f"{sys.executable} -m gpuplan offers | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False, env=os.environ
    )

    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.startswith("provider\t")
