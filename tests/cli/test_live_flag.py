"""`--live`: the clients of Colab and Kaggle are asked first. The programs are fakes, the processes real."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "object"]
QUOTA = [
    {
        "resource": name,
        "used": "12.50h",
        "remaining": "8.50h",
        "total": "21.00h",
        "refreshAt": "2026-11-28T00:00:00+00:00",
    }
    for name in ("GPU", "TPU")
]
USAGE = "Current balance: 87.25 compute units\\nUsage rate: 3.21/hr\\nActive assignments: 1"
SESSION = "[?] m-s-1abc | Hardware: T4 | Shape: Standard | Variant: GPU"


@pytest.fixture
def clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake `kaggle` and `colab` programs on the PATH, and an empty data folder."""
    programs = {
        "kaggle": f"print({json.dumps(QUOTA)!r})",
        "colab": f"print({{'usage': '{USAGE}', 'sessions': {SESSION!r}}}[sys.argv[1]])",
    }
    (tmp_path / "bin").mkdir()
    for name, code in programs.items():
        path = tmp_path / "bin" / name
        path.write_text(f"#!{sys.executable}\nimport sys\n{code}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("GPUPLAN_DATA_DIR", str(tmp_path / "data"))


@pytest.mark.usefixtures("clients")
def test_breakeven_counts_with_what_fake_clients_say(gpuplan: Run, saved: str) -> None:
    """Kaggle's 21 hours a week and Colab's 3.21 units an hour take the places of the catalog's rows."""
    against = ("--against", "kaggle-free-t4x2,colab-payg-t4", "--json")
    before = json.loads(gpuplan("breakeven", saved, *against).out)
    done = gpuplan("breakeven", saved, *against, "--live")
    after = json.loads(done.out)
    again = json.loads(gpuplan("breakeven", saved, *against).out)

    def way(document: dict, name: str) -> dict:
        return next(one for one in document["ways"] if one["name"] == name)

    kaggle, colab = "kaggle-free-t4x2", "colab-payg-t4"
    assert way(before, kaggle)["hours_a_week"] != 21.0
    assert way(after, kaggle)["hours_a_week"] == 21.0
    assert way(after, colab)["usd_per_hour"] != way(before, colab)["usd_per_hour"]
    assert "note: kaggle: read now" in done.err
    assert again == after  # what was said is kept, with its date


@pytest.mark.usefixtures("clients")
def test_a_users_own_hours_win_over_what_a_fake_client_says(gpuplan: Run, saved: str) -> None:
    """`--assume notebook_hours_a_week=9` is the last word."""
    done = gpuplan(
        "breakeven",
        saved,
        "--against",
        "kaggle-free-t4x2",
        "--live",
        "--assume",
        "notebook_hours_a_week=9",
        "--json",
    )

    assert json.loads(done.out)["ways"][0]["hours_a_week"] == 9.0


def test_without_clients_the_rows_of_the_catalog_stay(
    gpuplan: Run, saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a client on the PATH, a note names the requirement, and the estimate is still printed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("GPUPLAN_DATA_DIR", str(tmp_path / "data"))
    done = gpuplan("estimate", saved, "--provider", "kaggle", "--live", "--json")

    assert done.code == 0
    assert "note: kaggle: needs" in done.err
    assert json.loads(done.out)["offers"]
