"""What a launch request takes, at the ends of its ranges, and what holds where nothing is said."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from gpuplan.launch.core import clock
from gpuplan.launch.core.clock import BackoffPolicy
from gpuplan.launch.core.cloud_adapter import RunOutcome
from gpuplan.launch.core.request import LaunchCandidate, LaunchRequest, RunSpec, Seconds, StopLoss, build_tags
from pydantic import ValidationError

CANDIDATE = LaunchCandidate(
    rank=1,
    instance_type="g4dn.xlarge",
    accelerator="T4",
    devices=1.0,
    region="us-east-1",
    purchase="on_demand",
    usd_per_hour=Decimal("0.526"),
    price_as_of=None,
    run_s=None,
    step_s=None,
    cap_s=120,
)
SPEC = RunSpec(script="train.py", source="git:x", packages=())
REQUEST = LaunchRequest(
    run="r1",
    owner="me",
    made_at=datetime(2026, 11, 21, 12, tzinfo=UTC),
    provider="aws",
    candidates=(CANDIDATE,),
    spec=SPEC,
)


@pytest.mark.parametrize(
    ("data", "field", "valid", "invalid"),
    [
        (CANDIDATE, "rank", (1, 10**5), (0, 10**5 + 1)),
        (CANDIDATE, "devices", (0.1, 1e5), (0.0, 1e5 + 1)),
        (CANDIDATE, "usd_per_hour", (Decimal(0), Decimal(10**6)), (Decimal("-0.01"), Decimal(10**6 + 1))),
        (CANDIDATE, "cap_s", (120, 2_592_000), (119, 2_592_001)),
        (CANDIDATE, "price_source", ("", "x" * 2000), ("x" * 2001, "a\nb")),
        (CANDIDATE, "instance_type", ("x", "x" * 100), ("", "x" * 101)),
        (Seconds(low=1.0, mid=1.0, high=1.0), "low", (0.0, 1e10), (-0.1, 1e10 + 10)),
        (StopLoss(), "steps", (1, 10**5), (0, 10**5 + 1)),
        (StopLoss(), "factor", (1.0, 1000.0), (0.9, 1000.1)),
        (SPEC, "source", ("image:", "git:" + "x" * 1996), ("git:" + "x" * 1997, "http:x")),
        (SPEC, "checkpoint_every_s", (1.0, 2_592_000.0), (0.9, 2_592_001.0)),
        (SPEC, "restarts", (0, 1000), (-1, 1001)),
        (REQUEST, "attempt", (1, 10**4), (0, 10**4 + 1)),
        (REQUEST, "candidates", ((CANDIDATE,),), ((),)),
        (REQUEST, "max_usd", (Decimal("0.01"), Decimal(10**12), None), (Decimal(0), Decimal(10**12 + 1))),
        (REQUEST, "spent_usd", (Decimal(0), Decimal(10**6)), (Decimal(-1), Decimal(10**6 + 1))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_ends_of_a_range(data: Any, field: str, valid: tuple[Any, ...], invalid: tuple[Any, ...]) -> None:
    """Both are taken; nothing beyond them is."""
    for value in (*valid, *invalid):
        with nullcontext() if value in valid else pytest.raises(ValidationError):
            assert getattr(data.changed(**{field: value}), field) == value


def test_what_holds_where_nothing_is_said() -> None:
    """A warning where the first 50 steps are off by a factor of two, a checkpoint a minute, three restarts."""
    assert StopLoss().model_dump() == {"action": "warn", "steps": 50, "factor": 2.0}
    assert (SPEC.checkpoint_every_s, SPEC.restarts, SPEC.requirements) == (60.0, 3, None)
    assert (REQUEST.attempt, REQUEST.spent_usd, REQUEST.max_usd, REQUEST.guest_cap_only) == (1, 0, None, False)
    assert (CANDIDATE.gradient_accumulation_steps, CANDIDATE.recomputed, CANDIDATE.shard) == (1, False, "none")


def test_a_price_is_tagged_in_millionths() -> None:
    """$0.526 are 526,000 of them; a name of the owner only where there is one."""
    tags = build_tags(request=REQUEST, number=2, candidate=CANDIDATE)

    assert tags == {
        "gpuplan-run": "r1",
        "gpuplan-attempt": "2",
        "gpuplan-owner": "me",
        "gpuplan-cap-s": "120",
        "gpuplan-microusd-per-hour": "526000",
    }
    named = build_tags(request=REQUEST.changed(owner_name="ann"), number=2, candidate=CANDIDATE)
    assert named == {**tags, "gpuplan-owner-name": "ann"}


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_waits_double_up_to_half_a_minute(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    """By hand, at both ends of the jitter: 1, 2, 4, 8, 16 and 30 s, or half of these."""

    def draw(low: float, high: float) -> float:
        assert (low, high) == (0.5, 1.0)
        return share

    monkeypatch.setattr(clock.random, "uniform", draw)
    waits = [BackoffPolicy().delay_s(tries) for tries in range(7)]
    assert waits == [share * wait for wait in (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0)]


def test_polls_are_five_seconds_apart_at_most() -> None:
    """By hand: 0.1, 0.2, … 3.2 and 5 s; a call is sent six times, an end is waited for ten minutes."""
    policy = BackoffPolicy()

    assert [policy.poll_delay_s(looks) for looks in (0, 1, 5, 6, 60)] == pytest.approx([0.1, 0.2, 3.2, 5.0, 5.0])
    assert (policy.tries, policy.ending_s) == (6, 600.0)


def test_of_a_long_log_the_end_is_kept() -> None:
    """The last 4,000 characters, of which those that control a terminal are removed."""
    log = f"{'a' * 10}{'b' * 3998}\x1b\n"

    assert RunOutcome(attempt=1, status="done", log=log).log == "b" * 3998 + "\n"
    assert RunOutcome(attempt=1, status="done", log="a" * 4000).log == "a" * 4000
