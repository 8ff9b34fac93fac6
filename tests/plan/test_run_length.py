"""Number of steps of a run on one and several devices."""

from __future__ import annotations

import pytest
from factories import make_product, make_workload
from gpuplan.plan.cost_terms import CostTerms
from gpuplan.plan.device_estimate import RunLength, compute_run_length, with_total_epochs
from gpuplan.plan.timeline import TimelineBuilder, compute_forward_share, count_sessions
from gpuplan.units import GIB
from hypothesis import given
from hypothesis import strategies as st


def weak(*, devices: float, **facts: int | None) -> RunLength:
    """Return a run on devices that each keep their batch."""
    return compute_run_length(make_workload(**facts), devices, "weak")


counts = st.integers(min_value=1, max_value=10**7)
devices = st.sampled_from([1 / 6, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 256.0])


def test_mnist_on_one_device() -> None:
    """Closed form, keras.io/examples/vision/mnist_convnet: 54,000 samples, batch 128, 15 epochs: 422 x 15."""
    run = weak(batch_size=128, samples=54_000, epochs=15, steps=6330, devices=1)

    assert (run.steps, run.global_batch_size, run.note) == (422 * 15, 128, "")


def test_mnist_on_eight_devices_has_a_global_batch_of_1024() -> None:
    """Closed form: ceil(54,000 / 1,024) = 53 steps an epoch, each device keeping its 128 samples."""
    run = weak(batch_size=128, samples=54_000, epochs=15, steps=6330, devices=8)

    assert (run.steps, run.global_batch_size) == (53 * 15, 1024)


def test_steps_alone_are_shared_among_the_devices() -> None:
    """Closed form: 1,001 steps on one device are 251 on four, and the result says so."""
    run = weak(batch_size=32, samples=None, epochs=None, steps=1001, devices=4)

    assert run.steps == 251
    assert run.note == "1001 steps on one device are 251 on 4: the same number of samples"


def test_steps_that_disagree_with_the_epochs_win() -> None:
    """A script of 3 epochs with `--steps 100`: the run has 100 steps, not 3 epochs."""
    run = weak(batch_size=10, samples=1000, epochs=3, steps=100, devices=2)

    assert run.steps == 50


@pytest.mark.parametrize(("samples", "epochs"), [(None, None), (1000, None), (None, 5)])
def test_a_run_of_unknown_length_has_no_steps(samples: int | None, epochs: int | None) -> None:
    """Unknown is None, never 0 and never one epoch."""
    assert weak(batch_size=1, samples=samples, epochs=epochs, steps=None, devices=1).steps is None


def test_a_share_of_a_gpu_runs_one_copy() -> None:
    """A sixth of an A10 is one device with its whole batch."""
    run = weak(batch_size=32, samples=320, epochs=1, steps=10, devices=1 / 6)

    assert (run.replicas, run.steps) == (1, 10)


@given(samples=counts, epochs=st.integers(1, 100), batch_size=st.integers(1, 4096), count=devices)
def test_every_sample_is_seen_and_no_step_is_empty(
    samples: int, epochs: int, batch_size: int, count: float
) -> None:
    """Law: the steps of an epoch hold all its samples, and one step fewer would not."""
    run = weak(batch_size=batch_size, samples=samples, epochs=epochs, steps=None, devices=count)

    assert run.steps is not None
    steps_an_epoch = run.steps // epochs
    assert run.steps == steps_an_epoch * epochs
    assert (steps_an_epoch - 1) * run.global_batch_size < samples <= steps_an_epoch * run.global_batch_size


@given(steps=counts, few=st.sampled_from([1.0, 2.0, 4.0]))
def test_more_devices_never_need_more_steps(steps: int, few: float) -> None:
    """Law: twice the devices, at most as many steps."""
    fewer = weak(batch_size=1, samples=None, epochs=None, steps=steps, devices=few)
    more = weak(batch_size=1, samples=None, epochs=None, steps=steps, devices=2 * few)

    assert fewer.steps is not None
    assert more.steps is not None
    assert more.steps <= fewer.steps <= 2 * more.steps


def test_phases_share_other_epochs_as_before() -> None:
    """By hand: of 4 and 36 epochs in 400 and 3,600 steps, 20 are 2 and 18 in 200 and 1,800; unknown stays so."""
    first = make_workload(epochs=4, steps=400, fit_call=0)
    both = make_workload(fit_call=1, further=(first,))

    found = with_total_epochs(both, 20).phases
    assert [(one.epochs, one.steps) for one in found] == [(2, 200), (18, 1800)]
    assert with_total_epochs(both, 40) is both
    unknown = with_total_epochs(make_workload(steps=None), 7)
    assert (unknown.epochs, unknown.steps) == (7, None)
    assert (with_total_epochs(make_workload(), 5).steps, with_total_epochs(make_workload(steps=7), 5).steps) == (
        500,
        1,
    )


@pytest.mark.parametrize(
    ("work_s", "preparation_s", "session_s", "sessions"),
    [(90.0, 10.0, 100.0, 1), (91.0, 10.0, 100.0, 2), (180.0, 10.0, 100.0, 2), (181.0, 10.0, 100.0, 3),
     (100.0, 99.0, 100.0, 20), (1e9, 10.0, None, 1)],
)  # fmt: skip
def test_sessions_by_hand(work_s: float, preparation_s: float, session_s: float | None, sessions: int) -> None:
    """Each has 90 s of work beside its preparation; at least 5 % of it."""
    assert count_sessions(work_s, preparation_s=preparation_s, session_s=session_s) == sessions


@pytest.mark.parametrize(
    ("phases", "share"),
    [
        (("forward", "backward", "backward", "update"), 0.25),
        (("forward",), 1 / 3),
        (("backward",), 1 / 3),
        ((), 1 / 3),
    ],
)
def test_the_share_of_the_forward_pass(phases: tuple[str, ...], share: float) -> None:
    """By its FLOPs where both passes have some, else a third."""
    ops = tuple(make_product(phase=phase) for phase in phases)

    assert compute_forward_share(make_workload(ops=ops)) == pytest.approx(share)


def test_the_size_of_a_checkpoint() -> None:
    """Closed form: 1/4 GiB of weights and 1/2 of optimizer, without gradients; or as given, in GB."""
    assert TimelineBuilder(make_workload(), CostTerms()).checkpoint_bytes == 0.75 * GIB
    assert TimelineBuilder(make_workload(), CostTerms(overrides={"checkpoint_gb": 2.0})).checkpoint_bytes == 2e9
