"""Scoring what was just calibrated: in processes that have read none of what was there before."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources
from pathlib import Path

import typer

from ..errors import GpuplanError

__all__ = ["is_packaged", "record_accuracy"]


def is_packaged(profiles: Path) -> bool:
    """Return whether a folder is the one that the program reads its profiles from."""
    return profiles.resolve() == Path(str(resources.files("gpuplan.profiles"))).resolve()


def record_accuracy(profiles: Path) -> None:
    """Score every setting, and write the record, and the page where the folder of documentation is beside it.

    GpuplanError when scoring fails; its own words are on standard error by then.
    """
    from ..files import write_whole

    record = profiles / "accuracy.json"
    _gpuplan("accuracy", "--output", str(record))
    typer.echo(f"wrote {record}", err=True)
    page = profiles.resolve().parent / "docs" / "accuracy.md"
    if page.parent.is_dir():
        write_whole(page, _gpuplan("accuracy", "--recorded", "--markdown"))
        typer.echo(f"wrote {page}", err=True)


def _gpuplan(*arguments: str) -> bytes:
    """Return what a command prints."""
    done = subprocess.run([sys.executable, "-m", "gpuplan", *arguments], stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise GpuplanError(f"`gpuplan {' '.join(arguments)}` failed", hint="what it says is above")
    return done.stdout
