"""`launch`, `ps`, `stop` and `reap` as commands of a fresh installation, with prices of today."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from gpuplan.cli.app import run
from launch.cloud_server import ServerProcess
from vendors import google as skus_as_google
from vendors.server import vendor

Command = Callable[..., tuple[int, str, str]]
MNIST = Path(__file__).parents[3] / "examples" / "mnist_cnn.py"
OFFER = "g2-standard-4"


@pytest.fixture
def gpuplan(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command line in this process: exit code, data, talk."""

    def command(*arguments: str) -> tuple[int, str, str]:
        code = run(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


@pytest.fixture
def order(gpuplan: Command, google: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """A fresh installation, an estimate of today with prices of long ago, and the command that launches it."""
    monkeypatch.setenv("GPUPLAN_STATE_DIR", str(tmp_path / "state"))
    plan = tmp_path / "plan.json"
    where = ("--provider", "gcp", "--accelerator", "L4", "--region", "us-central1")
    assert gpuplan("estimate", str(MNIST), *where, "-o", str(plan))[0] == 0
    plan.write_text(re.sub(r'"price_as_of": "[^"]*"', '"price_as_of": "2020-01-01"', plan.read_text()))
    source = "git:https://example.org/me/code.git"
    return ("launch", str(plan), "--script", "train.py", "--source", source, "--yes")


@pytest.fixture
def passing_time(server: ServerProcess) -> Iterator[None]:
    """Half a minute at the cloud for every fifth of a second here."""
    stopped = threading.Event()

    def advance() -> None:
        with requests.Session() as session:
            session.trust_env = False
            while not stopped.wait(0.2):
                session.post(f"{server.url}/_control", json={"advance_s": 30.0}, timeout=60)

    thread = threading.Thread(target=advance)
    thread.start()
    yield
    stopped.set()
    thread.join()


@pytest.fixture
def billing(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve Google's published SKUs, with those of G2 and L4 in us-central1."""
    held = skus_as_google.read_skus()
    with vendor(lambda asked: skus_as_google.page_of(held, asked)) as running:
        monkeypatch.setenv("GPUPLAN_ENDPOINT_GCP_BILLING", running.url)
        yield running.url


@pytest.mark.slow
@pytest.mark.usefixtures("billing", "passing_time")
def test_a_fresh_installation_launches_with_a_plan_of_today(
    gpuplan: Command, server: ServerProcess, order: tuple[str, ...]
) -> None:
    """The catalog's price is old, today's is read: no setting `accept_old_prices`. One machine, then none."""
    code, _, talk = gpuplan(*order)
    assert code == 0, talk
    state = server.control()
    (billed,) = [one for one in state["meter"] if one["ended_s"] is None]
    assert state["violations"] == []

    code, data, talk = gpuplan("ps", "--cloud", "--json")
    (row,) = json.loads(data)["machines"]
    assert (code, row["run"], row["instance_type"]) == (0, billed["tags"]["gpuplan-run"], OFFER), talk

    assert gpuplan("reap")[0] == 0
    code, _, talk = gpuplan("stop", row["run"], "--yes")
    assert code == 0, talk
    assert [one for one in server.control()["meter"] if one["ended_s"] is None] == []
    assert json.loads(gpuplan("ps", "--cloud", "--json")[1])["machines"] == []


def test_without_todays_price_an_old_one_is_not_enough(
    gpuplan: Command, server: ServerProcess, order: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The billing catalog does not answer: the rule on old prices holds, and Compute Engine is not asked."""
    monkeypatch.setenv("GPUPLAN_ENDPOINT_GCP_BILLING", "http://127.0.0.1:9")
    code, _, talk = gpuplan(*order)
    assert (code, server.control()["log"]) == (3, [])
    assert "GPUPLAN_ACCEPT_OLD_PRICES=true" in talk
