"""Contract: boto3 against servers on loopback: prices, spot by zone, expired keys, a wrong clock; moto's EC2."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.refresh.aws_sdk import AwsSpotHistory, build_aws_client
from gpuplan.offers.refresh.instance_types import build_instance_specs
from gpuplan.offers.refresh.jobs import build_jobs
from gpuplan.offers.refresh.run import RefreshOutcome, refresh_provider
from gpuplan.offers.refresh.source import PricePart, RefreshRequest
from gpuplan.offers.refreshed_prices import PriceStore
from moto.server import ThreadedMotoServer
from offers.refresh.test_aws_and_azure import LISTED, amazon
from vendors.server import Asked, impatient, vendor

CATALOG = load_catalog()
KEYS = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret"}
OTHERS = amazon(LISTED)


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invented keys; no pauses between boto3's own attempts."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)


def run(store: PriceStore, url: str, *, region: str = "us-west-2") -> RefreshOutcome:
    """Return how a refresh with credentials went."""
    names = ("aws-query", "aws-spot-history", "aws-bulk", "aws-spot-feed")
    (job,) = build_jobs(
        CATALOG, providers=("aws",), regions=(region,), environ=KEYS, endpoints=dict.fromkeys(names, url)
    )
    return refresh_provider(replace(job, packaged=()), store=store, http=impatient())


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"__type": "ExpiredTokenException", "message": "The security token is expired"}, "aws sso login"),
        ({"__type": "SignatureDoesNotMatch", "message": "Signature expired"}, "set this machine's clock"),
        ({"__type": "AccessDeniedException", "message": "not authorized"}, "pricing:GetProducts"),
    ],
)
def test_keys_that_do_not_hold_fall_back_to_the_keyless_sources(
    tmp_path: Path, fault: dict[str, str], message: str
) -> None:
    """It is told, and AWS's own public files are read instead."""
    store = PriceStore(tmp_path)

    def answer(asked: Asked) -> Any:
        if asked.method == "POST":
            return (400, fault)
        return OTHERS(asked)

    with vendor(answer) as server:
        outcome = run(store, server.url, region="us-east-1")

    assert outcome.sources[:2] == ["aws-query", "aws-bulk"]
    assert message in outcome.anomalies[0].message
    assert "aws us-east-1 on demand" in outcome.accepted
    assert len(store.offers("aws")) == len(LISTED)


def test_boto3_reads_moto_s_spot_history() -> None:
    """Moto prices every type at a hundred-thousandth of a dollar; its types and zones are real."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        specs = build_instance_specs("aws", CATALOG.offers, CATALOG.names)
        source = AwsSpotHistory(specs)
        request = RefreshRequest(environ=KEYS, endpoints={"aws-spot-history": f"http://{host}:{port}"})
        part = PricePart(region="us-east-1", purchases=("spot",), label="moto")
        rows = list(source.read(part, request, impatient()))
    finally:
        server.stop()

    assert len(rows) >= 50
    assert {row.instance_type for row in rows} <= set(specs.known)
    assert all(row.note.startswith("zone us-east-1") for row in rows)


def test_a_client_waits_10_s_for_a_connection_and_60_s_for_an_answer_and_asks_again_five_times() -> None:
    """boto3's own limits are a minute for a connection and its older kind of retries."""
    client = build_aws_client("ec2", "us-west-2", "")

    assert client.meta.endpoint_url == "https://ec2.us-west-2.amazonaws.com"
    assert (client.meta.config.connect_timeout, client.meta.config.read_timeout) == (10, 60)
    assert client.meta.config.retries == {"mode": "standard", "total_max_attempts": 6}
    assert build_aws_client("ec2", "us-west-2", "http://localhost:1").meta.endpoint_url == "http://localhost:1"
