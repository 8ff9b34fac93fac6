"""Expectations of a call: with references, with a latest time, and of what exists already."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from gpuplan.launch.core.api_call import Call, CloudError, ErrorKind
from gpuplan.launch.core.clock import BackoffPolicy
from gpuplan.launch.core.ledger import Ledger
from gpuplan.launch.core.retry import CallRunner, find_unmet_expectation
from launch.fake_cloud import FakeClock

KNOWN = {"machine": {"id": "i-1", "started": "2026-11-21T12:00:00+00:00"}}
AT = {"from": "machine.started", "plus_s": 60, "format": "%Y-%m-%dT%H:%M:%S+00:00"}


@pytest.mark.parametrize(
    ("expected", "found", "holds"),
    [
        ({"$json": {"InstanceIds": [{"$ref": "machine.id"}]}}, '{"InstanceIds":["i-1"]}', True),
        ({"$json": {"InstanceIds": [{"$ref": "machine.id"}]}}, '{"InstanceIds":["i-2"]}', False),
        ({"$time": AT}, "2026-11-21T12:01:00+00:00", True),
        ({"$time": AT}, "2030-01-01T00:00:00+00:00", False),
        ({"$not_after": {"$time": AT}}, "2026-11-21T04:01:00-08:00", True),
        ({"$not_after": {"$time": AT}}, "2026-11-21T12:01:01+00:00", False),
        ({"$not_after": {"$time": AT}}, None, False),
        ({"Statement": [{"Owner": {"$ref": "machine.id"}}]}, {"Statement": [{"Owner": "i-1"}]}, True),
        ([], [], True),
        ([], ["more"], False),
        (None, "anything", True),
        (None, None, False),
    ],
)
def test_an_expectation_is_resolved_and_then_compared(expected: Any, found: Any, holds: bool) -> None:
    """References stand for what earlier calls kept; what does not hold is named with both values."""
    amiss = find_unmet_expectation({"a.b": expected}, {"a": {"b": found}}, KNOWN)

    assert (amiss == "") == holds
    assert holds or amiss.startswith(f"a.b is {found!r}, not ")


class FakeService:
    """A provider with one named thing; keeps what it was sent."""

    provider = "fake"

    def __init__(self, *answers: tuple[str, Mapping[str, Any] | CloudError]) -> None:
        self.answers = list(answers)
        self.sent: list[str] = []

    def send(self, call: Call, params: Mapping[str, Any]) -> dict[str, Any]:
        self.sent.append(call.operation)
        operation, answer = self.answers.pop(0)
        assert operation == call.operation
        if isinstance(answer, CloudError):
            raise answer
        return dict(answer)


def settled(folder: Path, service: FakeService, **more: Any) -> dict[str, Any]:
    """Settle the call that makes the thing; its reader expects it to be of the machine that was started."""
    reader = Call(
        step="thing",
        service="s",
        operation="get",
        region="here",
        params={},
        keeps={"id": "Id"},
        expects={"Of": {"$ref": "machine.id"}},
    )
    builder = Call(
        step="thing",
        service="s",
        operation="make",
        region="here",
        params={},
        keeps={"id": "Id"},
        find=reader,
        **more,
    )
    clock = FakeClock()
    log = Ledger(folder, owner="me", clock=clock).open_run("r1")
    with log.held():
        runner = CallRunner(service, log, clock, BackoffPolicy(tries=2), lambda event: None)
        return runner.settle(builder, KNOWN, number=1)


def test_what_exists_is_adopted_only_when_it_is_what_was_wanted(tmp_path: Path) -> None:
    """The same name with other content is a refusal that names the difference."""
    exists = ("make", CloudError(ErrorKind.EXISTS, "Exists", ""))

    assert settled(tmp_path, FakeService(exists, ("get", {"Id": 7, "Of": "i-1"}))) == {"id": 7}
    with pytest.raises(CloudError, match="Of is 'i-9', not 'i-1'"):
        settled(tmp_path, FakeService(exists, ("get", {"Id": 7, "Of": "i-9"})))


def test_a_thing_that_is_there_is_not_made(tmp_path: Path) -> None:
    """`find_first`: the reader is asked before; only an absent thing is made, and a denied look is a refusal."""
    there = FakeService(("get", {"Id": 7, "Of": "i-1"}))
    assert settled(tmp_path, there, find_first=True) == {"id": 7}
    assert there.sent == ["get"]

    absent = FakeService(("get", CloudError(ErrorKind.ABSENT, "NoSuchEntity", "")), ("make", {"Id": 8}))
    assert settled(tmp_path, absent, find_first=True) == {"id": 8}

    denied = FakeService(("get", CloudError(ErrorKind.CREDENTIALS, "AccessDenied", "")))
    with pytest.raises(CloudError, match="AccessDenied"):
        settled(tmp_path, denied, find_first=True)


def test_patience_waits_out_what_a_call_needs(tmp_path: Path) -> None:
    """A role that cannot be taken on yet: the call is sent again for as long as its patience lasts."""
    busy = ("make", CloudError(ErrorKind.TRANSIENT, "ValidationException", "must allow ... to assume the role"))
    service = FakeService(*[busy] * 7, ("make", {"Id": 9}))

    assert settled(tmp_path, service, patience_s=120.0) == {"id": 9}
    with pytest.raises(CloudError, match="assume"):
        settled(tmp_path, FakeService(*[busy] * 7))


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("a\n  b", "Code: a b"),
        ("", "Code"),
        ("x" * 500, f"Code: {'x' * 500}"),
        ("x" * 501, f"Code: {'x' * 500}…"),
        ("<html><style>p</style><p>Bad <b>gateway</b></p></html>", "Code: Bad gateway"),
        ("a <b> c", "Code: a <b> c"),
    ],
)
def test_what_a_cloud_says_is_one_line(message: str, line: str) -> None:
    """Of at most 500 characters; a page without its tags."""
    assert str(CloudError(ErrorKind.UNKNOWN, "Code", message)) == line
