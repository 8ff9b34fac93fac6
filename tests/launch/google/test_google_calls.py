"""Calls to Google Cloud: sent once, as printed, never polled; errors sorted as they are meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpuplan.launch.clouds.google.calls import GoogleAccess, parse_error_response
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


@pytest.mark.parametrize("bench", ["gpu"], indirect=True)
def test_a_call_is_sent_once_and_no_operation_is_polled(bench: Bench) -> None:
    """Nothing repeats a read, or waits for an operation."""
    bench.fault("instances.get", "before", "http503")
    with pytest.raises(CloudError) as caught:
        bench.adapter.send(GET, GET.params)
    assert caught.value.kind is ErrorKind.UNKNOWN
    assert bench.state()["log"] == ["compute.instances.get"]

    (insert,) = [call for call in bench.plan().attempts[0].calls if call.makes]
    reply = bench.adapter.send(insert, insert.params)
    assert reply["status"] == "RUNNING"
    assert bench.state()["log"] == ["compute.instances.get", "compute.instances.insert"]


@pytest.mark.parametrize("purchase", ["spot", "on_demand"])
@pytest.mark.parametrize("kind", ["compute", "tpu"])
def test_what_the_plan_prints_is_what_is_sent(kind: str, purchase: str) -> None:
    """Each parameter is in the path, in the query or the body, as a method of the discovery document takes it."""
    access = RecordingAccess()
    plan = build_launch_plan(kind, purchase=purchase, service_account="a@p1.iam.gserviceaccount.com")
    for call in plan.attempts[0].calls:
        access.send(call.service, call.operation, call.params)
        verb, url, asked = access.asked.pop()
        assert verb == ("POST" if call.makes else "GET")
        assert {"{", "}"} & {*url} == set()
        in_path = {name for name, value in call.params.items() if isinstance(value, str) and value in url}
        bodies = {
            name
            for name in ("body", "instanceResource")
            if name in call.params and call.params[name] == asked["json"]
        }
        assert in_path | bodies | asked["params"].keys() == call.params.keys()
    assert not access.asked


class RecordingAccess(GoogleAccess):
    """Keeps requests instead of sending them."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str, dict[str, Any]]] = []

    def exchange(self, verb: str, url: str, **asked: Any) -> dict[str, Any]:
        self.asked.append((verb, url, asked))
        return {}


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
def test_errors_are_sorted(bench: Bench, how: str, kind: ErrorKind) -> None:
    """A proxy's page and JSON that is not Google's among them."""
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
    key = tmp_path / "key.json"
    key.write_text(json.dumps({"type": "service_account"}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    with pytest.raises(CloudError) as caught:
        _ = GoogleAccess().session
    assert caught.value.kind is ErrorKind.CREDENTIALS


def test_endpoints_are_googles_unless_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", raising=False)
    assert GoogleAccess().find_endpoint("compute.v1") == "https://compute.googleapis.com/"
