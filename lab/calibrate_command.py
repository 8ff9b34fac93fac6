"""`python -m lab calibrate`: rebuild all files that depend on the published measurements."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer
from gpuplan.errors import GpuplanError, UsageError


def calibrate(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of the profiles, laid out as in the repository.")
    ] = Path("profiles"),
    retrace: Annotated[
        bool, typer.Option("--retrace", help="Trace every model again, after a change of the tracer.")
    ] = False,
    accuracy: Annotated[
        bool, typer.Option("--accuracy", help="Also score every setting, and write the record and the page.")
    ] = False,
) -> None:
    """Rebuild the packaged calibration files.

    All files that depend on the published measurements are rebuilt: the kernels of every run, the
    gradients, the coefficients with their intervals, the lookup of published steps, the covariance of errors
    between accelerators, and the constants of several devices.
    Files are written only after all are complete.

    Examples:

      python -m lab calibrate --accuracy

      python -m lab calibrate --retrace -o /tmp/profiles
    """
    from gpuplan.offers.catalog import load_catalog

    from .dataset import load_corpus
    from .recalibrate import PARTS, rebuild_profiles, write_profiles

    if not output.is_dir():
        raise UsageError(f"`{output}` is not a folder", hint="create it, or name another with `-o`")
    if accuracy and not is_packaged(output):
        hint = "leave out `--accuracy`, or run it in a clone that is installed with `pip install -e .`"
        raise UsageError(f"`--accuracy` scores what is installed, not `{output}`", hint=hint)
    with _show_parts(len(PARTS)) as (part, progress):
        files = rebuild_profiles(
            load_corpus(),
            load_catalog().accelerators,
            retrace=retrace,
            progress=progress,
            part=lambda name: part(PARTS[name]),
        )
    write_profiles(files, output)
    typer.echo("\n".join(f"wrote {output / name}" for name in files), err=True)
    if accuracy:
        record_accuracy(output)


@contextmanager
def _show_parts(total: int) -> Iterator[tuple[Callable[[str], None], Callable[[str], None]]]:
    """Show a bar that advances by parts; yields functions that begin a part and set its current item.

    Nothing is shown, and rich is not imported, when stderr is not a terminal.
    """
    if not sys.stderr.isatty():
        yield (lambda _: None), (lambda _: None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.fields[detail]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, detail="")
        begun = 0

        def begin(part: str) -> None:
            nonlocal begun
            bar.update(task, description=part, detail="", completed=begun)
            begun += 1

        yield begin, lambda detail: bar.update(task, detail=detail)


def is_packaged(profiles: Path) -> bool:
    """Return whether the program reads its profiles from a folder."""
    return profiles.resolve() == Path(str(resources.files("gpuplan.profiles"))).resolve()


def record_accuracy(profiles: Path) -> None:
    """Score every setting and write the record, and the documentation page if its folder exists.

    GpuplanError if scoring fails, after its messages on standard error.
    """
    from gpuplan.files import write_atomically

    record = profiles / "accuracy.json"
    _run("lab", "accuracy", "--output", str(record))
    typer.echo(f"wrote {record}", err=True)
    page = profiles.resolve().parent / "docs" / "accuracy.md"
    if page.parent.is_dir():
        write_atomically(page, _run("lab", "accuracy", "--recorded", "--markdown"))
        typer.echo(f"wrote {page}", err=True)


def _run(*words: str) -> bytes:
    """Run a module of the lab and return its output."""
    done = subprocess.run([sys.executable, "-m", *words], stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise GpuplanError(f"`python -m {' '.join(words)}` failed", hint="see its output above")
    return done.stdout
