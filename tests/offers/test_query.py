"""Filters over offers: what passes, what is unknown, and which filter left nothing."""

from __future__ import annotations

import pytest
from gpuplan.errors import NoAnswerError, UsageError
from gpuplan.offers.catalog import PURCHASES, load_catalog, select_offers
from gpuplan.offers.rows import Offer
from hypothesis import given
from hypothesis import strategies as st

OFFERS = load_catalog().offers
CURRENT = tuple(o for o in OFFERS if o.status not in {"retired", "historical"})


def names(offers: tuple[Offer, ...]) -> set[str]:
    """Return the instance types of offers."""
    return {offer.instance_type for offer in offers}


def test_no_filter_leaves_out_what_is_gone() -> None:
    """Without a filter everything passes but what can no longer be had."""
    assert select_offers(OFFERS) == CURRENT
    assert select_offers(OFFERS, include_retired=True) == OFFERS


def test_accelerators_in_any_spelling() -> None:
    """`tesla v100-sxm2-16gb` and `V100-16GB` select the same offers."""
    spelled = select_offers(OFFERS, accelerators=["tesla v100-sxm2-16gb"])

    assert spelled == select_offers(OFFERS, accelerators=["V100-16GB"])
    assert {offer.accelerator for offer in spelled} == {"V100-16GB"}


def test_repeated_filters_widen_and_different_ones_narrow() -> None:
    """Two accelerators: either; accelerator and region and purchase: all of them."""
    found = select_offers(
        OFFERS, accelerators=["T4", "L4"], providers=["AWS"], regions=["us-east-1"], purchase="spot", devices=[4]
    )

    assert names(found) == {"g4dn.12xlarge", "g6.12xlarge", "g6.24xlarge"}
    assert {offer.purchase for offer in found} == {"spot"}


def test_cpu_hosts_are_an_accelerator_of_their_own() -> None:
    """`--accelerator cpu` selects machines without one."""
    assert {o.accelerator for o in select_offers(OFFERS, accelerators=["cpu"])} == {"CPU"}


@pytest.mark.parametrize(
    ("filters", "message", "hint"),
    [
        ({"accelerators": ["A1O0-40GB"]}, "unknown accelerator `A1O0-40GB`", "A100-40GB"),
        ({"accelerators": ["A1000"]}, "unknown accelerator `A1000`", "A100"),
        ({"providers": ["awss"]}, "unknown provider `awss`", "aws"),
        ({"regions": ["us-eats-1"]}, "unknown region `us-eats-1`", "us-east-1"),
        ({"purchase": "reserved"}, "unknown purchase option", "on-demand"),
    ],
)
def test_unknown_names_are_usage_errors(filters: dict[str, list[str]], message: str, hint: str) -> None:
    """What does not exist is a slip of the user (exit 2), answered with near names."""
    with pytest.raises(UsageError, match=message) as caught:
        select_offers(OFFERS, **filters)  # type: ignore[arg-type]
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("filters", "label"),
    [
        ({"accelerators": ["Trainium3"]}, "--accelerator Trainium3"),
        ({"accelerators": ["TPU-v3"], "providers": ["aws"]}, "--provider aws"),
        ({"accelerators": ["TPU-v2"], "regions": ["us-east-1"]}, "--region us-east-1"),
        ({"providers": ["lambda"], "purchase": "spot"}, "--purchase spot"),
        ({"accelerators": ["T4"], "devices": [3]}, "--devices 3"),
        ({"accelerators": ["K80"], "providers": ["azure"]}, "without --retired"),
    ],
)
def test_an_empty_answer_names_the_filter(filters: dict[str, list[str]], label: str) -> None:
    """Everything exists but not together: the answer is no (exit 3), and the last filter is named."""
    with pytest.raises(NoAnswerError) as caught:
        select_offers(OFFERS, **filters)  # type: ignore[arg-type]
    assert f"matches `{label}`" in str(caught.value)
    assert caught.value.exit_code == 3


@given(
    accelerators=st.lists(st.sampled_from(sorted({o.accelerator for o in OFFERS})), max_size=3),
    providers=st.lists(st.sampled_from(sorted({o.provider for o in OFFERS})), max_size=3),
    purchase=st.sampled_from(PURCHASES),
    devices=st.lists(st.sampled_from([1, 2, 4, 8]), max_size=2),
)
def test_what_passes_fits_every_filter(
    accelerators: list[str], providers: list[str], purchase: str, devices: list[int]
) -> None:
    """A law: an offer passes exactly if it fits each filter, and the order is kept."""
    expected = tuple(
        o
        for o in CURRENT
        if (not accelerators or o.accelerator in accelerators)
        and (not providers or o.provider in providers)
        and (purchase == "any" or o.purchase.replace("_", "-") == purchase)
        and (not devices or o.devices in devices)
    )
    try:
        found = select_offers(
            OFFERS, accelerators=accelerators, providers=providers, purchase=purchase, devices=devices
        )
    except NoAnswerError:
        found = ()
    assert found == expected
