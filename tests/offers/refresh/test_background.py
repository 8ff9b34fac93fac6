"""Prices that refresh themselves: when, by whose leave, and that no answer waits for it or fails by it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from factories import make_offer
from gpuplan.offers.catalog import Catalog, load_catalog
from gpuplan.offers.refresh import background
from gpuplan.offers.refresh.background import INTRODUCTION, QUESTION, find_stale, start_refresh
from gpuplan.offers.refreshed_prices import PriceStore, RefreshedOffer
from gpuplan.settings import Settings, load_settings
from vendors import gpu_clouds
from vendors.server import Vendor, vendor

CATALOG = load_catalog()
SOURCES = ("SKYPILOT_AWS", "SKYPILOT_GCP", "SKYPILOT_LAMBDA", "SKYPILOT_NEBIUS", "AZURE_RETAIL", "RUNPOD_API",
           "VAST_API")  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder, a day long after the packaged prices, and no CI."""
    monkeypatch.setenv("GPUPLAN_DATA_DIR", str(tmp_path / "data"))
    for name in ("GPUPLAN_TODAY", "GPUPLAN_REFRESH", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(background, "get_today", lambda: date(2027, 1, 1))
    return tmp_path / "data"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Keep the command lines of processes instead of starting them."""
    lines: list[list[str]] = []

    class FakeProcess:
        """A process that ends at once."""

        def __init__(self, command: list[str], **_: Any) -> None:
            lines.append(command[1:])

        def wait(self) -> int:
            """Return."""
            return 0

    monkeypatch.setattr(background.subprocess, "Popen", FakeProcess)
    return lines


def settings(**environ: str) -> Settings:
    """Return the settings of an environment."""
    return load_settings(environ=dict(os.environ) | environ)


def test_at_a_terminal_it_starts_once_and_says_so_the_first_time(folder: Path, started: list[list[str]]) -> None:
    """Then not again within the hour, also if nothing came of it; later again, without a word."""
    said: list[str] = []

    for _ in range(2):
        start_refresh(CATALOG, settings(), say=said.append)
    assert started == [["-P", "-m", "gpuplan.offers.refresh.background"]]
    past = time.time() - 3601.0
    os.utime(folder / "refresh" / background.ASKED, (past, past))
    assert start_refresh(CATALOG, settings(), say=said.append) is not None

    assert len(started) == 2
    assert said == [INTRODUCTION]
    assert "\n" not in INTRODUCTION


@pytest.mark.parametrize(
    ("environ", "at_terminal", "starts"),
    [
        ({}, True, True),
        ({}, False, False),  # a pipe, a library, an assistant, a scheduled job
        ({"CI": "true"}, True, False),
        ({"GPUPLAN_TODAY": "2027-01-01"}, True, False),  # tests, and outputs that must repeat
        ({"GPUPLAN_REFRESH": "never"}, True, False),
        ({"GPUPLAN_REFRESH": "auto"}, False, True),
        ({"GPUPLAN_REFRESH": "auto", "CI": "true"}, False, True),
        ({"GPUPLAN_REFRESH": "ask"}, False, False),
        ({"GPUPLAN_CATALOG_DIR": "/mine"}, True, False),  # a catalog that refreshed prices are not put over
    ],
)
@pytest.mark.usefixtures("folder")
def test_whose_leave_it_needs(
    started: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    environ: dict[str, str],
    at_terminal: bool,
    starts: bool,
) -> None:
    """Without the setting: of a user at a terminal, who was told."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    said: list[str] = []

    start_refresh(CATALOG, settings(), say=said.append if at_terminal else None)

    assert bool(started) == starts
    assert bool(said) == (starts and at_terminal)


@pytest.mark.parametrize("answer", [True, False])
def test_it_asks_where_the_setting_says_so(folder: Path, started: list[list[str]], answer: bool) -> None:
    asked: list[str] = []

    def ask(question: str) -> bool:
        asked.append(question)
        return answer

    start_refresh(CATALOG, settings(GPUPLAN_REFRESH="ask"), say=lambda _: None, ask=ask)

    assert asked == [QUESTION]
    assert bool(started) == answer


def test_a_provider_is_stale_eight_days_after_its_newest_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the newest price of each: a row that no list has any more does not make the others old."""
    offers = [
        make_offer(provider="vast", price_as_of="2026-12-25"),
        make_offer(provider="vast", price_as_of="2026-01-01"),
        make_offer(provider="runpod", price_as_of="2026-12-24"),
        make_offer(provider="lambda", price_as_of="2026-12-31", usd_per_hour=None),
        make_offer(provider="coreweave", price_as_of="2026-01-01"),  # without a public list
    ]
    monkeypatch.setattr(background, "get_today", lambda: date(2027, 1, 1))

    assert find_stale(FakeCatalog(offers)) == ["runpod"]


class FakeCatalog(Catalog):
    """A catalog of some offers."""

    def __init__(self, offers: Any) -> None:
        vars(self)["offers"] = tuple(offers)


def test_a_folder_that_cannot_be_written_is_no_error(
    folder: Path, started: list[list[str]], tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("a file")

    assert start_refresh(CATALOG, settings(), say=lambda _: None) is None
    assert started == []


def test_prices_that_arrive_meanwhile_are_taken_and_others_are_not_waited_for(
    folder: Path, started: list[list[str]]
) -> None:
    """The catalog of the command is replaced once a file is there."""
    running = start_refresh(CATALOG, settings(), say=lambda _: None)
    assert running is not None
    assert running.renew(CATALOG) is CATALOG

    listed = [offer for offer in CATALOG.offers if offer.provider == "vast"][:1]
    row = {**vars(listed[0]), "url": "https://vast.example", "sku": "1", "fetched_at": "2027-01-01T00:00:00+00:00"}
    row |= {"usd_per_hour": Decimal("0.5"), "price_as_of": "2027-01-01"}
    fields = ("provider", "instance_type", "accelerator", "devices", "vcpus", "memory_gib", "region", "purchase",
              "usd_per_hour", "price_as_of", "price_source", "status", "url", "sku", "fetched_at")  # fmt: skip
    store = PriceStore(folder)
    store.write("vast", [RefreshedOffer.read({name: row[name] for name in fields})])
    renewed = running.renew(CATALOG)

    assert renewed is not CATALOG
    (found,) = [o for o in renewed.offers if o.provider == "vast" and o.key == listed[0].key]
    assert found.usd_per_hour == Decimal("0.5")


@pytest.fixture
def server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Vendor]:
    """All sources at one address, where Vast alone answers."""
    with vendor(gpu_clouds.search()) as running:
        for name in SOURCES:
            monkeypatch.setenv(f"GPUPLAN_ENDPOINT_{name}", running.url)
        monkeypatch.setenv("GPUPLAN_REFRESH", "auto")
        monkeypatch.setenv("GPUPLAN_TODAY", "2027-01-01")
        yield running


def run_cli(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, without a terminal."""
    command = [sys.executable, "-m", "gpuplan", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)


def wait_for(condition: Callable[[], bool], *, limit_s: float = 30.0) -> bool:
    """Return whether something becomes true in time."""
    end_s = time.monotonic() + limit_s
    while not condition() and time.monotonic() < end_s:
        time.sleep(0.05)
    return condition()


def test_prices_of_an_offers_command_count_from_the_next_call(folder: Path, server: Vendor) -> None:
    """The command ends first; its process goes on, sends questions without a key, and leaves whole files."""
    first = run_cli("offers", "--provider", "vast")
    assert wait_for((folder / "refresh" / "vast.json").exists)
    second = run_cli("offers", "--provider", "vast")

    today = {(date.today() + timedelta(days=days)).isoformat() for days in (-1, 0)}
    assert not any(day in first.stdout for day in today)
    assert any(day in second.stdout for day in today)
    assert {"authorization", "cookie"}.isdisjoint({name for asked in server.asked for name in asked.headers})


def test_dead_hosts_cost_an_answer_nothing(folder: Path, server: Vendor) -> None:
    """No byte comes from any host: the command takes as long as with `never`, and says the same."""
    server.faults.extend(["silent"] * 500)
    run_cli("offers", "--provider", "vast")  # fills caches
    took_s, texts = [], []
    for mode in ("never", "auto"):
        (folder / "refresh" / background.ASKED).unlink(missing_ok=True)
        os.environ["GPUPLAN_REFRESH"] = mode
        began_s = time.monotonic()
        texts.append(run_cli("offers", "--provider", "vast"))
        took_s.append(time.monotonic() - began_s)

    assert texts[0].stdout == texts[1].stdout
    assert texts[0].stderr == texts[1].stderr
    assert took_s[1] < took_s[0] + 2.0
    assert not (folder / "prices").exists()


def test_a_process_that_is_ended_leaves_whole_files(folder: Path, server: Vendor) -> None:
    """Ended while it reads and while it writes: the prices are those of before or those of after."""
    run_cli("offers", "--provider", "vast")
    assert wait_for((folder / "refresh" / "vast.json").exists)
    before = PriceStore(folder).offers("vast")
    assert before
    for pause_s in (0.3, 0.6, 0.9, 1.2):
        environ = {**os.environ, "GPUPLAN_TODAY": "2027-06-01"}
        command = [sys.executable, "-m", "gpuplan.offers.refresh.background"]
        with subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL) as process:
            time.sleep(pause_s)
            process.send_signal(signal.SIGINT)
        after = PriceStore(folder).offers("vast")
        assert [(o.key, o.usd_per_hour) for o in after] == [(o.key, o.usd_per_hour) for o in before]
