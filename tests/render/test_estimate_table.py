"""The table of an estimate: its offers, columns, marks and cells, by hand."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from factories import FakePredictor, make_accelerator, make_offer, make_selection, make_workload
from gpuplan.offers.refresh.quotas import QuotaCheck
from gpuplan.offers.rows import Accelerator
from gpuplan.plan.cost_terms import USD, Currency
from gpuplan.plan.estimate import Estimate
from gpuplan.plan.estimate_workload import estimate_workload
from gpuplan.plan.memory import MemoryVerdict
from gpuplan.plan.offer_estimate import BestBatch
from gpuplan.plan.question import Question
from gpuplan.plan.select import Filters
from gpuplan.predict.sharding import Sharding
from gpuplan.render.estimate_table import (
    add_best_batch_column,
    build_table_columns,
    build_table_rows,
    format_memory,
    format_phases,
    format_title,
    select_shown_offers,
)
from gpuplan.units import GIB, Interval

HOUR = Interval(low=1800.0, mid=3600.0, high=7200.0)
EURO = Currency(code="EUR", per_usd=Decimal(2))


def ask(*accelerators: Accelerator, work: dict[str, Any] | None = None, **filters: Any) -> Estimate:
    """Estimate on one offer of each accelerator, the first at $1 an hour, each further one a dollar more."""
    offers = [
        (make_offer(one.name, usd_per_hour=Decimal(usd), instance_type=one.name), one)
        for usd, one in enumerate(accelerators, start=1)
    ]
    return estimate_workload(
        make_workload(**work or {}),
        selection=make_selection(*offers),
        predictor=FakePredictor(),
        question=Question(filters=Filters(**filters)),
    )


TWENTY = [make_accelerator(f"GPU{number:02}") for number in range(20)]


def test_twelve_kinds_are_shown() -> None:
    """Of twenty equally fast ones, the twelve cheapest."""
    shown, left_out = select_shown_offers(ask(*TWENTY), show_all=False)

    assert [one.offer.accelerator for one in shown] == [one.name for one in TWENTY[:12]]
    assert left_out == "Shown: 12 of 20 offers, 20 kinds; more: --all, --explain."


@pytest.mark.parametrize(
    ("names", "sizes", "places"),
    [
        (3, 8, [*range(11), 16]),
        (11, 2, [0, 1, *range(2, 22, 2)]),
        (12, 2, [*range(0, 24, 2)]),
        (13, 2, [*range(0, 26, 2)]),
    ],
)
def test_every_accelerator_that_was_asked_for_has_a_row_of_the_twelve(
    names: int, sizes: int, places: list[int]
) -> None:
    """Each at several numbers of devices that share a batch, equally fast and ever dearer; the first is picked.

    By hand: three names leave 12 - 1 - 2 = 9 further rows, eleven leave one, twelve and more none.
    """
    kinds = [(one, devices) for one in TWENTY[:names] for devices in range(1, sizes + 1)]
    offers = [
        (make_offer(one.name, devices=float(devices), usd_per_hour=Decimal(usd)), one)
        for usd, (one, devices) in enumerate(kinds, start=1)
    ]
    answer = estimate_workload(
        make_workload(),
        selection=make_selection(*offers),
        predictor=FakePredictor(),
        question=Question(
            filters=Filters(accelerators=tuple(one.name for one in TWENTY[:names])), scaling="strong"
        ),
        resized=lambda batch_size: make_workload(batch_size=batch_size),
    )
    shown, _ = select_shown_offers(answer, show_all=False)

    assert [int(one.offer.usd_per_hour or 0) - 1 for one in shown] == places


def test_all_offers_are_shown_once_and_the_picked_first() -> None:
    """The cheapest is the first of the table, the fastest the fourth in order of cost."""
    fast = make_accelerator("Fast", tflop_per_s=3.0)
    shown, left_out = select_shown_offers(ask(*TWENTY[:3], fast), show_all=True)

    assert [one.offer.accelerator for one in shown] == ["GPU00", "Fast", "GPU01", "GPU02"]
    assert left_out == "Shown: all 4 offers."


SMALL = [make_accelerator(f"Small{number}", memory_gib=1.0) for number in range(3)]
UNKNOWN = [make_accelerator(f"Unknown{number}", tflop_per_s=None) for number in range(2)]


def test_what_cannot_run_is_counted_and_not_shown() -> None:
    """One that can, three that are too small and two of no known time; without the first, all are shown."""
    shown, left_out = select_shown_offers(ask(TWENTY[0], *SMALL, *UNKNOWN), show_all=False)
    assert [one.offer.accelerator for one in shown] == ["GPU00"]
    assert left_out == (
        "Shown: 1 of 6 offers, 6 kinds; 3 too small for this batch size; 2 without a known time; "
        "more: --all, --explain."
    )

    shown, _ = select_shown_offers(ask(*SMALL, *UNKNOWN), show_all=False)
    assert len(shown) == 5


def change_devices(estimate: Estimate, **changes: Any) -> Estimate:
    """Return an estimate of changed devices."""
    offers = [replace(one, device_estimate=replace(one.device_estimate, **changes)) for one in estimate.offers]
    return replace(estimate, offers=tuple(offers))


def test_other_reasons_are_counted_and_told() -> None:
    """Two kinds on which Keras does not run."""
    answer = ask(*TWENTY[:2])

    assert (
        "; 2 not supported by Keras 3;"
        in select_shown_offers(change_devices(answer, runs=False), show_all=False)[1]
    )
    for runs in (True, None):
        assert "Keras" not in select_shown_offers(change_devices(answer, runs=runs), show_all=False)[1]


@pytest.mark.parametrize(("growth", "count"), [(16, 0), (17, 1)])
def test_a_batch_grown_over_sixteen_times_is_counted_and_marked(growth: int, count: int) -> None:
    """Sixteen times the batch may be recommended, seventeen may not."""
    answer = ask(TWENTY[0])
    answer = change_devices(answer, run=replace(answer.offers[0].device_estimate.run, batch_growth=growth))
    clause = "; 1 not recommended (over 16 times the batch);"

    assert (clause in select_shown_offers(answer, show_all=False)[1]) == bool(count)
    assert marks(
        replace(answer, decision=replace(answer.decision, recommended=None, cheapest_paid=None, fastest_paid=None))
    ) == ["batch ×17" if count else ""]


def test_a_refused_offer_is_marked() -> None:
    """By the quota of the account, which also is why it is no pick."""
    answer = ask(TWENTY[0])
    (one,) = answer.offers
    quota = QuotaCheck(state="too_small", why="no quota", link="https://form")
    refused = replace(one, offer=make_offer("T4"), selected=one.selected._replace(quota=quota))

    assert [row["mark"] for row in build_table_rows(answer, [one, refused])] == ["take", "no quota"]


@pytest.mark.parametrize(
    ("retired", "clause"),
    [(False, "; no offer of K80, M60 (without --retired)"), (True, "; no offer of K80, M60")],
)
def test_accelerators_without_an_offer_are_named(retired: bool, clause: str) -> None:
    """With the flag that might add some, unless it was given."""
    answer = replace(ask(TWENTY[0], include_retired=retired), unmatched=("K80", "M60"))

    assert select_shown_offers(answer, show_all=True)[1] == f"Shown: all 1 offers{clause}."
    assert f"1 kinds{clause}; more:" in select_shown_offers(answer, show_all=False)[1]


def marks(estimate: Estimate) -> list[str | None]:
    """Return the marks of all offers, in order."""
    return [row["mark"] for row in build_table_rows(estimate, list(estimate.offers))]


@pytest.mark.parametrize("work", [{}, {"samples": None, "epochs": None, "steps": None}], ids=["run", "samples"])
@pytest.mark.parametrize(("tflop_per_s", "mark"), [(0.5, "paid"), (1.0, "paid"), (2.0, "fastest")])
def test_a_paid_offer_is_the_fastest_where_no_free_one_is_as_fast(
    work: dict[str, Any], tflop_per_s: float, mark: str
) -> None:
    """Beside a free offer of 1 TFLOP/s, by the time of the run or by samples per second."""
    free, paid = make_accelerator("Free"), make_accelerator("Paid", tflop_per_s=tflop_per_s)
    answer = estimate_workload(
        make_workload(**work),
        selection=make_selection((make_offer("Free", usd_per_hour=Decimal(0)), free), (make_offer("Paid"), paid)),
        predictor=FakePredictor(),
        question=Question(),
    )
    assert marks(answer) == ["take", mark]


def keys(width: int, *, steps: int | None = 1, served: bool = False, **options: str) -> str:
    """Return the keys of the columns at a width, after the three that always come first."""
    columns = build_table_columns(make_head(steps=steps, served=served, **options), width)
    return " ".join(column.key for column in columns)


def make_head(
    *, steps: int | None = 1, served: bool = False, currency: Currency = USD, offers: Any = (), **options: Any
) -> Any:
    """Return what the columns depend on."""
    return SimpleNamespace(
        terms=SimpleNamespace(currency=currency),
        workload=SimpleNamespace(steps=steps),
        has_serving=served,
        options=options,
        offers=offers,
    )


def test_columns_of_a_run_by_width() -> None:
    """The range of the time from 120 characters, everything from 150; layouts where they were asked for."""
    head = "mark device offer region price"

    assert keys(119) == f"{head} time cost"
    assert keys(120) == keys(149) == f"{head} time_range cost"
    assert keys(150) == f"{head} step time_range cost limiter basis"
    assert keys(119, shard="none") == keys(119)
    assert keys(119, shard="fsdp") == "mark device shard offer region price time cost"


def test_columns_of_predictions_and_of_an_unknown_length_by_width() -> None:
    """A latency from 100 characters; rate and price of a million instead of the run's, beside them from 150."""
    head = "mark device offer region price"

    assert keys(99, served=True) == keys(149, steps=None) == f"{head} rate per_million"
    assert keys(100, served=True) == keys(149, served=True) == f"{head} latency rate per_million"
    assert keys(150, served=True) == f"{head} latency rate per_million time_range cost limiter basis"
    assert keys(150, steps=None) == f"{head} step rate per_million limiter basis"


