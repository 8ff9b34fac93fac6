"""`python -m lab accuracy`: scores on published measurements, memory and laws, computed, recorded and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from gpuplan.errors import NoAnswerError, UsageError, near_names_hint

if TYPE_CHECKING:
    from .evaluation_protocols import EvaluationSetting

Board = dict[str, Any]

# A flag, the flags it excludes, and the error message.
CONTRADICTIONS = (
    ("--memory", ("--setting", "--from", "--json"), "`{}` scores no step times, so `{}` has no effect"),
    ("--recorded", ("--check", "--output"), "`{}` computes nothing, so `{}` has no effect"),
    ("--from", ("--setting", "--recorded"), "`{}` is a separate setting and excludes `{}`"),
    ("--laws", ("--setting", "--from", "--recorded", "--memory", "--check", "--output", "--markdown", "--json"),
     "`{}` scores nothing, so `{}` has no effect"),
    ("--markdown", ("--json",), "`{}` and `{}` exclude each other"),
    ("--markdown", ("--setting", "--from"), "`{}` needs every setting, so `{}` excludes it"),
)  # fmt: skip


def accuracy(
    *,
    setting: Annotated[
        list[str] | None,
        typer.Option(help="One setting (architecture, profet, source, accelerator ...); repeatable."),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", help="Score predictions for the others from a profile on this accelerator."),
    ] = None,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Print the recorded scores without computing them.")
    ] = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="Compare memory with XLA's statements and published limits.")
    ] = False,
    laws: Annotated[
        bool, typer.Option("--laws", help="Check the laws of all predictions; exit with code 3 if one is broken.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with code 3 if a score is worse than recorded.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also record the scores in this file.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the documentation page.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Compute prediction errors on held-out data.

    The published measurements are predicted in several settings, each with coefficients fitted without one
    architecture, source or accelerator, and compared with three rules of thumb. `--laws` measures nothing: it
    predicts twelve models on every accelerator and looks for a better chip, unit or compiler that would be slower.

    Examples:

      python -m lab accuracy --setting source --setting accelerator

      python -m lab accuracy --from T4

      python -m lab accuracy --check

      python -m lab accuracy --recorded --markdown > docs/accuracy.md
    """
    given = {
        "--setting": setting, "--from": from_, "--recorded": recorded, "--memory": memory, "--laws": laws,
        "--check": check, "--output": output, "--markdown": markdown, "--json": json_,
    }  # fmt: skip
    _refuse_contradictions([flag for flag, value in given.items() if value])
    if memory:
        _report_memory(recorded=recorded, check=check, output=output, markdown=markdown)
        return
    if laws:
        _report_laws()
        return
    if from_ is not None:
        board = _score_from_profile(from_)
    else:
        board = (_load_recorded if recorded else _compute)(setting or [])
    _emit_settings(board, output=output, markdown=markdown, as_json=json_)
    if check:
        _stop_when_worse(board)


def _refuse_contradictions(given: Sequence[str]) -> None:
    """Raise UsageError for flags that contradict each other."""
    for flag, others, why in CONTRADICTIONS:
        other = next((other for other in others if other in given), None)
        if flag in given and other is not None:
            raise UsageError(why.format(flag, other), hint="leave out one of them")


def _score_from_profile(profiled: str) -> Board:
    """Score predictions for other accelerators from a profile on one with published rows.

    UsageError for an accelerator without published rows.
    """
    from .evaluation import judged_rows
    from .evaluation_protocols import build_profile_setting

    measured = {m.accelerator for m in judged_rows()}
    found = next((name for name in measured if name.lower() == profiled.lower()), None)
    if found is None:
        hint = near_names_hint(profiled, measured, see_all="gpuplan accuracy")
        raise UsageError(f"no published rows on `{profiled}` in `--from`", hint=hint)
    return _evaluate([build_profile_setting(found)])


def _compute(names: Sequence[str]) -> Board:
    """Compute the named settings (all if none is named), under the keys of the JSON contract."""
    from .evaluation_protocols import find_settings

    return _evaluate(find_settings(names))


