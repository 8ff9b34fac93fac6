"""The bill: closed forms, and laws that hold for every run and price."""

from __future__ import annotations

from decimal import Decimal

import pytest
from gpuplan.plan.bill import NO_FEES, Bill, CostBasis, Fees
from gpuplan.plan.money import compute_rental_usd
from gpuplan.plan.timeline import TRAINING, Timeline, TimelinePhase
from gpuplan.units import Interval
from hypothesis import given
from hypothesis import strategies as st

NANO_USD = Decimal("1e-9")
prices = st.decimals(min_value="0.001", max_value="400", places=4)
times_s = st.floats(min_value=0.001, max_value=1e8)


def build_bill(*, train_time_s: Interval, usd_per_hour: Decimal, fees: Fees = NO_FEES) -> Bill:
    """Return the bill of a run that is nothing but its training steps."""
    training = TimelinePhase(TRAINING, train_time_s, "")
    return Bill(CostBasis(Timeline((training,), train_time_s, train_time_s), fees), usd_per_hour=usd_per_hour)


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    """Any interval of time [s]."""
    low, mid, high = sorted(draw(st.tuples(times_s, times_s, times_s)))
    return Interval(low=low, mid=mid, high=high)


def test_an_hour_costs_the_hourly_price() -> None:
    """Closed form: 3600 s at $0.526 an hour (AWS g4dn.xlarge, us-east-1) are $0.526."""
    assert compute_rental_usd(duration_s=3600.0, usd_per_hour=Decimal("0.526")) == Decimal("0.526")


def test_three_steps_a_second_for_ten_hours() -> None:
    """Closed form: 108,000 steps of 1/3 s are 10 h; at $3.06 (p3.2xlarge) that is $30.60."""
    train_time_s = Interval(low=0.3, mid=1 / 3, high=0.4).scaled(108_000)

    bill = build_bill(train_time_s=train_time_s, usd_per_hour=Decimal("3.06"))

    assert bill.total.mid == Decimal("30.6")
    assert bill.total.low == Decimal("27.54")
    assert bill.total.high == Decimal("36.72")
    assert [line.item for line in bill.lines] == ["training"]


def test_a_run_of_15_seconds_pays_the_minimum_of_a_minute() -> None:
    """Closed form: $0.60 an hour is one cent a minute; 15 s of compute, 45 s on top."""
    bill = build_bill(
        train_time_s=Interval(low=15, mid=15, high=15),
        usd_per_hour=Decimal("0.60"),
        fees=Fees(minimum_billed_s=60.0),
    )

    assert [(line.item, line.usd.mid) for line in bill.lines] == [
        ("training", Decimal("0.0025")),
        ("minimum billing of 60 s", Decimal("0.0075")),
    ]
    assert bill.total.mid == Decimal("0.01")


@given(train_time_s=intervals(), price=prices, minimum_s=st.sampled_from([0.0, 60.0, 3600.0]))
def test_lines_sum_to_the_total_exactly(train_time_s: Interval, price: Decimal, minimum_s: float) -> None:
    """Law: no rounding between the lines of a bill and its total, at any of the three bounds."""
    bill = build_bill(train_time_s=train_time_s, usd_per_hour=price, fees=Fees(minimum_billed_s=minimum_s))

    assert sum(line.usd.low for line in bill.lines) == bill.total.low
    assert sum(line.usd.mid for line in bill.lines) == bill.total.mid
    assert sum(line.usd.high for line in bill.lines) == bill.total.high


@given(train_time_s=intervals(), price=prices)
def test_twice_the_time_is_twice_the_cost(train_time_s: Interval, price: Decimal) -> None:
    """Law: up to the nano-dollar that either bill is rounded to."""
    once = build_bill(train_time_s=train_time_s, usd_per_hour=price)
    twice = build_bill(train_time_s=train_time_s.scaled(2.0), usd_per_hour=price)

    assert abs(twice.total.mid - 2 * once.total.mid) <= 2 * NANO_USD


@given(train_time_s=intervals(), price=prices, minimum_s=st.sampled_from([0.0, 60.0, 3600.0]))
def test_a_total_is_ordered_and_never_below_the_minimum(
    train_time_s: Interval, price: Decimal, minimum_s: float
) -> None:
    """Law: low <= mid <= high, and no total is below the provider's minimum charge."""
    bill: Bill = build_bill(train_time_s=train_time_s, usd_per_hour=price, fees=Fees(minimum_billed_s=minimum_s))

    assert bill.total.low <= bill.total.mid <= bill.total.high
    assert bill.total.low >= compute_rental_usd(duration_s=minimum_s, usd_per_hour=price) - 2 * NANO_USD


def test_a_machine_at_no_charge_costs_nothing() -> None:
    """Closed form: $0 an hour stays $0, minimum charge or not."""
    bill = build_bill(
        train_time_s=Interval(low=1, mid=2, high=3), usd_per_hour=Decimal(0), fees=Fees(minimum_billed_s=60)
    )

    assert bill.total.high == 0


def test_one_short_step_still_costs_something() -> None:
    """Closed form: 1 ms at $0.01 an hour is 2.8 nano-dollars, and is not rounded to nothing."""
    usd = compute_rental_usd(duration_s=0.001, usd_per_hour=Decimal("0.01"))

    assert usd == pytest.approx(Decimal("2.8e-9"), rel=Decimal("0.1"))


@given(
    price=st.decimals(min_value="0.000000001", max_value=1000, places=9),
    short_s=st.floats(min_value=1.0, max_value=1e6),
    percent=st.integers(min_value=0, max_value=30),
    minimum_s=st.sampled_from([0.0, 60.0, 3600.0]),
)
def test_the_lines_add_up_to_the_total(price: Decimal, short_s: float, percent: int, minimum_s: float) -> None:
    """Law: the texts of `bill[]` add up to the text of the total."""
    fees = Fees(
        minimum_billed_s=minimum_s,
        disk_usd_per_hour=(0.01, 0.02, 0.03),
        egress_usd=0.1,
        discount=Decimal(percent) / 100,
        tax=Decimal(percent) / 100,
    )
    time_s = Interval(low=short_s, mid=1.1 * short_s, high=1.7 * short_s)
    bill = build_bill(train_time_s=time_s, usd_per_hour=price, fees=fees)

    assert sum(Decimal(line.to_json()["usd"]) for line in bill.lines) == bill.total.mid
    assert bill.total_json() == {end: f"{usd:f}" for end, usd in bill.total._asdict().items()}
