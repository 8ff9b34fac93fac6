"""The columns of offers: what people read of an entry of `offers[]`, and the values of TSV, by hand."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from factories import FakePredictor, estimate_workload, make_accelerator, make_offer, make_selection, make_workload
from gpuplan.plan.cost_terms import USD, Currency
from gpuplan.plan.question import Question
from gpuplan.render.offer_columns import BOUNDS, BY_NAME, COLUMNS, VALUE_NAMES, build_values, describe_memory
from gpuplan.render.output import UNKNOWN
from gpuplan.units import GIB

EURO = Currency(code="EUR", per_usd=Decimal(2))
HOUR = {"low": 1800.0, "mid": 3600.0, "high": 7200.0}


def make_entry(**changes: Any) -> dict[str, Any]:
    """Return the entry of an offer of 3,600 steps of a second (0.8 to 1.5) at $1 an hour, with other values."""
    answer = estimate_workload(
        make_workload(),
        selection=make_selection((make_offer("T4", instance_type="gpu_1x_t4"), make_accelerator("T4"))),
        predictor=FakePredictor(),
        question=Question(),
    )
    entry = {**answer.offers[0].to_json(), "mark": "take"}
    assert changes.keys() <= entry.keys()
    return {**entry, **changes}


def read(name: str, currency: Currency = USD, **changes: Any) -> str:
    """Return the text of a column."""
    return BY_NAME[name].describe(make_entry(**changes), currency)


def test_people_read_these_columns() -> None:
    """Their headers in order, and those aligned to the right; the others are for programs only."""
    assert {column.name: column.header for column in COLUMNS if column.text or column.header} == {
        "mark": "", "machine": "machine", "instance_type": "instance", "accelerator": "accelerator",
        "region": "region", "purchase": "purchase", "layout": "layout", "usd_per_hour": "$/h",
        "step_time_s": "step ms", "run_time_s": "time", "cost_usd": "cost", "memory_bytes": "memory",
        "basis": "basis", "limiter": "limit", "samples_per_s": "samples/s",
        "usd_per_million_samples": "a million", "latency_s": "one, ms", "co2_kg": "kg CO2",
    }  # fmt: skip
    assert [column.name for column in COLUMNS if column.is_number] == [
        "usd_per_hour", "step_time_s", "run_time_s", "cost_usd", "memory_bytes", "samples_per_s",
        "usd_per_million_samples", "latency_s", "co2_kg",
    ]  # fmt: skip


def test_an_offer_by_hand() -> None:
    """A step of 1 s (0.8 to 1.5), batches of 32, $1 an hour: 3,600 s (2,880 to 5,400), 21 to 40 samples a second.

    A million samples take 31,250 s, which cost $8.68. The step needs 2.5 GiB: the model's one, the batch's one and
    half a GiB of the framework.
    """
    found = {column.name: read(column.name) for column in COLUMNS if column.text or column.header}

    assert found == {
        "mark": "take", "machine": "T4 on Lambda", "instance_type": "gpu_1x_t4", "accelerator": "T4",
        "region": "us-east-1", "purchase": "on demand", "layout": "none", "usd_per_hour": "1.00",
        "step_time_s": "800–1,500", "run_time_s": "60 min (48–90)", "cost_usd": "$1.00 (0.8–1.5)",
        "memory_bytes": "2.5 of 16 GiB", "basis": "modelled", "limiter": "compute",
        "samples_per_s": "32 (21–40)", "usd_per_million_samples": "$8.68", "latency_s": UNKNOWN, "co2_kg": UNKNOWN,
    }  # fmt: skip


def test_amounts_in_another_currency() -> None:
    """Of two to the dollar; 31,250 s are 8.6806 h, so 17.36 of it."""
    names = ("usd_per_hour", "cost_usd", "usd_per_million_samples")

    assert [read(name, EURO) for name in names] == ["2.00", "2.00 EUR (1.6–3.0)", "17.36 EUR"]


def test_unknown_values_are_a_dash() -> None:
    """Neither a time nor a price, nor what follows from them."""
    untimed = {"step_time_s": None, "run_time_s": None, "cost_usd": None}
    names = ("step_time_s", "run_time_s", "cost_usd", "samples_per_s", "usd_per_million_samples")

    assert [read(name, **untimed) for name in names] == [UNKNOWN] * 5
    assert [read(name, usd_per_hour=None) for name in ("usd_per_hour", "usd_per_million_samples")] == [UNKNOWN] * 2
    assert [read(name, basis=None, limiter=None) for name in ("basis", "limiter")] == [UNKNOWN] * 2


@pytest.mark.parametrize(
    ("usd", "text"), [("0", "free"), ("0.009", "< 1 cent"), ("0.01", "$0.01"), ("1.5", "$1.50")]
)
def test_a_cost_without_a_range(usd: str, text: str) -> None:
    """Nothing, less than a cent, and exact amounts."""
    assert read("cost_usd", cost_usd=dict.fromkeys(BOUNDS, usd)) == text


def test_prices_are_marked_as_derived() -> None:
    """`~`; 0 for what is free, where a million samples are free as well."""
    assert [read("usd_per_hour", usd_per_hour="0.5", estimated=marked) for marked in (True, False)] == [
        "~0.50", "0.50",
    ]  # fmt: skip
    assert (read("usd_per_hour", usd_per_hour="0"), read("usd_per_million_samples", usd_per_hour="0")) == (
        "0", "free",
    )  # fmt: skip


def test_names_of_offers() -> None:
    """A spot machine of several devices."""
    spot = {"provider": "aws", "devices": 2.0, "purchase": "spot"}

    assert read("machine", **spot) == "2× T4 on AWS spot"
    assert [read(name, **spot) for name in ("accelerator", "purchase")] == ["2× T4", "spot"]


def test_a_device_that_keras_does_not_run_on_has_no_times() -> None:
    """Only where that is known: True and None are as before; its cost stays."""
    names = ("run_time_s", "samples_per_s")

    assert [read(name, runs=False) for name in names] == ["not on Keras 3"] * 2
    for runs in (True, None):
        assert [read(name, runs=runs) for name in names] == ["60 min (48–90)", "32 (21–40)"]
    assert read("cost_usd", runs=False) == "$1.00 (0.8–1.5)"


@pytest.mark.parametrize(
    ("largest", "cost"), [(8, "batch ≤ 8"), (1, "batch ≤ 1"), (0, "any batch"), (None, "any batch")]
)
def test_a_step_that_does_not_fit_has_the_largest_batch_instead(largest: int | None, cost: str) -> None:
    """Zero: not even one sample fits. Whether Keras runs there makes no difference."""
    for runs in (True, False):
        misfit = {"memory_fits": False, "largest_batch_size": largest, "runs": runs}

        assert [read(name, **misfit) for name in ("run_time_s", "samples_per_s")] == ["does not fit"] * 2
        assert read("cost_usd", **misfit) == cost


def test_an_unknown_memory_is_no_misfit() -> None:
    """The time and the cost of a device whose memory is unknown are told."""
    unknown = {"memory_fits": None, "memory_available_bytes": None, "largest_batch_size": None}

    assert read("run_time_s", **unknown) == "60 min (48–90)"
    assert read("cost_usd", **unknown) == "$1.00 (0.8–1.5)"
    assert read("memory_bytes", **unknown) == UNKNOWN


def test_memory_is_told_in_gib() -> None:
    """3 of 16 GiB; nothing where one of both is unknown, or the device has none."""

    def told(needed: int | None, available: int | None) -> str | None:
        return describe_memory(make_entry(memory_bytes=needed, memory_available_bytes=available))

    assert told(3 * GIB, 16 * GIB) == "3.0 of 16 GiB"
    assert [told(None, 16 * GIB), told(3 * GIB, None), told(3 * GIB, 0)] == [None] * 3


@pytest.mark.parametrize(
    ("shard", "passes", "recomputed", "text"),
    [
        ("none", 1, False, "none"),
        ("none", 1, True, "remat"),
        ("none", 2, False, "2 passes"),
        ("fsdp", 1, False, "fsdp over 2"),
        ("fsdp", 4, True, "fsdp over 2, 4 passes, remat"),
    ],
)
def test_a_layout_tells_parts_passes_and_recomputation(
    shard: str, passes: int, recomputed: bool, text: str
) -> None:
    """One pass and kept activations are not told of."""
    layout = {"devices": 2.0, "batch_size_per_device": 32, "micro_batch_size": 32 // passes}

    assert read("layout", shard=shard, recomputed=recomputed, **layout) == text


def test_latency_and_carbon_dioxide() -> None:
    """1 to 4 ms, and 0.2 kg (0.1 to 0.5); an unknown latency is a dash."""
    latency_s = {"low": 0.001, "mid": 0.002, "high": 0.004}

    assert read("latency_s", serving={"latency_s": latency_s}) == "1.0–4.0"
    assert read("latency_s", serving={"latency_s": None}) == UNKNOWN
    assert read("co2_kg", co2_kg={"low": 0.1, "mid": 0.2, "high": 0.5}) == "0.2 (0.1–0.5)"


def test_values_of_an_entry_by_hand() -> None:
    """32 samples in 0.8 to 1.5 s; two remedies are one text; a range is three values."""
    remedies = [{"remedy": "halves"}, {"remedy": "shards"}]
    values = build_values(make_entry(memory_remedies=remedies))

    assert tuple(values) == VALUE_NAMES
    assert {name.removesuffix("_low") for name in VALUE_NAMES if name.endswith("_low")} == {
        "step_time_s", "train_time_s", "run_time_s", "cost_usd", "samples_per_s", "latency_s", "mfu",
        "tokens_per_s",
    }  # fmt: skip
    assert (values["provider"], values["region"], values["usd_per_hour"]) == ("lambda", "us-east-1", "1.0")
    assert [values[f"step_time_s_{bound}"] for bound in BOUNDS] == [0.8, 1.0, 1.5]
    assert [values[f"samples_per_s_{bound}"] for bound in BOUNDS] == [32 / 1.5, 32.0, 40.0]
    slower = build_values(make_entry(step_time_s={"low": 1.6, "mid": 2.0, "high": 4.0}))
    assert [slower[f"samples_per_s_{bound}"] for bound in BOUNDS] == [8.0, 16.0, 20.0]
    assert values["usd_per_million_samples"] == Decimal("8.680555556")
    assert [values[f"cost_usd_{bound}"] for bound in BOUNDS] == ["0.800000000", "1.000000000", "1.500000000"]
    assert values["memory_remedies"] == "halves; shards"
    assert not {"mark", "machine", "layout", "co2_kg"} & values.keys()


def test_unknown_values_of_an_entry() -> None:
    """None for each, also for the bounds of a range."""
    values = build_values(make_entry(step_time_s=None, usd_per_hour=None, run_time_s=None))
    ranges = ("step_time_s", "run_time_s", "samples_per_s", "latency_s", "tokens_per_s")
    names = ("usd_per_hour", "usd_per_million_samples", "memory_remedies")

    assert {values[f"{name}_{bound}"] for name in ranges for bound in BOUNDS} == {None}
    assert {values[name] for name in names} == {None}
    assert build_values(make_entry(usd_per_hour=None))["usd_per_million_samples"] is None
    served = build_values(make_entry(serving={"latency_s": HOUR}))
    assert [served[f"latency_s_{bound}"] for bound in BOUNDS] == [1800.0, 3600.0, 7200.0]
