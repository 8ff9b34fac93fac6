"""Parts of Google Cloud that fail, and a cloud that keeps something else than it was asked for."""

from __future__ import annotations

import pytest
from gpuplan.errors import GpuplanError
from gpuplan.launch.clouds.google.adapter import GoogleAdapter
from gpuplan.launch.core.api_call import Call, ErrorKind
from gpuplan.launch.planning import make_plan
from launch.bench_on_sockets import Bench

BUCKET = {"bucket": "gs://mine/below", "service_account": "a@p1.iam.gserviceaccount.com"}
GPU, BOTH = ["gpu"], ["gpu", "tpu"]


@pytest.mark.parametrize("bench", BOTH, indirect=True)
def test_a_zone_that_does_not_answer_hides_no_other(bench: Bench) -> None:
    """A machine in each of two zones, one of which is unreachable: the other is listed, the zone is named."""
    bench.launcher.launch(bench.plan(run="a"))
    bench.fault(bench.create, "refuse", "capacity")
    bench.launcher.launch(bench.plan(run="b"))
    bench.server.control(unreachable=["us-central1-b"])

    listing = bench.adapter.machines(None)
    assert [one.run for one in listing.machines] == ["a"]
    assert list(listing.failed) == ["us-central1-b"]
    assert listing.failed["us-central1-b"].kind is ErrorKind.UNKNOWN
    assert bench.adapter.machines(["us-east1"]).failed == {}  # not asked for


@pytest.mark.parametrize("bench", BOTH, indirect=True)
def test_a_project_that_refuses_hides_no_other(bench: Bench) -> None:
    """Both are known from launches; the right to one was taken away since."""
    bench.launcher.launch(bench.plan(run="a"))
    bench.options = {"project": "p2"}
    bench.launcher.launch(bench.plan(run="b"))
    bench.server.control(refused=["p2"])

    listing = bench.adapter.machines(None)
    assert [one.run for one in listing.machines] == ["a"]
    assert set(listing.failed) == {"Compute Engine in p2", "Cloud TPU in p2"}
    assert all(fault.kind is ErrorKind.CREDENTIALS for fault in listing.failed.values())


@pytest.mark.parametrize("bench", GPU, indirect=True)
def test_an_interface_that_is_not_enabled_has_nothing(bench: Bench) -> None:
    """Cloud TPU was never switched on in the project: no failure. Any other refusal is one."""
    bench.launcher.launch(bench.plan())
    bench.fault("queuedResources.list", "before", "disabled")
    assert bench.adapter.machines(None).failed == {}
    bench.fault("queuedResources.list", "before", "forbidden")
    listing = bench.adapter.machines(None)
    assert list(listing.failed) == ["Cloud TPU in p1"]
    assert len(listing.machines) == 1


@pytest.mark.parametrize(
    ("bench", "how", "named"),
    [
        ("gpu", "longer", "maxRunDuration.seconds is '999999'"),
        ("gpu", "stop", "instanceTerminationAction is 'STOP'"),
        ("gpu", "bought otherwise", "provisioningModel is 'RESERVATION_BOUND'"),
        ("gpu", "late", "terminationTimestamp is '2026-11-21T14:00:00"),
        ("tpu", "longer", "maxRunDuration is '999999s'"),
        ("tpu spot", "bought otherwise", "provisioningModel is 'RESERVATION_BOUND'"),
    ],
    indirect=["bench"],
)
def test_a_machine_whose_end_is_another_than_asked_for_is_ended(bench: Bench, how: str, named: str) -> None:
    """The cloud keeps another limit, action, way of buying or time: read back, and ended within minutes."""
    bench.fault(bench.create, "alter", how)
    with pytest.raises(GpuplanError, match="NotAsExpected") as caught:
        bench.launcher.launch(bench.plan())
    assert named in str(caught.value)
    assert bench.alive() == []
    assert bench.adapter.machines(None).machines == ()
    (billed,) = bench.state()["meter"]
    assert (billed["ended_s"] or 0) - (billed["started_s"] or 0) < 300


@pytest.mark.parametrize("bench", GPU, indirect=True)
def test_an_archive_whose_ledger_was_lost_is_found_again(bench: Bench) -> None:
    """Only those of gpuplan, with their owner; removing one is what is returned; an unknown bucket is named."""
    bench.options = BUCKET
    asked = bench.plan().request
    spec = asked.spec.model_copy(update={"source": f"folder:{bench.folder}"})
    plan = make_plan(asked.model_copy(update={"spec": spec}), bench.adapter)
    upload = plan.attempts[0].calls[0]
    bench.adapter.send(upload, upload.params)

    again = GoogleAdapter(state_dir=bench.folder, clock=bench.clock)
    found, failed = again.leftovers(None)
    assert failed == {}
    (one,) = found
    assert (one.kind, one.id, one.run, one.owner) == (
        "uploaded archive",
        "gs://mine/below/r1-source.tar.gz",
        "r1",
        asked.owner,
    )
    _send(again, one.undo)
    assert again.leftovers(None) == ([], {})
    bench.fault("objects.list", "before", "forbidden")
    assert list(again.leftovers(None)[1]) == ["gs://mine/below"]


def _send(adapter: GoogleAdapter, calls: tuple[Call, ...]) -> None:
    for call in calls:
        adapter.send(call, call.params)