def _evaluate(settings: Sequence[EvaluationSetting]) -> Board:
    from gpuplan.offers.catalog import load_catalog
    from gpuplan.render.progress import status

    from .accuracy import MachinePrices, evaluate_settings
    from .dataset import load_corpus
    from .evaluation import Evaluator, judged_rows

    catalog = load_catalog()
    with status("predicting") as progress:
        evaluator = Evaluator(
            measurements=judged_rows(), corpus=load_corpus(), accelerators=catalog.accelerators, progress=progress
        )
        return evaluate_settings(evaluator, settings, MachinePrices.of(catalog.offers)).to_json()


def _load_recorded(names: Sequence[str]) -> Board:
    from gpuplan.plan.accuracy import load_recorded_board

    return load_recorded_board(names)


def _emit_settings(board: Board, *, output: Path | None, markdown: bool, as_json: bool) -> None:
    """Print settings as a table, page or JSON, and record them if a file is given."""
    from gpuplan.render.accuracy import SETTING_COLUMNS, build_setting_rows
    from gpuplan.render.output import emit_json, emit_rows, emit_text

    from .pages import format_accuracy_page
    from .score_record import round_digits

    if output is not None:
        _record(board["settings"], output)
    if as_json:
        emit_json("gpuplan.accuracy/1", board)
    elif markdown:
        emit_text(format_accuracy_page(round_digits(board["settings"])))
    else:
        emit_rows(SETTING_COLUMNS, build_setting_rows(board["settings"]))


def _record(settings: Mapping[str, Any], path: Path) -> None:
    """Write the record, keeping existing settings that were not computed."""
    from .calibrate import write_json
    from .evaluation_protocols import SETTINGS
    from .score_record import build_record, read_record

    before = read_record(path) if path.exists() else None
    write_json(path, build_record(settings, order=SETTINGS, before=before))


def _stop_when_worse(board: Board) -> None:
    """Raise NoAnswerError (exit code 3) if a score is worse than the packaged record by more than noise."""
    from gpuplan.plan.accuracy import load_packaged_record

    from .score_record import find_regressions

    lines = find_regressions(load_packaged_record()["settings"], board["settings"])
    if lines:
        hint = "if intended, record it with `python -m lab accuracy --output profiles/accuracy.json`"
        raise NoAnswerError("worse than recorded: " + "; ".join(lines), hint=hint)


def _report_memory(*, recorded: bool, check: bool, output: Path | None, markdown: bool) -> None:
    """Compute or load the comparison of predicted and known memory; print, record and check it.

    With `check`, NoAnswerError (exit code 3) if it is worse than recorded.
    """
    from gpuplan.render.output import emit_rows, emit_text, format_json, write_text
    from gpuplan.render.progress import status

    from .memory_accuracy import SCHEMA, build_memory_scores, find_memory_regressions, load_recorded_memory
    from .pages import build_memory_columns, build_memory_rows, format_memory_page

    if recorded:
        board = load_recorded_memory()
    else:
        with status("tracing") as progress:
            board = build_memory_scores(progress)
    if output is not None:
        write_text(output, format_json(SCHEMA, board))
    if markdown:
        emit_text(format_memory_page(board))
    else:
        emit_rows(build_memory_columns(), build_memory_rows(board))
    worse = find_memory_regressions(load_recorded_memory(), board) if check else []
    if worse:
        hint = "if intended, record it with `python -m lab accuracy --memory --output profiles/memory.json`"
        raise NoAnswerError("worse than recorded: " + "; ".join(worse), hint=hint)


def _report_laws() -> None:
    """Check the laws of the whole surface and print them; NoAnswerError (exit code 3) if one is broken."""
    from gpuplan.offers.catalog import load_catalog
    from gpuplan.render.output import emit_rows, emit_text
    from gpuplan.render.progress import status

    from . import law_tables
    from .laws.laws import check_all_laws

    with status("laws") as progress:
        reports = check_all_laws(list(load_catalog().accelerators.values()), progress=progress)
    broken = [report.law.name for report in reports if report.violations]
    emit_rows(law_tables.build_law_columns(), law_tables.build_law_rows(reports))
    if broken:
        emit_text("\n")
        emit_rows(law_tables.build_violation_columns(), law_tables.build_violation_rows(reports))
        hint = "the rows name the worst cases; the order of two such predictions may be wrong"
        raise NoAnswerError(f"laws broken: {', '.join(broken)}", hint=hint)