@pytest.mark.parametrize(
    ("width", "device", "offer"),
    [(89, 13, 19), (90, 18, 19), (99, 18, 19), (100, 18, 25), (149, 18, 25), (150, 18, 34)],
)
def test_names_have_the_room_that_the_width_leaves(width: int, device: int, offer: int) -> None:
    """The longest names of accelerators, offers and regions [characters]."""
    by_key = {column.key: column.format for column in build_table_columns(make_head(), width)}

    lengths = [len(cut("x" * 60)) for key in ("device", "offer", "region") if (cut := by_key[key])]
    assert lengths == [device, offer, 15]


def test_headers_name_the_currency() -> None:
    """A dollar sign, or the code."""
    found = {
        code.code: [column.header for column in build_table_columns(make_head(currency=code), 150)]
        for code in (USD, EURO)
    }

    assert "run $" in found["USD"]
    assert "run EUR" in found["EUR"]


def test_a_layout_has_its_column_where_one_offer_has_one() -> None:
    """With `--fit` only then."""
    plain, again = ask(TWENTY[0]).offers[0], change_devices(ask(TWENTY[0]), recomputed=True).offers[0]

    columns = build_table_columns(make_head(fit=True, shard="fsdp", offers=[plain, again]), 80)
    assert [column.header for column in columns if column.key == "shard"] == ["layout"]
    assert not [
        one
        for one in build_table_columns(make_head(fit=True, shard="fsdp", offers=[plain]), 80)
        if one.key == "shard"
    ]


