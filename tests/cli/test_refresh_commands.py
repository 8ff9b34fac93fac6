"""`gpuplan catalog refresh`, `diff`, `age`, `history`, `path`: against servers on loopback."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from vendors import aws, gpu_clouds, others
from vendors.server import Asked, Vendor, vendor

KEYS = ("LAMBDA_API_KEY", "RUNPOD_API_KEY", "GCP_API_KEY", "AWS_ACCESS_KEY_ID", "AWS_PROFILE")


def document(done: Any, name: str) -> dict[str, Any]:
    """Return a command's JSON after holding it against its published schema."""
    published = json.loads(files("gpuplan.schemas").joinpath(f"gpuplan.{name}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(published)
    found: dict[str, Any] = json.loads(done.out)
    jsonschema.validate(found, published)
    return found


def answer(asked: Asked, *, factor: float = 1.0) -> bytes | dict[str, Any] | None:
    """Return AWS's machines in us-east-1 as SkyPilot lists them, with another price of g5.xlarge on demand."""
    if asked.path != "/aws/vms.csv":
        return None
    prices = {name: float(usd) for name, usd in aws.LISTED_USD.items()}
    moved = {"g5.xlarge": factor}
    return others.write_catalog(
        (name, "us-east-1", usd * moved.get(name, 1.0), usd / 3) for name, usd in prices.items()
    )


AGES = ("catalog", "age", "--json")
REFRESH_AWS = ("catalog", "refresh", "--provider", "aws")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of its own, and no credentials."""
    monkeypatch.setenv("GPUPLAN_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "data"


@pytest.fixture
def server(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Vendor]:
    """SkyPilot's hosted catalog on loopback."""
    with vendor(answer) as running:
        monkeypatch.setenv("GPUPLAN_ENDPOINT_SKYPILOT_AWS", running.url)
        yield running


def test_a_newcomer_refreshes_aws(home: Path, server: Vendor, gpuplan: Callable[..., Any]) -> None:
    """Without credentials: prices are stored with today's date and offered."""
    done = gpuplan(*REFRESH_AWS)

    assert done.code == 0, done.err
    header, row = done.out.splitlines()
    assert header.startswith("provider\tsources\taccepted")
    assert row.startswith("aws\tskypilot-aws\t1\t")
    offers = json.loads(gpuplan("offers", "--provider", "aws", "--region", "us-east-1", "--json").out)["offers"]
    g5 = next(o for o in offers if (o["instance_type"], o["purchase"]) == ("g5.xlarge", "on_demand"))
    assert g5["usd_per_hour"] == "1.006"
    assert g5["price_source"].startswith(server.url)
    assert g5["price_as_of"] not in ("2026-07-20", None)
    assert str(home) == gpuplan("catalog", "path").out.strip()
    assert sorted(p.name for p in home.iterdir()) == ["gone", "prices", "refresh"]


def test_a_changed_price_shows_in_diff(
    home: Path, server: Vendor, gpuplan: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.006 becomes 1.2072: in the diff as JSON and Markdown."""
    gpuplan(*REFRESH_AWS)
    with vendor(lambda asked: answer(asked, factor=1.2)) as later:
        monkeypatch.setenv("GPUPLAN_ENDPOINT_SKYPILOT_AWS", later.url)
        done = document(gpuplan(*REFRESH_AWS, "--json"), "catalog-refresh")

    assert [(p["new"], p["changed"]) for p in done["providers"]] == [(0, 1)]
    (change,) = document(gpuplan("catalog", "diff", "--json"), "catalog-diff")["changes"]
    assert (change["instance_type"], change["old_usd_per_hour"], change["new_usd_per_hour"]) == (
        "g5.xlarge",
        "1.006",
        "1.2072",
    )
    assert change["percent"] == pytest.approx(20.0)
    row = "| changed | aws | g5.xlarge | us-east-1 | on demand | 1.006 | 1.2072 | +20.0 |"
    assert row in gpuplan("catalog", "diff", "--markdown").out
    assert (home / "previous" / "aws.csv").is_file()


def test_ages_are_told_by_provider(home: Path, server: Vendor, gpuplan: Callable[..., Any]) -> None:
    """Packaged prices age; those of us-east-1, read a moment ago, do not."""
    before = [row for row in document(gpuplan(*AGES), "catalog-age")["ages"] if row["provider"] == "aws"]
    gpuplan(*REFRESH_AWS)
    after = [row for row in document(gpuplan(*AGES), "catalog-age")["ages"] if row["provider"] == "aws"]

    assert len(after) == 2
    gone = [b["over_30_days"] - a["over_30_days"] for b, a in zip(before, after, strict=True)]
    assert gone[0] >= 40
    assert after[0]["newest"] > before[0]["newest"]


def test_a_refused_provider_is_a_failure_and_says_which(
    home: Path, gpuplan: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 1 and one line; nothing is written."""
    with vendor(lambda _: None) as running:
        monkeypatch.setenv("GPUPLAN_ENDPOINT_SKYPILOT_AWS", running.url)
        done = gpuplan(*REFRESH_AWS)

    assert done.code == 1
    assert "failed: aws (SkyPilot): 127.0.0.1" in done.err
    assert not (home / "prices").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["refresh", "--provider", "awz"], "no price source for provider `awz`"),
        (["refresh", "--verify", "--provider", "vast"], "no price source for provider `vast`"),
        (["diff", "/nowhere"], "`/nowhere` has no prices/ in it"),
    ],
)
def test_mistakes_are_one_line(
    home: Path, gpuplan: Callable[..., Any], arguments: list[str], message: str
) -> None:
    """The error names value, flag and similar names."""
    done = gpuplan("catalog", *arguments)

    assert done.code == 2
    assert message in done.err
    assert "hint: " in done.err
    assert done.out == ""


