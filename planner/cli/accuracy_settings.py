"""Scoreboards of `gpuplan accuracy`: for a user's file, newly computed settings, or the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..predict.accuracy import Scoreboard
    from ..predict.settings_held_out import Setting

__all__ = ["emit_settings", "judged_file", "recorded_board", "settings_board", "settings_from"]

Board = dict[str, Any]


def judged_file(file: Path) -> Scoreboard:
    """Score the packaged coefficients on a user's measurements."""
    from ..offers.load import load_catalog, resolve_accelerator
    from ..predict.accuracy import judge
    from ..predict.corpus import read_measurements
    from ..predict.predictor import Predictor
    from ..render.progress import status

    catalog, rows = load_catalog(), read_measurements(file)
    with status("predicting") as progress:
        return judge(
            rows, lambda name: resolve_accelerator(catalog, name), Predictor.load(), progress=progress
        )


def settings_from(profiled: str) -> Board:
    """Score predictions for other accelerators from a profile on one with published rows.

    UsageError for an accelerator without published rows.
    """
    from ..errors import UsageError, near_names_hint
    from ..predict.bench import judged_rows
    from ..predict.settings_held_out import from_profile

    measured = {m.accelerator for m in judged_rows()}
    found = next((name for name in measured if name.lower() == profiled.lower()), None)
    if found is None:
        hint = near_names_hint(profiled, measured, see_all="gpuplan accuracy --recorded")
        raise UsageError(f"no published rows on `{profiled}` in `--from`", hint=hint)
    return _computed([from_profile(found)])


def settings_board(names: Sequence[str]) -> Board:
    """Compute the named settings (all if none is named), under the keys of the JSON contract."""
    from ..predict.settings_held_out import settings_named

    return _computed(settings_named(names))


def _computed(settings: Sequence[Setting]) -> Board:
    from ..offers.load import load_catalog
    from ..predict.accuracy import Prices, evaluate
    from ..predict.bench import Bench, judged_rows
    from ..predict.corpus import packaged_corpus
    from ..render.progress import status

    catalog = load_catalog()
    with status("predicting") as progress:
        bench = Bench(
            measurements=judged_rows(), corpus=packaged_corpus(), accelerators=catalog.accelerators,
            progress=progress,
        )  # fmt: skip
        return evaluate(bench, settings, Prices.of(catalog.offers)).to_json()


def recorded_board(names: Sequence[str]) -> Board:
    """Load recorded settings under the same keys, without the underlying rows."""
    from ..predict.record import packaged_record
    from ..predict.settings_held_out import HEADLINE, settings_named

    wanted = {setting.name for setting in settings_named(names)}
    settings = {name: s for name, s in packaged_record()["settings"].items() if name in wanted}
    shown = settings.get(HEADLINE) or next(iter(settings.values()), None)
    keys = ("protocol", "summary", "by_accelerator", "by_model", "rules_of_thumb")
    return {**{key: shown[key] if shown else None for key in keys}, "settings": settings, "rows": []}


def emit_settings(board: Board, *, output: Path | None, markdown: bool, as_json: bool) -> None:
    """Print settings as a table, page or JSON, and record them if a file is given."""
    from ..predict.record import rounded
    from ..render.accuracy import build_setting_columns, build_setting_rows
    from ..render.accuracy_page import format_accuracy_page
    from ..render.output import emit_json, emit_rows, emit_text

    if output is not None:
        _record(board["settings"], output)
    if as_json:
        emit_json("gpuplan.accuracy/1", board)
    elif markdown:
        emit_text(format_accuracy_page(rounded(board["settings"])))
    else:
        emit_rows(build_setting_columns(), build_setting_rows(board["settings"]))


def _record(settings: Mapping[str, Any], path: Path) -> None:
    """Write the record, keeping existing settings that were not computed."""
    from ..predict.calibrate import write_json
    from ..predict.record import read_record, record_of
    from ..predict.settings_held_out import SETTINGS

    before = read_record(path) if path.exists() else None
    write_json(path, record_of(settings, order=SETTINGS, before=before))