def test_the_best_batch_takes_the_room_of_other_columns() -> None:
    """Of region and price below 150 characters; else of limit, basis and step."""

    def added(width: int) -> str:
        columns = add_best_batch_column(build_table_columns(make_head(), width), width)
        return " ".join(column.key for column in columns)

    assert added(149) == "mark device offer time_range cost best_batch"
    assert added(150) == "mark device offer region price time_range cost best_batch"


def cells(currency: Currency = USD, **changes: Any) -> dict[str, str | None]:
    """Return the cells of an offer of 3,600 steps of a second at $1 an hour, with other values of its devices."""
    answer = ask(TWENTY[0])
    one = change_devices(answer, **changes).offers[0] if changes else answer.offers[0]
    terms = replace(answer.terms, currency=currency)
    return build_table_rows(replace(answer, terms=terms), [one])[0]


def test_cells_of_a_run_by_hand() -> None:
    """A step of 1 s (0.8 to 1.5) and batches of 32: 3,600 s (2,880 to 5,400), 21 to 40 samples a second."""
    found = cells()

    assert (found["time"], found["time_range"]) == ("60 min", "60 min (48–90)")
    assert (found["cost"], cells(EURO)["cost"]) == ("1.00 (0.8–1.5)", "2.00 (1.6–3.0)")
    assert (found["step"], found["rate"]) == ("800–1,500", "21–40")
    assert (found["latency"], found["best_batch"], found["shard"]) == (None, None, "none")