def test_without_options_everything_is_read_at_once(
    home: Path, gpuplan: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SkyPilot's catalog of Google, and Vast; no other host is there, which is one line for each host."""
    with vendor(answer_everything) as running:
        gone = running.url
    with vendor(answer_everything) as running:
        for name in ("SKYPILOT_GCP", "VAST_API"):
            monkeypatch.setenv(f"GPUPLAN_ENDPOINT_{name}", running.url)
        for name in ("SKYPILOT_AWS", "SKYPILOT_LAMBDA", "SKYPILOT_NEBIUS", "AZURE_RETAIL", "RUNPOD_API"):
            monkeypatch.setenv(f"GPUPLAN_ENDPOINT_{name}", gone)
        done = gpuplan("catalog", "refresh", "--json")

    providers = {one["provider"]: one for one in document(done, "catalog-refresh")["providers"]}
    assert done.code == 1
    assert list(providers) == ["aws", "azure", "gcp", "lambda", "nebius", "runpod", "vast"]
    assert providers["vast"]["accepted"] == ["vast"]
    host = gone.removeprefix("http://")
    away = [line for line in done.err.splitlines() if line.startswith("unreachable: ")]
    assert away == [
        f"unreachable: {host}: check the network, or a proxy in HTTPS_PROXY (aws, azure, lambda, nebius, runpod)"
    ]
    assert "rejected: aws" not in done.err


def answer_everything(asked: Asked) -> Any:
    """Answer as SkyPilot's catalog of Google Cloud, or as Vast."""
    return others.SKYPILOT_CATALOG.read_bytes() if asked.path == "/gcp/vms.csv" else gpu_clouds.search()(asked)


def test_a_damaged_file_is_named(home: Path, server: Vendor, gpuplan: Callable[..., Any]) -> None:
    """A corrupt line: the error names file and line, and no price is substituted."""
    gpuplan(*REFRESH_AWS)
    path = home / "prices" / "aws.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:5], lines[5].replace("on_demand", "on_demnd"), *lines[6:]]))

    done = gpuplan("offers")

    assert done.code == 2
    assert "aws.csv, line 6, `purchase`" in done.err


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("provider", ["colab", "kaggle"])
def test_notebooks_have_no_price_source(provider: str, gpuplan: Callable[..., Any]) -> None:
    """The hint names the command that shows their rows, and what gives the hours of an account."""
    done = gpuplan("catalog", "refresh", "--provider", provider)

    assert (done.code, done.out) == (2, "")
    assert f"no price source for provider `{provider}`" in done.err
    assert f"`gpuplan offers --provider {provider}` has its rows" in done.err
    assert "`--assume notebook_hours_a_week=20` gives your hours" in done.err
    assert gpuplan("offers", "--provider", provider).code == 0
