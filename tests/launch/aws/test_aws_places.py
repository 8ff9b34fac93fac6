"""Regions that refuse, things that are left, live prices, and buckets of other accounts, over HTTP with boto3."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from gpuplan.errors import CredentialsError
from gpuplan.launch.core.api_call import CloudError, ErrorKind
from launch.aws.bench import REGIONS, Cloud
from launch.worlds import aws_candidate

OWN_ACCOUNT = "123456789012"


@pytest.mark.parametrize("what", ["OptInRequired", "UnauthorizedOperation", "AuthFailure", "reset"])
def test_one_refused_region_hides_no_other(cloud: Cloud, what: str) -> None:
    """It is named with its fault; the machine in the other region is listed."""
    up = cloud.launcher.launch(cloud.plan(options={}))
    cloud.fault("DescribeInstances", "before", what, region="us-west-2")
    listing = cloud.adapter.machines(["us-west-2", "us-east-1"])

    assert [machine.id for machine in listing.machines] == [up.machine_id]
    assert list(listing.failed) == ["us-west-2"]
    assert listing.answered == ("us-east-1",)


def test_regions_that_cannot_be_listed_leave_the_sessions_own(cloud: Cloud) -> None:
    """And the listing says that the others were not asked."""
    up = cloud.launcher.launch(cloud.plan(options={}))
    cloud.fault("DescribeRegions", "before", "UnauthorizedOperation")
    listing = cloud.adapter.machines(None)

    assert [machine.id for machine in listing.machines] == [up.machine_id]
    assert list(listing.failed) == ["any region but us-east-1"]


def test_what_is_left_without_a_record_is_found_and_can_be_removed(cloud: Cloud) -> None:
    """Group by its tags, schedule by its name, with run, attempt and owner; a region that refuses is named."""
    up = cloud.launcher.launch(cloud.plan(options={}))
    for call in cloud.adapter.build_end_calls(up.ref):
        cloud.adapter.send(call, call.params)
    cloud.fault("DescribeSecurityGroups", "before", "UnauthorizedOperation", region="us-west-2")
    found, failed = cloud.adapter.leftovers(REGIONS)

    assert {(one.kind, one.run, one.attempt, one.owner) for one in found} == {
        ("security group", "r1", 1, "me"),
        ("schedule", "r1", 1, "me"),
    }
    assert list(failed) == ["us-west-2"]
    for call in (call for one in found for call in one.undo):
        cloud.adapter.send(call, call.params)
    assert cloud.left() == {"roles": 1}


def test_the_live_price_on_demand_is_linux_on_shared_hardware(cloud: Cloud) -> None:
    """Windows, dedicated hardware and SQL Server cost more, and are in the same price list."""
    live = cloud.adapter.live_price(aws_candidate("us-west-2", "on_demand"), {})

    assert live.usd_per_hour == Decimal("0.526")
    assert live.source == "pricing.get_products"


@pytest.mark.parametrize(("zones", "usd"), [("", "0.2413"), ("a", "0.1967"), ("ab", "0.2413")])
def test_the_live_price_of_spot_is_the_highest_of_the_zones_that_may_be_used(
    cloud: Cloud, zones: str, usd: str
) -> None:
    """Only the newest entry of a zone counts: each had 9.9 $ an hour once."""
    live = cloud.adapter.live_price(aws_candidate("us-east-1", "spot"), {"zones": zones} if zones else {})

    assert live.usd_per_hour == Decimal(usd)


def test_a_price_that_does_not_exist_or_is_refused_is_a_fault(cloud: Cloud) -> None:
    """Never a number."""
    unknown = aws_candidate("us-east-1", "on_demand").model_copy(update={"instance_type": "p5.48xlarge"})
    for one in (unknown, unknown.model_copy(update={"purchase": "spot"})):
        with pytest.raises(CloudError, match=r"no price of p5\.48xlarge"):
            cloud.adapter.live_price(one, {})
    cloud.fault("GetProducts", "before", "AccessDeniedException")
    with pytest.raises(CloudError) as caught:
        cloud.adapter.live_price(unknown, {})
    assert caught.value.kind is ErrorKind.CREDENTIALS


def test_a_bucket_of_another_account_is_refused_by_s3(cloud: Cloud, tmp_path: Path) -> None:
    """Nothing is uploaded or started; named on purpose, it is used."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("x")
    source = f"folder:{tmp_path / 'code'}"
    options = {"bucket": "theirs", "profile": "machines"}
    cloud.server.post("bucket", name="theirs", owner="999999999999")
    with pytest.raises(CredentialsError) as caught:
        cloud.launcher.launch(cloud.plan(options=options, source=source))
    assert "-O bucket_owner=ACCOUNT" in str(caught.value.hint)
    assert {"machines", "objects"} & set(cloud.left()) == set()

    cloud.folder = tmp_path / "second"
    cloud.restart()
    cloud.launcher.launch(cloud.plan(options={**options, "bucket_owner": "999999999999"}, source=source))
    assert cloud.left()["objects"] == 1
    cloud.launcher.stop_run("r1")
    assert cloud.left() == {"roles": 1}


def test_a_bucket_of_the_own_account_is_used(cloud: Cloud, tmp_path: Path) -> None:
    """Without an option; the outcome is read with the same expectation."""
    (tmp_path / "code").mkdir()
    cloud.server.post("bucket", name="mine", owner=OWN_ACCOUNT)
    plan = cloud.plan(options={"bucket": "mine", "profile": "machines"}, source=f"folder:{tmp_path / 'code'}")
    cloud.launcher.launch(plan)
    assert cloud.left()["objects"] == 1
    assert cloud.adapter.outcome(plan.request) is None

    cloud.server.post("bucket", name="mine", owner="999999999999")
    with pytest.raises(CloudError) as caught:
        cloud.adapter.outcome(plan.request)
    assert caught.value.kind is ErrorKind.CREDENTIALS
