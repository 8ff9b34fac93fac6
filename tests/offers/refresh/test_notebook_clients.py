"""Colab and Kaggle through their clients: real processes that print what the clients' own code prints.

The programs here are fakes in the formats of kaggle 2.2.5 (`quota_view_cli`, `print_json`, `print_auth_help`) and
google-colab-cli 0.7.5 (`format_consumption_status`, `_format_session_line`, `_run_remote_flow`).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from gpuplan.cli.app import run
from gpuplan.offers.catalog import Catalog, load_catalog, load_user_catalog
from gpuplan.offers.refresh.source import RefreshRequest
from gpuplan.offers.refresh.sources.notebook_clients import READING_COLUMNS, refresh_notebooks
from gpuplan.offers.refresh.store import PriceStore
from gpuplan.settings import load_settings

Program = Callable[[str, str], None]
WARNING = "Warning: Your Kaggle API key is readable by other users on this system!"
LOGGED_OUT = {
    "kaggle": "print('Authentication required to call the Kaggle API.\\n'); sys.exit(1)",
    "colab": "print('\\nTo authorize colab-cli, visit this URL in any browser:\\n', file=sys.stderr)\n"
    "try: input('Enter the authorization code: ')\n"
    "except EOFError as e:\n"
    "    print(f'[colab] Warning: failed to fetch compute-unit info: {e}', file=sys.stderr); sys.exit(1)",
}
GARBAGE = [
    "print('No quota information available')",
    "print('[{\"resource\": 1}]')",
    "print('[1, 2')",
    "pass",
]


def kaggle_says(*, used: str = "12.50h", total: str = "30.00h") -> str:
    """Return a program that answers `kaggle quota --format json`."""
    rows = [
        {
            "resource": name,
            "used": used,
            "remaining": "0.00h",
            "total": total,
            "refreshAt": "2026-11-28T00:00:00+00:00",
        }
        for name in ("GPU", "TPU")
    ]
    text = f"{WARNING}\n{json.dumps(rows, indent=2)}"
    return f"assert sys.argv[1:] == ['quota', '--format', 'json']\nprint({text!r})"


def colab_says(*sessions: str, rate: str = "1.05") -> str:
    """Return a program that answers `colab usage` and `colab sessions`."""
    usage = (
        f"Current balance: 87.25 compute units\nUsage rate: {rate}/hr\nActive assignments: {len(sessions)}"
    )
    return f"print({{'usage': {usage!r}, 'sessions': {chr(10).join(sessions)!r}}}[sys.argv[1]])"


def session(hardware: str, shape: str = "Standard") -> str:
    """Return a line of `colab sessions`."""
    return f"[?] m-s-1abc | Hardware: {hardware} | Shape: {shape} | Variant: GPU"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PriceStore:
    """An empty data folder, and no client on the PATH."""
    monkeypatch.setenv("GPUPLAN_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return PriceStore(tmp_path / "data")


@pytest.fixture
def program(store: PriceStore, tmp_path: Path) -> Program:
    """Put a real program on the PATH under a client's name."""

    def write(name: str, body: str) -> None:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!{sys.executable} -IS\nimport sys\n{body}\n", encoding="utf-8")
        path.chmod(0o755)

    return write


def readings(store: PriceStore, provider: str) -> dict[str, str]:
    """Return what is kept."""
    return {row["name"]: row["value"] for row in store.table("notebooks", provider, READING_COLUMNS)}


def used_catalog() -> Catalog:
    """Return the catalog that commands use."""
    return load_user_catalog(load_settings())


def test_a_fake_kaggle_gives_the_weekly_hours_that_the_plan_uses(store: PriceStore, program: Program) -> None:
    """30 h packaged; the account has 41.5 h, of which 12.5 h are used; free stays free."""
    program("kaggle", kaggle_says(total="41.50h"))
    outcome = refresh_notebooks("kaggle", store=store, request=RefreshRequest())

    assert (outcome.accepted, outcome.refused, outcome.needs) == (["kaggle-quota"], [], [])
    assert readings(store, "kaggle")["gpu_hours_allowed"] == "41.5"
    offer = next(o for o in used_catalog().offers if o.instance_type == "kaggle-free-t4x2")
    assert "about 41.5 h per week" in offer.note
    assert "12.5 of 41.5 h used" in offer.note
    assert offer.usd_per_hour == 0
    packaged = next(o for o in load_catalog().offers if o.instance_type == "kaggle-free-t4x2")
    assert "about 30 h per week" in packaged.note


