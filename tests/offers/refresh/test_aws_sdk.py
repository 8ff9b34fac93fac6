"""Contract: boto3 against servers on loopback: prices, spot by zone, expired keys, a wrong clock; moto's EC2."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.refresh.aws_sdk import AwsSpotHistory, build_aws_client
from gpuplan.offers.refresh.source import PricePart, RefreshRequest, build_instance_specs
from gpuplan.offers.refreshed_prices import PriceStore
from moto.server import ThreadedMotoServer
from offers.refresh.test_aws_and_azure import run
from vendors.aws_sdk import KEYS
from vendors.server import impatient, vendor

CATALOG = load_catalog()


pytestmark = pytest.mark.usefixtures("aws_keys")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"__type": "ExpiredTokenException", "message": "The security token is expired"}, "aws sso login"),
        ({"__type": "SignatureDoesNotMatch", "message": "Signature expired"}, "set this machine's clock"),
        ({"__type": "AccessDeniedException", "message": "not authorized"}, "pricing:GetProducts"),
    ],
)
def test_keys_that_do_not_hold_are_told_with_the_way_out(
    tmp_path: Path, fault: dict[str, str], message: str
) -> None:
    """Nothing is taken."""
    store = PriceStore(tmp_path)

    with vendor(lambda _: (400, fault)) as server:
        outcome = run(store, server.url, "aws", regions=("us-east-1",))

    assert outcome.sources == ["aws-query", "aws-spot-history"]
    assert message in outcome.anomalies[0].message
    assert (outcome.accepted, store.offers("aws")) == ([], ())


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


def test_a_client_waits_5_s_for_a_connection_and_10_s_for_an_answer_and_asks_three_times() -> None:
    """boto3's own limits are a minute for a connection and its older kind of retries."""
    client = build_aws_client("ec2", "us-west-2", "")

    assert client.meta.endpoint_url == "https://ec2.us-west-2.amazonaws.com"
    assert (client.meta.config.connect_timeout, client.meta.config.read_timeout) == (5, 10)
    assert client.meta.config.retries == {"mode": "standard", "total_max_attempts": 3}
    assert build_aws_client("ec2", "us-west-2", "http://localhost:1").meta.endpoint_url == "http://localhost:1"
