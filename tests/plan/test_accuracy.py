"""The packaged record of accuracy: choices of settings."""

from __future__ import annotations

from gpuplan.plan.accuracy import HEADLINE, load_packaged_record, load_recorded_board


def test_named_settings_alone_are_loaded() -> None:
    """In the record's order; what is shown first is the headline setting, or the first that was named."""
    assert list(load_recorded_board(["source", "profet"])["settings"]) == ["profet", "source"]
    whole = load_recorded_board([])
    assert whole["settings"] == load_packaged_record()["settings"]
    assert whole["summary"] == whole["settings"][HEADLINE]["summary"]
    named = load_recorded_board(["source"])
    assert named["summary"] == named["settings"]["source"]["summary"]
