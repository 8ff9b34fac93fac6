"""Scoring after calibration, in processes that have not loaded the previous calibration."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources
from pathlib import Path

import typer

from ..errors import GpuplanError

__all__ = ["is_packaged", "record_accuracy"]


def is_packaged(profiles: Path) -> bool:
    """Return whether the program reads its profiles from a folder."""
    return profiles.resolve() == Path(str(resources.files("gpuplan.profiles"))).resolve()


def record_accuracy(profiles: Path) -> None:
    """Score every setting and write the record, and the documentation page if its folder exists.

    GpuplanError if scoring fails, after its messages on standard error.
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
    """Run a gpuplan command and return its output."""
    done = subprocess.run([sys.executable, "-m", "gpuplan", *arguments], stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise GpuplanError(f"`gpuplan {' '.join(arguments)}` failed", hint="see its output above")
    return done.stdout