def test_a_device_that_keras_does_not_run_on_has_no_times() -> None:
    """Only where that is known: True and None are as before."""
    assert [cells(runs=False)[key] for key in ("time", "time_range", "rate")] == ["no Keras 3"] * 3
    assert cells(runs=True) == cells(runs=None) == cells()


@pytest.mark.parametrize(("largest", "cost"), [(8, "batch ≤ 8"), (0, "any batch"), (None, "any batch")])
def test_a_step_that_does_not_fit_has_the_largest_batch_instead(largest: int | None, cost: str) -> None:
    """Zero: not even one sample fits."""
    memory = MemoryVerdict(needed_bytes=3 * GIB, available_bytes=GIB, fits=False, largest_batch_size=largest)
    found = cells(memory=memory)

    assert [found[key] for key in ("time", "time_range", "rate")] == ["too big"] * 3
    assert [found[key] for key in ("cost", "per_million")] == [cost] * 2


@pytest.mark.parametrize(
    ("sharding", "passes", "recomputed", "text"),
    [
        (Sharding.NONE, 1, False, "none"),
        (Sharding.NONE, 1, True, "remat"),
        (Sharding.NONE, 2, False, "2 passes"),
        (Sharding.FSDP, 4, True, "fsdp over 1, 4 passes, remat"),
    ],
)
def test_a_layout_tells_parts_passes_and_recomputation(
    sharding: Sharding, passes: int, recomputed: bool, text: str
) -> None:
    """One pass and kept activations are not told of."""
    assert cells(sharding=sharding, passes=passes, recomputed=recomputed)["shard"] == text


def test_a_best_batch_by_hand() -> None:
    """An hour for $1.50, which is 3.00 in a currency of two to the dollar; what is unknown is left out."""
    one = ask(TWENTY[0]).offers[0]
    step = Interval(low=0.5, mid=1.0, high=2.0)
    best = BestBatch(
        batch_size=64,
        step_time_s=step,
        run_time_s=HOUR,
        cost_usd={"low": "1", "mid": "1.5", "high": "2"},
        speedup=1.2,
    )

    def text(found: BestBatch, currency: Currency = USD) -> str | None:
        answer = ask(TWENTY[0])
        answer = replace(answer, terms=replace(answer.terms, currency=currency))
        return build_table_rows(answer, [replace(one, best_batch=found)])[0]["best_batch"]

    assert (text(best), text(best, EURO)) == ("64: 60 min, 1.50", "64: 60 min, 3.00")
    assert text(replace(best, run_time_s=None, cost_usd=None)) == "64"


