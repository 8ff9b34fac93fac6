"""Colab and Kaggle as offers."""

from __future__ import annotations

from decimal import Decimal

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.notebooks import compute_notebook_usd_per_hour, find_session_limits
from gpuplan.offers.rows import Offer
from hypothesis import given
from hypothesis import strategies as st

CATALOG = load_catalog()
NOTEBOOKS = {o.instance_type: o for o in CATALOG.offers if o.provider in {"colab", "kaggle"}}


@pytest.mark.parametrize(
    ("name", "usd_per_hour"),
    [
        ("colab-payg-cpu", 0.008),
        ("colab-payg-t4", 0.107),
        ("colab-payg-l4", 0.17),
        ("colab-pro-a100-40gb", 0.54),
        ("colab-payg-g4", 0.89),
        ("colab-payg-tpu-v6e-1", 0.41),
    ],
)
def test_paid_colab_costs_what_its_units_cost(name: str, usd_per_hour: float) -> None:
    """Rates of 2026 (T4 1.07, L4 1.7, A100 5.4, G4 8.9, v6e-1 4.08 units/h) at 9.99 USD per 100 units."""
    assert float(NOTEBOOKS[name].usd_per_hour or 0) == pytest.approx(usd_per_hour, rel=0.01)


def test_the_newest_rate_counts() -> None:
    """Five dated T4 rates are kept; the offer uses that of 2026-09-27 and names it."""
    offer = NOTEBOOKS["colab-payg-t4"]

    assert sum(rate.runtime == "t4" for rate in CATALOG.notebooks.rates) == 5
    assert offer.price_as_of == "2026-09-27"
    assert "1.07 units/h" in (offer.price_source or "")


def test_an_unpublished_rate_is_an_unknown_price() -> None:
    """No rate for H100 was found: no price, and a note that says why."""
    offer = NOTEBOOKS["colab-payg-h100"]

    assert offer.usd_per_hour is None
    assert "not published" in offer.note


def test_kaggle_gives_two_t4_or_eight_tpu_chips() -> None:
    """kaggle 2.2.5: the default GPU is T4 x2, the default TPU v5e-8; both free, both with a weekly quota."""
    gpu, tpu = NOTEBOOKS["kaggle-free-t4x2"], NOTEBOOKS["kaggle-free-tpu-v5e-8"]

    assert [(o.accelerator, o.devices, o.usd_per_hour) for o in (gpu, tpu)] == [("T4", 2, 0), ("TPU-v5e", 8, 0)]
    limits = [find_session_limits(CATALOG.notebooks, offer) for offer in (gpu, tpu)]
    assert [(x.session_hours_max, x.weekly_quota_hours) for x in limits if x] == [(12, 30), (9, 20)]


def test_free_colab_says_what_it_does_not_promise() -> None:
    """Free: at most 12 h, 90 min idle, no accelerator guaranteed; the offer's note says so."""
    offer = NOTEBOOKS["colab-free-t4"]
    limits = find_session_limits(CATALOG.notebooks, offer)

    assert limits is not None
    assert (limits.session_hours_max, limits.idle_minutes_max, limits.guaranteed) == (12, 90, False)
    assert "may be unavailable" in offer.note
    assert "sessions of at most 12 h; ends after about 90 min idle" in offer.note


def test_a_cloud_machine_has_no_session_limits() -> None:
    """Limits belong to notebooks."""
    machine: Offer = next(o for o in CATALOG.offers if o.provider == "aws")

    assert find_session_limits(CATALOG.notebooks, machine) is None


def test_what_is_gone_is_not_active() -> None:
    """P100 and v3-8 left Kaggle, V100 and v2-8 left Colab, and the K80 is history."""
    gone = {name: o.status for name, o in NOTEBOOKS.items() if o.status != "active"}

    assert gone["kaggle-free-p100"] == gone["kaggle-free-tpu-v3-8"] == gone["colab-payg-v100"] == "retired"
    assert gone["colab-free-k80"] == "historical"


@given(units=st.decimals("0.01", "50", places=2), usd=st.decimals("1", "100", places=2))
def test_twice_the_units_cost_twice(units: Decimal, usd: Decimal) -> None:
    """A law: the price of an hour is in proportion to the rate."""
    once = compute_notebook_usd_per_hour(units_per_hour=units, usd=usd, units=Decimal(100))
    twice = compute_notebook_usd_per_hour(units_per_hour=2 * units, usd=usd, units=Decimal(100))

    assert twice == 2 * once
    assert once > 0
