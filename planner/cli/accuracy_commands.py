"""`gpuplan accuracy` and `gpuplan calibrate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .next_step import say_next, typed
from .spread import spread

if TYPE_CHECKING:
    from ..predict.accuracy import Scoreboard

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command()(accuracy)
    app.command()(calibrate)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFlags:
    """What is computed of the published measurements, and what becomes of it."""

    setting: Annotated[
        list[str] | None,
        typer.Option(
            help="Compute one setting (architecture, profet, source, accelerator ...); repeat for more."
        ),
    ] = None
    from_: Annotated[
        str | None,
        typer.Option("--from", help="Compute what a profile on this accelerator says of the others."),
    ] = None
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Print what was computed last and shipped, at once.")
    ] = False
    memory: Annotated[
        bool, typer.Option("--memory", help="Memory: beside XLA's word, and published limits.")
    ] = False
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 3 when anything is worse than what was recorded.")
    ] = False
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also record the scores in this file.")
    ] = None
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a page of documentation.")] = False
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False

    def refuse(self, file: Path | None) -> None:
        """Raise UsageError for flags that contradict each other, or the file."""
        from ..errors import UsageError

        given = self._given()
        if file is not None and given:
            raise UsageError(
                f"`{given[0]}` is about the published measurements, not about `{file}`",
                hint=f"leave out `{given[0]}`, or the file",
            )
        for flag, others, why in CONTRADICTIONS:
            other = next((other for other in others if other in given), None)
            if flag in given and other is not None:
                raise UsageError(why.format(flag, other), hint="leave out one of them")
        if self.json_ and self.markdown:
            raise UsageError("`--markdown` and `--json` both say what to print", hint="leave out one of them")

    def _given(self) -> list[str]:
        """Return the flags that are not about a user's own file."""
        flags = {
            "--setting": self.setting, "--from": self.from_, "--recorded": self.recorded,
            "--memory": self.memory, "--check": self.check, "--output": self.output, "--markdown": self.markdown,
        }  # fmt: skip
        return [name for name, value in flags.items() if value]


# A flag, the flags that it excludes, and what is wrong with both.
CONTRADICTIONS = (
    ("--memory", ("--setting", "--from"), "`{}` has no step times that `{}` could choose from"),
    ("--recorded", ("--check", "--output"), "`{}` computes nothing that `{}` could use"),
    ("--from", ("--setting", "--recorded"), "`{}` is a setting of its own, beside `{}`"),
)


@spread
def accuracy(
    file: Annotated[
        Path | None, typer.Argument(help="CSV of your own measurements; without it, the packaged corpus.")
    ] = None,
    *,
    flags: SettingFlags,
) -> None:
    """Print how far off predictions are, on what nothing was fitted to.

    Without FILE the published measurements are predicted in several settings, each by coefficients fitted
    without an architecture, a source or an accelerator, beside three rules of thumb. With FILE your
    measurements are predicted with the packaged coefficients.

    Examples:

      gpuplan accuracy --recorded

      gpuplan accuracy --setting source --setting accelerator

      gpuplan accuracy --from T4

      gpuplan accuracy --memory --recorded

      gpuplan accuracy my_runs.csv --json
    """
    from .accuracy_settings import emit_settings, judged_file, recorded_board, settings_board, settings_from

    flags.refuse(file)
    if file is not None:
        _emit_own(judged_file(file), as_json=flags.json_)
        say_next(typed("accuracy", "--recorded"), as_json=flags.json_)
        return
    if flags.memory:
        from .accuracy_memory import accuracy_of_memory

        accuracy_of_memory(flags)
        return
    if flags.from_ is not None:
        board = settings_from(flags.from_)
    else:
        board = (recorded_board if flags.recorded else settings_board)(flags.setting or [])
    emit_settings(board, output=flags.output, markdown=flags.markdown, as_json=flags.json_)
    if flags.check:
        _stop_when_worse(board)
    if not flags.markdown:
        say_next(typed("profile", "MODEL", o="profile.json"), as_json=flags.json_)


def _emit_own(board: Scoreboard, *, as_json: bool) -> None:
    from ..render.accuracy import scoreboard_columns, scoreboard_rows
    from ..render.output import emit_json, emit_rows

    if as_json:
        emit_json("gpuplan.accuracy/1", board.to_json())
    else:
        emit_rows(scoreboard_columns(), scoreboard_rows(board), title=board.protocol)
    for measurement, reason in board.unpredicted:
        typer.echo(f"not predicted: {measurement.model} on {measurement.accelerator}: {reason}", err=True)


def _stop_when_worse(board: dict[str, Any]) -> None:
    """NoAnswerError (exit 3) when a score is worse than the packaged record, by more than noise."""
    from ..errors import NoAnswerError
    from ..predict.record import packaged_record, worsened

    lines = worsened(packaged_record()["settings"], board["settings"])
    if lines:
        hint = "if it is meant, record it with `gpuplan accuracy --output profiles/accuracy.json`"
        raise NoAnswerError("worse than recorded: " + "; ".join(lines), hint=hint)


def calibrate(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Folder of the profiles, as in the repository."),
    ] = Path("profiles"),
    retrace: Annotated[
        bool, typer.Option("--retrace", help="Trace every model again: after a change of the tracer.")
    ] = False,
    accuracy: Annotated[
        bool, typer.Option("--accuracy", help="Then score every setting, and write the record and the page.")
    ] = False,
) -> None:
    """Make everything anew that depends on the published measurements, and write it down.

    The kernels of every run, the gradients, the coefficients with their intervals, the look-up of published
    steps, how errors carry over between accelerators, and the constants of several devices. Nothing is
    written before all of it is there.

    Examples:

      gpuplan calibrate --accuracy

      gpuplan calibrate --retrace -o /tmp/profiles
    """
    from ..errors import UsageError
    from ..offers.load import load_catalog
    from ..predict.corpus import packaged_corpus
    from ..predict.recalibrate import PARTS, profiles_anew, write_profiles
    from ..render.progress import parts
    from .record_accuracy import is_packaged, record_accuracy

    if not output.is_dir():
        raise UsageError(f"`{output}` is not a folder", hint="create it, or name another with `-o`")
    if accuracy and not is_packaged(output):
        hint = "leave out `--accuracy`, or run it in a clone that is installed with `pip install -e .`"
        raise UsageError(f"`--accuracy` scores what is installed, not `{output}`", hint=hint)
    with parts(len(PARTS)) as (part, progress):
        files = profiles_anew(
            packaged_corpus(), load_catalog().accelerators, retrace=retrace, progress=progress,
            part=lambda name: part(PARTS[name]),
        )  # fmt: skip
    write_profiles(files, output)
    typer.echo("\n".join(f"wrote {output / name}" for name in files), err=True)
    if accuracy:
        record_accuracy(output)
        say_next(typed("accuracy", "--recorded"))
        return
    page = "gpuplan accuracy --recorded --markdown > docs/accuracy.md"
    say_next(f"{typed('accuracy', o=output / 'accuracy.json')}, then {page}")