def test_prices_are_marked_as_spot_and_as_derived() -> None:
    """`s` and `~`; none for an unknown price, and $0 for a run that costs nothing."""
    offers = [
        make_offer("GPU00"),
        make_offer("GPU00", purchase="spot", usd_per_hour=Decimal("0.5"), estimated=True),
        make_offer("GPU00", usd_per_hour=None),
        make_offer("GPU00", usd_per_hour=Decimal(0)),
    ]
    answer = estimate_workload(
        make_workload(),
        selection=make_selection(*((one, TWENTY[0]) for one in offers)),
        predictor=FakePredictor(),
        question=Question(),
    )
    rows = build_table_rows(answer, list(answer.offers))

    assert [(row["price"], row["cost"]) for row in rows] == [
        ("0", "0"), ("~0.50s", "0.50 (0.4–0.75)"), ("1.00", "1.00 (0.8–1.5)"), (None, None),
    ]  # fmt: skip


def test_memory_is_told_in_gib() -> None:
    """3 of 16 GiB; nothing where the device's memory is unknown."""

    def told(**memory: Any) -> str | None:
        verdict = MemoryVerdict(
            **{
                "needed_bytes": 3 * GIB,
                "available_bytes": 16 * GIB,
                "fits": True,
                "largest_batch_size": 9,
                **memory,
            }
        )
        one: Any = SimpleNamespace(device_estimate=SimpleNamespace(memory=verdict))
        return format_memory(one)

    assert told() == "3.0 of 16 GiB"
    assert told(available_bytes=None, fits=None) is None


def phase(epochs: int | None, *, times: int = 1, trained: int = 8, passes: Any = ()) -> dict[str, Any]:
    """Return an entry of `phases[]` of a model of eight parameters."""
    return {"epochs": epochs, "times": times, "trainable_parameters": trained, "parameters": 8, "passes": passes}


def test_four_phases_are_told_and_the_others_counted() -> None:
    """One epoch is no epochs, an unknown length is said to be one, and a thousand has its comma."""
    phases = [phase(1), phase(2, trained=3), phase(None, times=3), phase(1000)]
    told = (
        "phase 1: 1 epoch, all parameters trained; phase 2: 2 epochs, 3 of 8 parameters trained; "
        "phase 3: 3 times unknown length, all parameters trained; phase 4: 1,000 epochs, all parameters trained"
    )

    assert format_phases(phases[:2]) == told[: told.index("; phase 3")]
    assert format_phases(phases) == told
    assert format_phases([*phases, phase(5)]) == f"{told}; and 1 more"
    assert format_phases([*phases, phase(5), phase(6)]) == f"{told}; and 2 more"


def test_one_phase_is_told_where_it_is_no_single_fit() -> None:
    """Twice, or with predictions after it."""
    predict = {"kind": "predict", "samples": 5000, "calls": 2}

    assert [format_phases(one) for one in ([], [phase(3)], [phase(3, times=2)])] == ["", "", "2 times 3 epochs"]
    assert format_phases([phase(3, passes=[predict])]) == "one fit(), then predict() of 5,000 samples 2 times"
    assert format_phases([phase(3, times=2, passes=[{**predict, "calls": 1}])]) == (
        "2 times 3 epochs, then predict() of 5,000 samples"
    )


@pytest.mark.parametrize(
    ("work", "length"),
    [
        ({}, "3,200 samples × 36 epochs"),
        ({"steps": None, "samples": None}, "run length unknown"),
        ({"samples": None}, "3,600 steps"),
        ({"epochs": None}, "3,600 steps"),
        ({"mode": "infer", "epochs": 1}, "3,200 predictions"),
        ({"mode": "infer", "epochs": 2}, "3,200 samples × 2 epochs"),
        ({"epochs": 1}, "3,200 samples × 1 epochs"),
        ({"tokens_per_sample": 1024}, "3,200 samples × 36 epochs · 1,024 tokens a sample"),
    ],
)
def test_a_title_ends_with_the_length_of_the_run(work: dict[str, Any], length: str) -> None:
    """Samples and epochs, steps, or predictions."""
    answer = replace(ask(TWENTY[0]), workload=make_workload(**work))

    assert (
        format_title(answer) == f"made-up.json · batch 32 · float32 · 67.1 M parameters · 0 FLOP a step · {length}"
    )
