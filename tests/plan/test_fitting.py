"""What makes a step fit: smaller passes, recomputation and shared products, on made-up models of known sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories import FakePredictor, make_accelerator, make_offer, make_product, make_workload
from gpuplan.plan.device_estimate import DeviceEstimate
from gpuplan.plan.estimate_device import DeviceEstimator, FitWays, _choose_sharing_devices
from gpuplan.plan.memory import UNSHARDED
from gpuplan.plan.question import OfferContext
from gpuplan.predict.sharding import Sharding
from gpuplan.units import GIB
from gpuplan.workload.model import DeviceLayout, DividedStep, VariableBytes, Workload

# 1 GiB of variables and gradients, and 1 GiB of a batch of 32, beside 0.5 GiB of the framework
WHOLE = make_workload(ops=(make_product(), make_product(phase="update", layer="dense")))
SIZES = VariableBytes(parameters=GIB // 4, optimizer=GIB // 2, state=0)


def resize(batch_size: int, *, share: float = 1.0) -> Workload:
    """Return the workload at another batch size, with a share of its activations."""
    memory = WHOLE.memory
    smaller = replace(
        memory,
        input_bytes=memory.input_bytes * batch_size // 32,
        activation_bytes=int(memory.activation_bytes * share * batch_size / 32),
    )
    return replace(WHOLE, batch_size=batch_size, memory=smaller)


class FakeDivisions:
    """Divides the variables over devices, and counts what is traced."""

    def __init__(self, *, activation_gib: float) -> None:
        """Take the activations of one device."""
        self.traced: list[str] = []
        self._activation_bytes = int(activation_gib * GIB)

    def divide(self, devices: int) -> tuple[Workload, FitWays]:
        """Return the model for a number of devices, and its ways."""
        each = VariableBytes(parameters=SIZES.parameters // devices, optimizer=SIZES.optimizer // devices, state=0)
        step = DividedStep(
            layout=DeviceLayout(devices=devices, replicas=1, takes_all=False, whole=SIZES, each=each),
            ops=WHOLE.ops,
            memory=replace(WHOLE.memory, activation_bytes=self._activation_bytes),
            fused_attention=None,
            collectives=(),
        )

        def trace(name: str) -> Workload:
            self.traced.append(name)
            return replace(WHOLE, divided=step)

        return trace("whole"), FitWays(resized=lambda _: trace("resized"), recomputed=None)


def fit(
    memory_gib: float,
    ways: FitWays | None,
    *,
    devices: float = 4.0,
    hosts: int = 1,
    is_joined: bool = True,
    shardings: tuple[Sharding, ...] = UNSHARDED,
) -> DeviceEstimate:
    """Estimate the workload on devices of some memory, each with the whole batch, joined by known links or not."""
    offer = make_offer("T4", devices=devices, hosts=hosts)
    device = replace(
        make_accelerator("T4", memory_gib=memory_gib), pcie_gb_per_s_per_direction=16.0 if is_joined else None
    )
    estimator = DeviceEstimator(FakePredictor(), scaling="weak", ways=ways, shardings=shardings)
    return estimator.estimate(WHOLE, OfferContext(offer, device))


def changes(found: DeviceEstimate) -> tuple[str, int, bool, str | None]:
    """Return sharding, passes, recomputation and the verdict on memory."""
    return str(found.sharding), found.accumulation_steps, found.recomputed, found.memory.verdict


@pytest.mark.parametrize(
    ("memory_gib", "expected"),
    [
        (3.0, ("none", 1, False, "fits")),  # 2.5 of 3 GiB, at most 2.5 with a margin
        (2.9, ("none", 2, False, "fits")),  # 1.5 and a quarter for gradients that add up, and half a batch: 2.25
        (2.5, ("none", 4, False, "fits")),  # 1.75 and a quarter of the batch: 2.0, at most 2.08
        (2.1, ("none", 1, False, "does not fit")),  # 1.75 and one sample, at most 1.75
    ],
)
def test_a_step_is_run_in_the_fewest_passes_that_fit(
    memory_gib: float, expected: tuple[str, int, bool, str]
) -> None:
    """By hand, in GiB; what fits in no number of passes stays as it is."""
    found = fit(memory_gib, FitWays(resized=resize, recomputed=None))

    assert changes(found) == expected
    assert found.pass_batch_size == (None if expected[1] == 1 else 32 // expected[1])


@pytest.mark.parametrize("order", [1, -1])
def test_of_shardings_in_passes_the_fastest_is_taken(order: int) -> None:
    """By hand, in GiB, of 2.28, 1.9 with a margin: copies need 1.75 and 1/8, the batch in eight passes.

    A quarter of variables and sums with FSDP, weights and gradients of the others in flight beside them, is 0.69;
    with the framework and half of the batch 1.69: two passes.
    """
    shardings = (Sharding.NONE, Sharding.FSDP)[::order]
    found = fit(2.28, FitWays(resized=resize, recomputed=None), shardings=shardings)

    assert changes(found) == ("fsdp", 2, False, "fits")


def test_recomputation_is_tried_where_passes_do_not_fit() -> None:
    """Without activations a batch is 1/8 GiB: 1.625 of 2 GiB, 1.67 with a margin; 32 passes need 1.78."""
    recomputed = FitWays(resized=resize, recomputed=lambda size: resize(size, share=0.0))

    assert changes(fit(2.0, recomputed)) == ("none", 1, True, "fits")
    assert changes(fit(2.5, recomputed)) == ("none", 4, False, "fits"), "it is slower than passes"


def test_products_are_shared_where_nothing_else_fits() -> None:
    """By hand, in GiB: a quarter of the variables is 0.25, with framework, input and activations 1.125 of 1.5."""
    divisions = FakeDivisions(activation_gib=0.25)
    found = fit(1.5, FitWays(resized=resize, recomputed=None, divided=divisions.divide))

    assert changes(found) == ("tensor:4", 1, False, "fits")
    assert found.sharding == Sharding(kind="tensor", ways=4)
    assert found.memory.needed_bytes == 1.125 * GIB
    assert divisions.traced == ["whole"]


@pytest.mark.parametrize(
    ("memory_gib", "devices", "hosts", "activation_gib", "traced"),
    [
        (1.5, 4.0, 1, 0.5, ["whole", "resized"]),  # 1.375 of 1.25 with a margin
        (0.7, 4.0, 1, 0.0, []),  # 0.25 of variables and the framework are 0.75
        (1.5, 1.0, 1, 0.0, []),  # one device has nobody to share with
        (1.5, 4.0, 4, 0.0, []),  # nor have four, each in a machine of its own
    ],
)
def test_what_shared_products_do_not_help_stays_as_it_is(
    memory_gib: float, devices: float, hosts: int, activation_gib: float, traced: list[str]
) -> None:
    """The verdict is that on the step as the user wrote it, and nothing is traced without need."""
    divisions = FakeDivisions(activation_gib=activation_gib)
    ways = FitWays(resized=resize, recomputed=None, divided=divisions.divide)
    found = fit(memory_gib, ways, devices=devices, hosts=hosts)

    assert changes(found) == ("none", 1, False, "does not fit")
    assert divisions.traced == traced


def test_products_are_not_shared_over_links_of_an_unknown_rate() -> None:
    """It would fit, in a time that nobody knows."""
    ways = FitWays(resized=resize, recomputed=None, divided=FakeDivisions(activation_gib=0.25).divide)

    assert changes(fit(1.5, ways, is_joined=False)) == ("none", 1, False, "does not fit")


def test_without_ways_a_step_stays_as_it_is() -> None:
    """As it is without `--fit`."""
    assert changes(fit(1.5, None)) == ("none", 1, False, "does not fit")


@pytest.mark.parametrize(
    ("devices", "sharing"), [(1, 1), (2, 2), (3, 3), (8, 8), (9, 3), (10, 5), (11, 1), (12, 6), (16, 8), (18, 6)]
)
def test_up_to_eight_devices_of_a_machine_share_products(devices: int, sharing: int) -> None:
    """All of them, or the largest divisor of at most eight."""
    assert _choose_sharing_devices(devices) == sharing