def test_a_fake_colab_gives_the_rate_of_the_runtime_that_is_up(store: PriceStore, program: Program) -> None:
    """A T4 at 1.05 units/h costs 0.104895 USD/h; once it is stopped its rate stays, and what is needed is told."""
    program("colab", colab_says(session("T4")))
    assert refresh_notebooks("colab", store=store, request=RefreshRequest()).needs == []
    program("colab", colab_says(rate="0.00"))
    later = refresh_notebooks("colab", store=store, request=RefreshRequest())

    assert later.accepted == ["colab-usage"]
    assert "colab new --gpu T4" in later.needs[0]
    assert readings(store, "colab") == {"units_left": "87.25", "units_per_hour/t4": "1.05"}
    offers = {o.instance_type: o for o in used_catalog().offers}
    assert offers["colab-payg-t4"].usd_per_hour == Decimal("0.104895")
    assert "87.25 compute units remaining" in offers["colab-payg-t4"].note
    unmeasured = next(o for o in load_catalog().offers if o.instance_type == "colab-payg-g4")
    assert offers["colab-payg-g4"].usd_per_hour == unmeasured.usd_per_hour


@pytest.mark.parametrize(
    "sessions", [(session("T4"), session("L4")), (session("T4", "High-RAM"),), (session("B300"),)]
)
def test_a_rate_that_is_of_no_known_machine_is_not_taken(
    store: PriceStore, program: Program, sessions: tuple[str, ...]
) -> None:
    """Two runtimes, another shape, an unknown chip: the balance only, and one line that says why."""
    program("colab", colab_says(*sessions))
    outcome = refresh_notebooks("colab", store=store, request=RefreshRequest())

    assert len(outcome.needs) == 1
    assert readings(store, "colab") == {"units_left": "87.25"}


@pytest.mark.parametrize("provider", ["kaggle", "colab"])
@pytest.mark.parametrize("bad", [*GARBAGE, "raise SystemExit(3)", kaggle_says(total="0.00h"), "logged out"])
def test_what_a_fake_client_said_before_stays(
    store: PriceStore, program: Program, provider: str, bad: str
) -> None:
    """Garbage, half an answer, silence, an error, 0 h, logged out: told, and the file is as it was."""
    program(provider, kaggle_says() if provider == "kaggle" else colab_says(session("T4")))
    refresh_notebooks(provider, store=store, request=RefreshRequest())
    before = store.path("notebooks", provider).read_bytes()
    program(provider, LOGGED_OUT[provider] if bad == "logged out" else bad)
    outcome = refresh_notebooks(provider, store=store, request=RefreshRequest())

    assert not outcome.accepted
    assert bool(outcome.needs) is (bad == "logged out")
    assert bool(outcome.refused) is (bad != "logged out")
    assert store.path("notebooks", provider).read_bytes() == before


def test_a_client_that_hangs_is_ended(store: PriceStore, program: Program) -> None:
    """A real process that would sleep for a minute is given up, and refused."""
    program("kaggle", "import time; time.sleep(60)")
    start = time.monotonic()
    outcome = refresh_notebooks("kaggle", store=store, request=RefreshRequest(), timeout_s=0.3)

    assert time.monotonic() - start < 20
    assert "did not respond within 0.3 s" in outcome.anomalies[0].message


def test_the_command_asks_both_and_tells_what_is_missing(
    store: PriceStore,
    program: Program,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kaggle under another name is read; Colab is not installed: exit 4 as for a missing key, and how."""
    program("my-kaggle", kaggle_says())
    monkeypatch.setenv("GPUPLAN_ENDPOINT_KAGGLE_QUOTA", str(tmp_path / "bin" / "my-kaggle"))

    assert run(["catalog", "refresh", "--provider", "kaggle", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    published = json.loads(files("gpuplan.schemas").joinpath("gpuplan.catalog-refresh.json").read_text())
    jsonschema.validate(found, published)
    assert found["providers"][0]["new"] == 6
    assert run(["catalog", "refresh", "--provider", "kaggle", "--provider", "colab"]) == 4
    said = capsys.readouterr()
    assert "pip install google-colab-cli" in said.err
    assert said.out.splitlines()[1].startswith("kaggle\tkaggle-quota\t1\t0\t0\t6")
