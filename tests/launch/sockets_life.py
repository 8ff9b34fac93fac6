"""The life of a run at any provider on a server of `cloud_server`; each provider's own tests import it."""

from __future__ import annotations

from itertools import product

import pytest
from gpuplan.errors import CredentialsError
from gpuplan.launch.core.error_messages import Failures
from gpuplan.launch.listing import listed
from launch.bench_on_sockets import Bench, KilledError

LOST = ("reset", "garbage", "http500", "http503", "throttle")


def test_the_whole_life_of_a_run(bench: Bench) -> None:
    """Plan, apply, ps, stop: one machine by the cloud's own listing, then none; no request broke the contract."""
    bench.launcher.launch(bench.plan())
    (billed,) = bench.alive()
    assert billed["tags"]["gpuplan-owner"] == "me"
    (machine,) = bench.adapter.machines([bench.base.region]).machines
    history = bench.launcher.ledger.run("r1").history()
    (row,) = listed(
        [history], {bench.provider: bench.adapter}, regions=None, now=bench.clock.now(), failures=Failures()
    )
    assert (row.state, row.in_ledger, row.run) == ("running", True, "r1")
    assert machine.purchase == bench.base.purchase
    assert bench.adapter.machines(["nowhere"]).machines == ()

    bench.launcher.stop_run("r1")

    assert bench.alive() == []
    assert bench.adapter.machines(None).machines == ()
    assert bench.state()["violations"] == []


def test_a_later_process_ends_an_old_machine_without_waiting(bench: Bench) -> None:
    """Ten minutes old: that the cloud no longer knows it means that it is gone, not that it is not visible yet."""
    bench.launcher.launch(bench.plan())
    bench.server.control(advance_s=600.0)
    bench.restart()
    before_s = bench.clock.elapsed_s
    bench.launcher.stop_run("r1")

    assert bench.alive() == []
    assert bench.clock.elapsed_s - before_s < bench.adapter.visibility_s


def test_a_lost_answer_makes_no_second_machine(bench: Bench) -> None:
    """The same request id goes out again, whether or not the first was acted on."""
    for number, (when, how) in enumerate(product(("before", "after"), LOST)):
        bench.fault(bench.create, when, how)
        bench.launcher.launch(bench.plan(run=f"lost{number}"))

        assert len(bench.state()["meter"]) == number + 1


def test_a_machine_nobody_answered_for_is_adopted(bench: Bench) -> None:
    """All answers are lost; it is found by its tags, and its cap is read back as ever."""
    bench.fault(bench.create, "after", "reset", times=3)
    bench.launcher.launch(bench.plan())

    assert "adopted" in [event.event for event in bench.events]
    assert len(bench.state()["meter"]) == 1


def test_no_rights_is_said_as_such(bench: Bench) -> None:
    """No machine was made, and none is tried elsewhere."""
    bench.fault(bench.create, "before", "forbidden", times=9)
    with pytest.raises(CredentialsError, match=r"nothing was made|there is no machine"):
        bench.launcher.launch(bench.plan())
    assert bench.state()["meter"] == []


def test_a_kill_at_any_call_ends_in_one_machine_or_none(bench: Bench) -> None:
    """Killed before and after each call is sent; the same command again brings up exactly one, stop ends it."""
    calls = bench.plan().attempts[0].calls
    machine = next(position for position, call in enumerate(calls) if call.makes == "machine")
    for when in ("before", "after"):
        for position in range(machine, len(calls)):
            run = f"k{position}{when}"
            bench.kill_at, bench.kill_when = position, when
            with pytest.raises(KilledError):
                bench.launcher.launch(bench.plan(run=run))
            bench.restart()
            bench.launcher.launch(bench.plan(run=run))
            assert len([one for one in bench.alive() if one["tags"]["gpuplan-run"] == run]) == 1
            bench.launcher.stop_run(run)
    assert bench.alive() == []
