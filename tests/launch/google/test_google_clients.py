"""Calls through Google's own clients: sent once, as printed, never polled; errors sorted as they are meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpuplan.launch.clouds.google.calls import CLIENT_METHODS, _message, _plain, endpoint, parse_error_response
from gpuplan.launch.core.api_call import Call, CloudError, ErrorKind
from launch.bench_on_sockets import Bench
from launch.google.test_google_plans import build_launch_plan

GET = Call(
    step="look",
    service="compute.v1",
    operation="instances.get",
    region="us-central1-a",
    params={"project": "p1", "zone": "us-central1-a", "instance": "none"},
)


def asked_by(bench: Bench) -> dict[str, set[bool]]:
    """Return by operation whether Google's clients sent it (their header says so)."""
    found: dict[str, set[bool]] = {}
    for operation, is_client in bench.state()["by_client"]:
        found.setdefault(operation, set()).add(is_client)
    return found


def test_gpu_machines_go_through_google_cloud_compute_and_slices_where_it_can(bench: Bench) -> None:
    """Launch, ps and stop: every call of Compute Engine, and the deletion of a slice; v2alpha1 is left to REST."""
    bench.launcher.launch(bench.plan())
    assert bench.adapter.machines(None).failed == {}
    bench.launcher.stop_run("r1")

    found = asked_by(bench)
    by_client = {name for name, kinds in found.items() if kinds == {True}}
    tpu = "tpu.projects.locations.queuedResources"
    if bench.base.instance_type.startswith("tpu"):
        assert by_client == {"compute.instances.aggregatedList", f"{tpu}.delete"}
        assert {name for name, kinds in found.items() if kinds == {False}} == {
            f"{tpu}.create",
            f"{tpu}.get",
            f"{tpu}.list",
        }
    else:
        assert found.keys() - by_client == {f"{tpu}.list"}
        assert {"compute.instances.insert", "compute.instances.get", "compute.instances.delete"} <= by_client


@pytest.mark.parametrize("bench", ["gpu"], indirect=True)
def test_a_call_is_sent_once_and_no_operation_is_polled(bench: Bench) -> None:
    """The client's own retries (of reads) and its waiting for operations are off."""
    bench.fault("instances.get", "before", "http503")
    with pytest.raises(CloudError) as caught:
        bench.adapter.send(GET, GET.params)
    assert caught.value.kind is ErrorKind.UNKNOWN
    assert bench.state()["log"] == ["compute.instances.get"]

    (insert,) = [call for call in bench.plan().attempts[0].calls if call.makes]
    reply = bench.adapter.send(insert, insert.params)
    assert reply["status"] == "RUNNING"
    assert bench.state()["log"] == ["compute.instances.get", "compute.instances.insert"]


@pytest.mark.parametrize("bench", ["gpu"], indirect=True)
def test_a_name_that_the_client_does_not_know_is_not_sent(bench: Bench) -> None:
    params = {"project": "p1", "zone": "us-central1-a", "instanceResource": {"machinType": "x"}}
    insert = GET.model_copy(update={"operation": "instances.insert"})
    with pytest.raises(CloudError, match="machinType") as caught:
        bench.adapter.send(insert, params)
    assert caught.value.kind is ErrorKind.INVALID
    assert bench.state()["log"] == []


@pytest.mark.parametrize("purchase", ["spot", "on_demand"])
def test_what_the_plan_prints_is_what_the_client_sends(purchase: str) -> None:
    """Parameters to a message of the client and back: nothing is lost, renamed or added."""
    compared = set()
    for kind in ("compute", "tpu"):
        plan = build_launch_plan(kind, purchase=purchase, service_account="a@p1.iam.gserviceaccount.com")
        for call in plan.attempts[0].calls:
            method = CLIENT_METHODS.get(f"{call.service}.{call.operation}")
            if method:
                message = _message(_request_class(method), call.params)
                assert _plain(message) == call.params
                compared.add(call.operation)
    assert "instances.insert" in compared


def _request_class(method: Any) -> Any:
    import importlib

    package, *_, request = method
    return getattr(importlib.import_module(f"google.cloud.{package}"), request)


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("reset", ErrorKind.UNKNOWN),
        ("garbage", ErrorKind.UNKNOWN),
        ("http500", ErrorKind.UNKNOWN),
        ("page", ErrorKind.UNKNOWN),
        ("list", ErrorKind.UNKNOWN),
        ("throttle", ErrorKind.THROTTLED),
        ("throttle403", ErrorKind.THROTTLED),
        ("unauthorized", ErrorKind.CREDENTIALS),
        ("forbidden", ErrorKind.CREDENTIALS),
        ("invalid", ErrorKind.INVALID),
        ("capacity", ErrorKind.CAPACITY),
        ("quota", ErrorKind.QUOTA),
        ("not_here", ErrorKind.CAPACITY),
    ],
)
@pytest.mark.parametrize("bench", ["gpu"], indirect=True)
def test_errors_of_the_client_are_sorted(bench: Bench, how: str, kind: ErrorKind) -> None:
    """As they come through google-api-core, a proxy's page and JSON that is not Google's among them."""
    (insert,) = [call for call in bench.plan().attempts[0].calls if call.makes]
    bench.fault("instances.insert", "before", how, times=3)  # an expired token is renewed and sent again
    with pytest.raises(CloudError) as caught:
        bench.adapter.send(insert, insert.params)
    assert caught.value.kind is kind


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("The resource 'projects/p1/zones/us-central1-a/instances/7' was not found", ErrorKind.ABSENT),
        ("The resource 'projects/p1/zones/us-central1-a' was not found", ErrorKind.INVALID),
        ("The resource 'projects/p1' was not found", ErrorKind.INVALID),
    ],
)
def test_a_place_that_is_not_found_says_nothing_of_its_machines(message: str, kind: ErrorKind) -> None:
    """Otherwise `stop` would call a machine gone because its project was misspelt."""
    body = {"error": {"code": 404, "message": message, "errors": [{"reason": "notFound"}]}}
    assert parse_error_response(404, body, makes=False).kind is kind


def test_credentials_that_cannot_be_read_are_said_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuplan.launch.clouds.google.calls import GoogleAccess

    key = tmp_path / "key.json"
    key.write_text(json.dumps({"type": "service_account"}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    with pytest.raises(CloudError) as caught:
        GoogleAccess().credentials()
    assert caught.value.kind is ErrorKind.CREDENTIALS


def test_endpoints_are_googles_unless_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", raising=False)
    assert endpoint("compute") == "https://compute.googleapis.com/compute/v1/"
