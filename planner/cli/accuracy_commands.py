"""`gpuplan accuracy` and `gpuplan calibrate`."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import GpuplanError
from .accuracy_settings import SettingFlags
from .flag_groups import expand_flag_groups
from .messages import format_command, suggest_next

if TYPE_CHECKING:
    from ..lab.accuracy import Scoreboard


def is_packaged(profiles: Path) -> bool:
    """Return whether the program reads its profiles from a folder."""
    return profiles.resolve() == Path(str(resources.files("gpuplan.profiles"))).resolve()


def record_accuracy(profiles: Path) -> None:
    """Score every setting and write the record, and the documentation page if its folder exists.

    GpuplanError if scoring fails, after its messages on standard error.
    """
    from ..files import write_atomically

    record = profiles / "accuracy.json"
    _gpuplan("accuracy", "--output", str(record))
    typer.echo(f"wrote {record}", err=True)
    page = profiles.resolve().parent / "docs" / "accuracy.md"
    if page.parent.is_dir():
        write_atomically(page, _gpuplan("accuracy", "--recorded", "--markdown"))
        typer.echo(f"wrote {page}", err=True)


def _gpuplan(*arguments: str) -> bytes:
    """Run a gpuplan command and return its output."""
    done = subprocess.run([sys.executable, "-m", "gpuplan", *arguments], stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise GpuplanError(f"`gpuplan {' '.join(arguments)}` failed", hint="see its output above")
    return done.stdout


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command()(accuracy)
    app.command()(calibrate)


@expand_flag_groups
def accuracy(
    file: Annotated[
        Path | None, typer.Argument(help="CSV of your own measurements; without it, the packaged corpus.")
    ] = None,
    *,
    flags: SettingFlags,
) -> None:
    """Print prediction errors on held-out data.

    Without FILE, the published measurements are predicted in several settings, each with coefficients fitted
    without one architecture, source or accelerator, and compared with three rules of thumb. With FILE your
    measurements are predicted with the packaged coefficients. `--laws` measures nothing: it predicts twelve models
    on every accelerator and looks for a better chip, unit or compiler that would be slower.

    Examples:

      gpuplan accuracy --recorded

      gpuplan accuracy --setting source --setting accelerator

      gpuplan accuracy --from T4

      gpuplan accuracy --memory --recorded

      gpuplan accuracy --laws

      gpuplan accuracy my_runs.csv --json
    """
    from .accuracy_settings import (
        compute_board,
        emit_settings,
        load_recorded_board,
        score_file,
        score_from_profile,
    )

    flags.refuse(file)
    if file is not None:
        _emit_own(score_file(file), as_json=flags.json_)
        suggest_next(format_command("accuracy", "--recorded"), as_json=flags.json_)
        return
    if flags.memory:
        from .accuracy_settings import report_memory_accuracy

        report_memory_accuracy(flags)
        return
    if flags.laws:
        from .accuracy_settings import report_laws

        report_laws(as_json=flags.json_)
        return
    if flags.from_ is not None:
        board = score_from_profile(flags.from_)
    else:
        board = (load_recorded_board if flags.recorded else compute_board)(flags.setting or [])
    emit_settings(board, output=flags.output, markdown=flags.markdown, as_json=flags.json_)
    if flags.check:
        _stop_when_worse(board)
    if not flags.markdown:
        suggest_next(format_command("profile", "MODEL", o="profile.json"), as_json=flags.json_)


def _emit_own(board: Scoreboard, *, as_json: bool) -> None:
    from ..render.accuracy import build_scoreboard_columns, build_scoreboard_rows
    from ..render.output import emit_json, emit_rows

    if as_json:
        emit_json("gpuplan.accuracy/1", board.to_json())
    else:
        emit_rows(build_scoreboard_columns(), build_scoreboard_rows(board), title=board.protocol)
    for measurement, reason in board.unpredicted:
        typer.echo(f"not predicted: {measurement.model} on {measurement.accelerator}: {reason}", err=True)


def _stop_when_worse(board: dict[str, Any]) -> None:
    """Raise NoAnswerError (exit code 3) if a score is worse than the packaged record by more than noise."""
    from ..errors import NoAnswerError
    from ..lab.score_record import find_regressions, load_packaged_record

    lines = find_regressions(load_packaged_record()["settings"], board["settings"])
    if lines:
        hint = "if intended, record it with `gpuplan accuracy --output profiles/accuracy.json`"
        raise NoAnswerError("worse than recorded: " + "; ".join(lines), hint=hint)


def calibrate(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Folder of the profiles, laid out as in the repository."),
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

      gpuplan calibrate --accuracy

      gpuplan calibrate --retrace -o /tmp/profiles
    """
    _rebuild_profiles(output, retrace=retrace, accuracy=accuracy)


def _rebuild_profiles(output: Path, *, retrace: bool, accuracy: bool) -> None:
    """Rebuild and write all calibration files of a folder of profiles."""
    from ..errors import UsageError
    from ..lab.recalibrate import PARTS, rebuild_profiles, write_profiles
    from ..offers.catalog import load_catalog
    from ..predict.measurements import load_published_measurements
    from ..render.progress import parts

    if not output.is_dir():
        raise UsageError(f"`{output}` is not a folder", hint="create it, or name another with `-o`")
    if accuracy and not is_packaged(output):
        hint = "leave out `--accuracy`, or run it in a clone that is installed with `pip install -e .`"
        raise UsageError(f"`--accuracy` scores what is installed, not `{output}`", hint=hint)
    with parts(len(PARTS)) as (part, progress):
        files = rebuild_profiles(
            load_published_measurements(),
            load_catalog().accelerators,
            retrace=retrace,
            progress=progress,
            part=lambda name: part(PARTS[name]),
        )
    write_profiles(files, output)
    typer.echo("\n".join(f"wrote {output / name}" for name in files), err=True)
    if accuracy:
        record_accuracy(output)
        suggest_next(format_command("accuracy", "--recorded"))
        return
    page = "gpuplan accuracy --recorded --markdown > docs/accuracy.md"
    suggest_next(f"{format_command('accuracy', o=output / 'accuracy.json')}, then {page}")
