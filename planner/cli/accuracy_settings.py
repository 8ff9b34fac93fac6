"""Settings of `gpuplan accuracy`: their flags, and scores for a user's file, newly computed or recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import NoAnswerError

if TYPE_CHECKING:
    from ..lab.accuracy import Scoreboard
    from ..lab.evaluation_protocols import EvaluationSetting


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFlags:
    """Flags that select settings, and the destination of their scores."""

    setting: Annotated[
        list[str] | None,
        typer.Option(help="Compute one setting (architecture, profet, source, accelerator ...); repeatable."),
    ] = None
    from_: Annotated[
        str | None,
        typer.Option("--from", help="Score predictions for the others from a profile on this accelerator."),
    ] = None
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Print the recorded scores without computing them.")
    ] = False
    memory: Annotated[
        bool, typer.Option("--memory", help="Compare memory with XLA's statements and published limits.")
    ] = False
    laws: Annotated[
        bool,
        typer.Option("--laws", help="Check the laws of all predictions; exit with code 3 if one is broken."),
    ] = False
    check: Annotated[
        bool, typer.Option("--check", help="Exit with code 3 if a score is worse than recorded.")
    ] = False
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also record the scores in this file.")
    ] = None
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the documentation page.")] = False
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False

    def refuse(self, file: Path | None) -> None:
        """Raise UsageError for flags that contradict each other or FILE."""
        from ..errors import UsageError

        given = self._list_given_flags()
        if file is not None and given:
            raise UsageError(
                f"`{given[0]}` applies to the published measurements, not to `{file}`",
                hint=f"leave out `{given[0]}`, or the file",
            )
        for flag, others, why in CONTRADICTIONS:
            other = next((other for other in others if other in given), None)
            if flag in given and other is not None:
                raise UsageError(why.format(flag, other), hint="leave out one of them")
        if self.json_ and self.markdown:
            raise UsageError("`--markdown` and `--json` exclude each other", hint="leave out one of them")

    def _list_given_flags(self) -> list[str]:
        """Return the flags that do not apply to a user's file."""
        flags = {
            "--setting": self.setting, "--from": self.from_, "--recorded": self.recorded,
            "--memory": self.memory, "--laws": self.laws, "--check": self.check, "--output": self.output,
            "--markdown": self.markdown,
        }  # fmt: skip
        return [name for name, value in flags.items() if value]


# A flag, the flags it excludes, and the error message.
CONTRADICTIONS = (
    ("--memory", ("--setting", "--from"), "`{}` scores no step times, so `{}` has no effect"),
    ("--recorded", ("--check", "--output"), "`{}` computes nothing, so `{}` has no effect"),
    ("--from", ("--setting", "--recorded"), "`{}` is a separate setting and excludes `{}`"),
    ("--laws", ("--setting", "--from", "--recorded", "--memory", "--check", "--output", "--markdown"),
     "`{}` scores nothing, so `{}` has no effect"),
)  # fmt: skip


Board = dict[str, Any]


def score_file(file: Path) -> Scoreboard:
    """Score the packaged coefficients on a user's measurements."""
    from ..lab.accuracy import score_measurements
    from ..offers.catalog import load_catalog, resolve_accelerator
    from ..predict.measurements import read_measurements
    from ..predict.predictor import Predictor
    from ..render.progress import status

    catalog, rows = load_catalog(), read_measurements(file)
    with status("predicting") as progress:
        return score_measurements(
            rows, lambda name: resolve_accelerator(catalog, name), Predictor.load(), progress=progress
        )


def score_from_profile(profiled: str) -> Board:
    """Score predictions for other accelerators from a profile on one with published rows.

    UsageError for an accelerator without published rows.
    """
    from ..errors import UsageError, near_names_hint
    from ..lab.evaluation import judged_rows
    from ..lab.evaluation_protocols import build_profile_setting

    measured = {m.accelerator for m in judged_rows()}
    found = next((name for name in measured if name.lower() == profiled.lower()), None)
    if found is None:
        hint = near_names_hint(profiled, measured, see_all="gpuplan accuracy --recorded")
        raise UsageError(f"no published rows on `{profiled}` in `--from`", hint=hint)
    return _evaluate([build_profile_setting(found)])


def compute_board(names: Sequence[str]) -> Board:
    """Compute the named settings (all if none is named), under the keys of the JSON contract."""
    from ..lab.evaluation_protocols import find_settings

    return _evaluate(find_settings(names))


