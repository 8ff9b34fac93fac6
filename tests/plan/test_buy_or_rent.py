"""Buying compared with renting: closed forms and laws."""

from __future__ import annotations

import pytest
from gpuplan.errors import UsageError
from gpuplan.plan.buy_or_rent import (
    WEEKS_PER_MONTH,
    OwnedMachine,
    compare_buy_rent,
    months_to_break_even,
    owning_usd,
    renting_usd,
)
from hypothesis import given
from hypothesis import strategies as st

HOURS_A_MONTH = 20.0 * WEEKS_PER_MONTH
rigs = st.builds(
    OwnedMachine,
    purchase_usd=st.floats(100, 1e5),
    value_lost_per_year=st.floats(0, 0.9),
    power_w=st.floats(50, 5000),
    electricity_usd_per_kwh=st.floats(0, 1),
    hours_a_week=st.floats(1, 168),
)
prices = st.floats(0.05, 50)


def test_a_machine_that_keeps_its_value_by_hand() -> None:
    """Closed form: without loss of value only electricity costs: 0.5 kW at $0.20 is $0.10 an hour."""
    rig = OwnedMachine(purchase_usd=2000, value_lost_per_year=0.0, power_w=500, electricity_usd_per_kwh=0.2)

    assert owning_usd(rig, months=1.0) == pytest.approx(0.1 * HOURS_A_MONTH)
    assert months_to_break_even(rig, usd_per_hour=0.11) == 0.0
    assert months_to_break_even(rig, usd_per_hour=0.09) is None


def test_break_even_by_hand() -> None:
    """At the break-even month, both cost the same."""
    rig = OwnedMachine(purchase_usd=2000, power_w=500)
    months = months_to_break_even(rig, usd_per_hour=1.0, speed=2.0)
    assert months is not None

    rent = renting_usd(usd_per_hour=1.0, hours_a_week=20.0, speed=2.0, months=months)
    assert owning_usd(rig, months=months) == pytest.approx(rent, rel=1e-6)
    assert rent == pytest.approx(0.5 * HOURS_A_MONTH * months)


def test_half_as_much_more_rent_breaks_even_earlier() -> None:
    """A machine of $2,000 against 40 and 60 cents an hour: both cross, after five years and after two."""
    rig = OwnedMachine(purchase_usd=2000, power_w=500)
    low, high = (months_to_break_even(rig, usd_per_hour=usd) for usd in (0.4, 0.6))

    assert low == pytest.approx(61.2, abs=0.1)
    assert high == pytest.approx(20.0, abs=0.1)
    for months, usd in ((61.15350, 0.4), (20.04693, 0.6)):
        rent = renting_usd(usd_per_hour=usd, hours_a_week=20.0, speed=1.0, months=months)
        assert owning_usd(rig, months=months) == pytest.approx(rent, rel=1e-5)


@given(rig=rigs, usd=prices, dearer=st.floats(1.0, 10.0))
def test_a_higher_rent_never_breaks_even_later(rig: OwnedMachine, usd: float, dearer: float) -> None:
    """Law: the higher the rent, the earlier owning breaks even."""
    before, after = (months_to_break_even(rig, usd_per_hour=price) for price in (usd, usd * dearer))

    assert (240.0 if after is None else after) <= (240.0 if before is None else before) + 1e-6


@given(rig=rigs, usd=prices)
def test_there_is_one_crossing(rig: OwnedMachine, usd: float) -> None:
    """Law: owning costs more before the crossing and less after it."""
    months = months_to_break_even(rig, usd_per_hour=usd)

    def gap(month: float) -> float:
        rent = renting_usd(usd_per_hour=usd, hours_a_week=rig.hours_a_week, speed=1.0, months=month)
        return owning_usd(rig, months=month) - rent

    if months is not None and 0.1 < months < 200:
        assert gap(0.9 * months) >= -1e-6
        assert gap(1.1 * months) <= 1e-6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"purchase_usd": 0.0}, "--price must be above zero"),
        ({"hours_a_week": 200.0}, "a week has 168"),
        ({"value_lost_per_year": 1.0}, "`--assume value_lost_per_year` must be"),
        ({"electricity_usd_per_kwh": -1.0}, "at least zero"),
    ],
)
def test_invalid_machines(changes: dict[str, float], message: str) -> None:
    """One line each."""
    with pytest.raises(UsageError, match=message):
        OwnedMachine(**{"purchase_usd": 2000.0, "power_w": 500.0, **changes})


def test_a_slow_rental_makes_one_wait() -> None:
    """By hand: at 0.024 of the speed, 20 h a week are 833 h; a dollar an hour of waiting outweighs cheap hours."""
    rig = OwnedMachine(purchase_usd=2500.0, power_w=600.0)
    rivals = [({"provider": "colab"}, 0.008, 0.024), ({"provider": "vast"}, 0.4, 1.0)]
    slow, fast = (
        next(one for one in found if one.rented["provider"] == "colab")
        for found in (
            compare_buy_rent(rig, accelerator="RTX4090", rivals=rivals),
            compare_buy_rent(rig, accelerator="RTX4090", rivals=rivals, wait_value_usd=1.0),
        )
    )

    assert slow.months is not None
    assert slow.months > 60
    assert fast.months == pytest.approx(0.0, abs=0.1)
    assert compare_buy_rent(rig, accelerator="RTX4090", rivals=rivals, wait_value_usd=1.0)[0].rented == {
        "provider": "vast"
    }
