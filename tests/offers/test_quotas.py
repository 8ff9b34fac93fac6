"""Quotas, read and never changed: AWS through boto3, Google and Azure over REST; each against its own model."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
from gpuplan.errors import CredentialsError, UsageError
from gpuplan.offers.refresh.quotas import Quota, read_quotas
from gpuplan.offers.refresh.source import RefreshRequest
from vendors.google import discovery_schema
from vendors.quotas import ENVIRON, GOOGLE_REGION, answer
from vendors.server import impatient, vendor


def read(provider: str, region: str, monkeypatch: pytest.MonkeyPatch) -> list[Quota]:
    """Return the quotas that a provider tells."""
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    with vendor(answer) as server:
        endpoints = {f"{provider}-quotas": server.url}
        return read_quotas(
            provider, region, request=RefreshRequest(environ=ENVIRON, endpoints=endpoints), http=impatient()
        )


def test_aws_tells_vcpus_by_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """0 for G instances is a sentence with the way to ask."""
    found = {(q.what, q.purchase): q for q in read("aws", "us-east-1", monkeypatch)}

    assert found["P instances", "on_demand"].limit == 96
    assert found["G and VT instances", "on_demand"].sentence == (
        "your quota is 0 vCPUs for G and VT instances (on demand) in aws us-east-1: "
        "https://us-east-1.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/L-DB2E81BA"
    )


def test_google_tells_gpus_of_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """On demand and preemptible apart; CPUs are not among them. The answer has the form of Google's document."""
    jsonschema.validate(GOOGLE_REGION, discovery_schema("compute.v1.json", "Region"))
    assert [(q.what, q.purchase, q.limit, q.used) for q in read("gcp", "us-central1", monkeypatch)] == [
        ("NVIDIA_T4_GPUS", "on_demand", 4.0, 1.0),
        ("NVIDIA_T4_GPUS", "spot", 0.0, 0.0),
    ]


def test_azure_tells_vcpus_by_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU families alone."""
    (quota,) = read("azure", "eastus", monkeypatch)

    assert (quota.what, quota.limit, quota.used) == ("Standard NCADSA100v4 Family vCPUs", 24.0, 12.0)
    assert "12 of them in use" in quota.sentence


@pytest.mark.parametrize("provider", ["gcp", "azure"])
def test_without_credentials_the_way_to_get_them_is_told(provider: str) -> None:
    """Exit code 4, and the command that makes a token."""
    with pytest.raises(CredentialsError) as caught:
        read_quotas(provider, "anywhere", request=RefreshRequest(environ={}, endpoints={}), http=impatient())

    assert "token" in (caught.value.hint or "").lower()


def test_another_provider_has_no_quotas_to_read() -> None:
    """Named, with what can be read."""
    with pytest.raises(UsageError, match="quotas of `gpc`") as caught:
        read_quotas("gpc", "anywhere", request=RefreshRequest(environ={}, endpoints={}), http=impatient())

    assert "gcp" in (caught.value.hint or "")


def test_the_command_prints_json_under_its_schema(gpuplan_command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The published schema holds, and a 0 is said in words on standard error for people."""
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    with vendor(answer) as server:
        monkeypatch.setenv("GPUPLAN_ENDPOINT_GCP_QUOTAS", server.url)
        code, out, _ = gpuplan_command("quota", "--provider", "gcp", "--region", "us-central1", "--json")
        table = gpuplan_command("quota", "--provider", "gcp", "--region", "us-central1")

    published = json.loads(files("gpuplan.schemas").joinpath("gpuplan.quota.json").read_text())
    jsonschema.Draft202012Validator.check_schema(published)
    jsonschema.validate(json.loads(out), published)
    assert code == 0
    assert "your quota is 0 devices for NVIDIA_T4_GPUS (spot) in gcp us-central1" in table[2]


@pytest.fixture
def gpuplan_command(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command line in this process; code, output and talk."""
    from gpuplan.cli.app import run

    def command(*arguments: str) -> tuple[int, str, str]:
        code = run(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command