def _evaluate(settings: Sequence[EvaluationSetting]) -> Board:
    from ..lab.accuracy import MachinePrices, evaluate_settings
    from ..lab.evaluation import Evaluator, judged_rows
    from ..offers.catalog import load_catalog
    from ..predict.measurements import load_published_measurements
    from ..render.progress import status

    catalog = load_catalog()
    with status("predicting") as progress:
        evaluator = Evaluator(
            measurements=judged_rows(),
            corpus=load_published_measurements(),
            accelerators=catalog.accelerators,
            progress=progress,
        )
        return evaluate_settings(evaluator, settings, MachinePrices.of(catalog.offers)).to_json()


def load_recorded_board(names: Sequence[str]) -> Board:
    """Load recorded settings under the same keys, without the underlying rows."""
    from ..lab.evaluation_protocols import HEADLINE, find_settings
    from ..lab.score_record import load_packaged_record

    wanted = {setting.name for setting in find_settings(names)}
    settings = {name: s for name, s in load_packaged_record()["settings"].items() if name in wanted}
    shown = settings.get(HEADLINE) or next(iter(settings.values()), None)
    keys = ("protocol", "summary", "by_accelerator", "by_model", "rules_of_thumb")
    return {**{key: shown[key] if shown else None for key in keys}, "settings": settings, "rows": []}


def emit_settings(board: Board, *, output: Path | None, markdown: bool, as_json: bool) -> None:
    """Print settings as a table, page or JSON, and record them if a file is given."""
    from ..lab.score_record import round_digits
    from ..render.accuracy import build_setting_columns, build_setting_rows
    from ..render.accuracy_pages import format_accuracy_page
    from ..render.output import emit_json, emit_rows, emit_text

    if output is not None:
        _record(board["settings"], output)
    if as_json:
        emit_json("gpuplan.accuracy/1", board)
    elif markdown:
        emit_text(format_accuracy_page(round_digits(board["settings"])))
    else:
        emit_rows(build_setting_columns(), build_setting_rows(board["settings"]))


def _record(settings: Mapping[str, Any], path: Path) -> None:
    """Write the record, keeping existing settings that were not computed."""
    from ..lab.calibrate import write_json
    from ..lab.evaluation_protocols import SETTINGS
    from ..lab.score_record import build_record, read_record

    before = read_record(path) if path.exists() else None
    write_json(path, build_record(settings, order=SETTINGS, before=before))


def report_memory_accuracy(flags: SettingFlags) -> None:
    """Compute or load the comparison of predicted and known memory; print, record and check it.

    With ``--check``, NoAnswerError (exit code 3) if it is worse than recorded.
    """
    from ..lab.memory_accuracy import (
        SCHEMA,
        build_memory_scores,
        find_memory_regressions,
        load_recorded_memory,
    )
    from ..render.accuracy_pages import build_memory_columns, build_memory_rows, format_memory_page
    from ..render.output import emit_json, emit_rows, emit_text, format_json, write_text
    from ..render.progress import status

    if flags.recorded:
        board = load_recorded_memory()
    else:
        with status("tracing") as progress:
            board = build_memory_scores(progress)
    if flags.output is not None:
        write_text(flags.output, format_json(SCHEMA, board))
    if flags.json_:
        emit_json(SCHEMA, board)
    elif flags.markdown:
        emit_text(format_memory_page(board))
    else:
        emit_rows(build_memory_columns(), build_memory_rows(board))
    worse = find_memory_regressions(load_recorded_memory(), board) if flags.check else []
    if worse:
        hint = "if intended, record it with `gpuplan accuracy --memory --output profiles/memory.json`"
        raise NoAnswerError("worse than recorded: " + "; ".join(worse), hint=hint)


def report_laws(*, as_json: bool) -> None:
    """Check the laws of the whole surface and print them; NoAnswerError (exit code 3) if one is broken."""
    from ..lab.laws.laws import check_all_laws
    from ..offers.catalog import load_catalog
    from ..render import accuracy_laws
    from ..render.output import emit_json, emit_rows, emit_text
    from ..render.progress import status

    with status("laws") as progress:
        reports = check_all_laws(list(load_catalog().accelerators.values()), progress=progress)
    broken = [report.law.name for report in reports if report.violations]
    if as_json:
        emit_json("gpuplan.accuracy-laws/1", accuracy_laws.build_laws_json(reports))
    else:
        emit_rows(accuracy_laws.build_law_columns(), accuracy_laws.build_law_rows(reports))
    if broken and not as_json:
        emit_text("\n")
        emit_rows(accuracy_laws.build_violation_columns(), accuracy_laws.build_violation_rows(reports))
    if broken:
        hint = "the rows name the worst cases; the order of two such predictions may be wrong"
        raise NoAnswerError(f"laws broken: {', '.join(broken)}", hint=hint)
