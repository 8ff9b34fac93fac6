"""The packaged record of accuracy: its reading, and choices of settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuplan.errors import UsageError
from gpuplan.plan.accuracy import HEADLINE, load_packaged_record, load_recorded_board, read_record


@pytest.mark.parametrize("text", [None, "{", '{"schema": "other/1"}', "{}"])
def test_what_is_no_record_is_one_line(tmp_path: Path, text: str | None) -> None:
    """A missing, broken or different file: the error has its path and the command to rebuild it."""
    path = tmp_path / "accuracy.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match="cannot read the record of accuracy") as raised:
        read_record(path)
    assert str(path) in str(raised.value)
    assert "--output" in (raised.value.hint or "")


def test_named_settings_alone_are_loaded() -> None:
    """In the record's order; what is shown first is the headline setting, or the first that was named."""
    assert list(load_recorded_board(["source", "profet"])["settings"]) == ["profet", "source"]
    whole = load_recorded_board([])
    assert whole["settings"] == load_packaged_record()["settings"]
    assert whole["summary"] == whole["settings"][HEADLINE]["summary"]
    named = load_recorded_board(["source"])
    assert named["summary"] == named["settings"]["source"]["summary"]
