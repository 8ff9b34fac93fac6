"""Memory check of a step, and the largest batch size that fits."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from factories import make_workload
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.memory import (
    FRAMEWORK_RESERVE_BYTES,
    USABLE_SHARE,
    available_bytes,
    compute_batch_bytes,
    find_remedies,
    memory_note,
    memory_parts,
    memory_verdict,
)
from gpuplan.units import GIB
from gpuplan.workload.capture.load import load_workload
from gpuplan.workload.model import Memory
from gpuplan.workload.options import WorkloadOptions
from hypothesis import given
from hypothesis import strategies as st


def test_fixed_memory_leaves_room_for_eleven_samples() -> None:
    """Closed form: (16 - 0.5 reserve - 4.5 fixed) GiB / 1 GiB a sample = 11."""
    verdict = memory_verdict(fixed_bytes=9 * GIB // 2, batch_bytes=8 * GIB, batch_size=8, available_bytes=16 * GIB)

    assert FRAMEWORK_RESERVE_BYTES == GIB // 2
    assert verdict.needed_bytes == 13 * GIB
    assert verdict.fits is True
    assert verdict.largest_batch_size == 11


def test_weights_that_do_not_fit_leave_room_for_no_sample() -> None:
    """The largest batch size is 0: not even one sample fits."""
    verdict = memory_verdict(fixed_bytes=20 * GIB, batch_bytes=GIB, batch_size=1, available_bytes=16 * GIB)

    assert (verdict.fits, verdict.largest_batch_size) == (False, 0)


def test_unknown_memory_gives_no_verdict() -> None:
    """The verdict is None, not False; the memory of the step is still known."""
    verdict = memory_verdict(fixed_bytes=GIB, batch_bytes=GIB, batch_size=1, available_bytes=None)

    assert (verdict.fits, verdict.largest_batch_size) == (None, None)
    assert verdict.needed_bytes == 2 * GIB + FRAMEWORK_RESERVE_BYTES


def test_usable_memory_takes_precedence_over_the_data_sheet() -> None:
    """T4: 14.75 of 16 GiB are usable with ECC; without a known value, the default share is."""
    assert available_bytes(memory_gib=16.0, usable_gib=14.75) == int(14.75 * GIB)
    assert available_bytes(memory_gib=24.0, usable_gib=None) == int(24 * USABLE_SHARE * GIB)
    assert available_bytes(memory_gib=None, usable_gib=None) is None


def test_a_share_of_a_gpu_has_its_share_of_the_memory() -> None:
    """A third of an A10 (22.5 GiB usable) has 7.5 GiB; eight GPUs have no more each than one."""
    assert available_bytes(memory_gib=24.0, usable_gib=22.5, share=1 / 3) == int(22.5 / 3 * GIB)
    assert available_bytes(memory_gib=24.0, usable_gib=22.5, share=8.0) == int(22.5 * GIB)


sizes = st.integers(min_value=1, max_value=200 * GIB)


@given(fixed=sizes, per_sample=st.integers(1, GIB), batch_size=st.integers(1, 4096), available=sizes)
def test_a_batch_fits_if_and_only_if_it_is_not_larger_than_the_largest(
    fixed: int, per_sample: int, batch_size: int, available: int
) -> None:
    """Law: the verdict and the largest batch size never contradict each other."""
    verdict = memory_verdict(
        fixed_bytes=fixed, batch_bytes=per_sample * batch_size, batch_size=batch_size, available_bytes=available
    )

    assert verdict.largest_batch_size is not None
    assert verdict.fits == (batch_size <= verdict.largest_batch_size)


@pytest.mark.parametrize(
    ("needed_gib", "verdict"), [(8.0, "fits"), (13.3, "fits"), (15.0, "tight"), (16.5, "does not fit")]
)
def test_tight_is_within_the_error_of_the_prediction(needed_gib: float, verdict: str) -> None:
    """On 16 GiB: safe up to 16 / 1.2 = 13.3, the reserve of half a GiB included."""
    found = memory_verdict(
        fixed_bytes=0,
        batch_bytes=int(needed_gib * GIB) - FRAMEWORK_RESERVE_BYTES,
        batch_size=1,
        available_bytes=16 * GIB,
    )

    assert found.verdict == verdict
    assert found.fits is (verdict != "does not fit")


def test_parts_add_up_to_what_is_needed() -> None:
    """Weights, gradients, optimizer, other variables, batch, activations, framework."""
    workload = make_workload()
    verdict = memory_verdict(
        fixed_bytes=workload.memory.compute_fixed_bytes(compiled=True),
        batch_bytes=compute_batch_bytes(workload),
        batch_size=workload.batch_size,
        available_bytes=None,
    )

    assert sum(memory_parts(workload).values()) == verdict.needed_bytes
    assert verdict.verdict is None


def test_remedies_by_hand() -> None:
    """1 GiB of variables and 2 GiB a batch of 32 on 2.6 GiB, of which 2.6 / 1.2 = 2.17 GiB are safe.

    Accumulation keeps a quarter GiB of gradients more: 1 + 0.5 + 0.25 + 2 / n is below it from n = 8 on.
    """
    memory = replace(make_workload().memory, input_bytes=0, activation_bytes=2 * GIB)
    workload = make_workload(memory=memory)
    verdict = memory_verdict(
        fixed_bytes=memory.compute_fixed_bytes(compiled=True),
        batch_bytes=2 * GIB,
        batch_size=32,
        available_bytes=int(2.6 * GIB),
    )
    found = {one.remedy.split(" (")[0].split(":")[0]: one for one in find_remedies(workload, verdict)}

    accumulation = found["gradient accumulation"]
    assert "8 passes of 4 samples" in accumulation.remedy
    assert accumulation.fits
    assert accumulation.needed_bytes == GIB + GIB // 2 + GIB // 4 + GIB // 4
    assert found["mixed precision"].needed_bytes == GIB + GIB // 2 + GIB
    assert not found["mixed precision"].fits


def test_variables_that_do_not_fit_need_sharding() -> None:
    """No batch size helps; the number of devices is what divides the variables far enough: 61 / 13.3 = 4.6."""
    memory = replace(make_workload().memory, optimizer_bytes=60 * GIB)
    verdict = memory_verdict(
        fixed_bytes=memory.compute_fixed_bytes(compiled=True),
        batch_bytes=GIB,
        batch_size=32,
        available_bytes=16 * GIB,
    )
    (only,) = find_remedies(make_workload(memory=memory), verdict)

    assert "needs sharding over 5 devices or more" in only.remedy
    assert only.fits is False


def xla_bytes(row: dict[str, str]) -> int:
    """Return the peak that XLA states: arguments, temporaries, and results that replace no argument."""
    part = {name: int(row[f"{name}_bytes"]) for name in ("argument", "temp", "output", "alias")}
    return part["argument"] + part["temp"] + part["output"] - part["alias"]


@pytest.mark.parametrize("name", ["mlp", "tabular", "unet_3d", "cifar_cnn"])
def test_the_peak_is_near_what_xla_states_for_a_v100(name: str) -> None:
    """`memory_analysis()` of the compiled step (benchmarks/xla_memory.py): the small ones of 21."""
    recorded = csv.DictReader((files("gpuplan.profiles") / "xla_memory.csv").read_text().splitlines())
    row = next(row for row in recorded if row["model"].endswith(f":{name}"))
    options = WorkloadOptions(batch_size=int(row["batch_size"]), precision=row["precision"])
    workload = load_workload(row["model"], options=options, base=Path(__file__).parents[2])

    ours = workload.memory.compute_fixed_bytes(compiled=True) + compute_batch_bytes(workload)
    assert 1.0 / 1.2 <= ours / xla_bytes(row) <= 1.3


def test_seven_billion_parameters_fit_on_no_common_device() -> None:
    """6.7 billion float32 weights with gradients and Adam are 107 GB, whatever the batch size."""
    memory = Memory(
        parameter_bytes=26_800_000_000,
        gradient_bytes=26_800_000_000,
        optimizer_bytes=53_600_000_000,
        state_bytes=0,
        input_bytes=16_384,
        activation_bytes=20 * GIB,
    )
    rows = load_catalog().accelerators
    for name in ("T4", "V100-32GB", "A100-40GB", "A100-80GB", "H100-SXM", "L40S", "TPU-v4"):
        row = rows[name]
        verdict = memory_verdict(
            fixed_bytes=memory.compute_fixed_bytes(compiled=True),
            batch_bytes=memory.batch_bytes,
            batch_size=1,
            available_bytes=available_bytes(memory_gib=row.memory_gib, usable_gib=row.usable_gib),
        )
        assert (verdict.verdict, verdict.largest_batch_size) == ("does not fit", 0), name


def test_a_step_that_xla_recomputes_is_tight_and_says_so() -> None:
    """20 GiB of which 6 are recomputed need 14.5 of 18 GiB, which would fit with a margin otherwise."""
    verdict = memory_verdict(
        fixed_bytes=2 * GIB,
        batch_bytes=18 * GIB,
        batch_size=64,
        available_bytes=18 * GIB,
        recomputed_bytes=6 * GIB,
    )

    assert (verdict.verdict, verdict.needed_bytes) == ("tight", 14 * GIB + FRAMEWORK_RESERVE_BYTES)
    assert verdict.largest_batch_size == 64
    assert "XLA recomputes 6.0 GiB" in memory_note(verdict, ())


def test_a_step_that_fits_names_the_setting_it_needs() -> None:
    """Without one, a step that fits has no note."""
    fits = memory_verdict(fixed_bytes=GIB, batch_bytes=8 * GIB, batch_size=8, available_bytes=12 * GIB)

    assert memory_note(fits, ()) == ""
    assert memory_note(replace(fits, setting="set `SHARE=1`"), ()) == "memory: set `SHARE=1`"


def test_remedies_of_any_kind_and_their_order() -> None:
    """In GiB: 1 of variables, 0.5 of the framework and 1 of a batch of 32, of which 1/8 is its input, of 2.4.

    With a margin 2.0 fit. Half of the activations is 1.5 + 1/8 + 7/16; recomputed, they are 1.5 + 1/8 + 1/4; sums
    of the gradients are 1/4 more, beside which a quarter of the batch is 2.0 in all.
    """
    memory = replace(make_workload().memory, recomputed_activation_bytes=GIB // 4)
    workload = make_workload(memory=memory)
    verdict = memory_verdict(
        fixed_bytes=GIB, batch_bytes=GIB, batch_size=32, available_bytes=int(2.4 * GIB) + 1, recomputed_bytes=0
    )
    found = find_remedies(workload, verdict)

    assert [(one.remedy, one.needed_bytes / GIB, one.fits) for one in found] == [
        ("recomputed activations (keras.RematScope)", 1.875, True),
        ("gradient accumulation: 4 passes of 8 samples an update", 2.0, True),
        ("mixed precision (about half the activations)", 2.0625, False),
    ]
    assert [one.remedy for one in find_remedies(replace(workload, mode="infer"), verdict)] == []


@pytest.mark.parametrize(
    ("available_gib", "largest", "fits", "verdict"),
    [
        (2.4, 28, False, "does not fit"),
        (2.5, 32, True, "tight"),
        (3.0, 48, True, "fits"),
        (2.99, 47, True, "tight"),
    ],
)
def test_a_verdict_by_hand(available_gib: float, largest: int, fits: bool, verdict: str) -> None:
    """1.5 GiB and a 32nd of a GiB a sample: 2.5 GiB for 32; with a margin it takes 1.2 times as much, 3.0."""
    found = memory_verdict(
        fixed_bytes=GIB, batch_bytes=GIB, batch_size=32, available_bytes=math.ceil(available_gib * GIB)
    )

    assert (found.needed_bytes, found.largest_batch_size, found.fits) == (2.5 * GIB, largest, fits)
    assert found.verdict == verdict
