"""Numbers at, below and above their limits; the error states the limit."""

from __future__ import annotations

import math

import pytest
from gpuplan.errors import UsageError, near_names_hint
from gpuplan.limits import MAX_SAMPLES, require_count, require_not_negative, require_positive
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.clouds import PROVIDER_ALIASES


def test_the_limit_itself_is_accepted_and_one_more_is_not() -> None:
    require_count(MAX_SAMPLES, what="--samples", most=MAX_SAMPLES)
    with pytest.raises(UsageError, match=r"--samples must be at most 1,000,000,000,000,000, not 1,000,0.*001"):
        require_count(MAX_SAMPLES + 1, what="--samples", most=MAX_SAMPLES)


@pytest.mark.parametrize("value", [0, -1, True, 1.5, math.nan])
def test_a_count_is_a_positive_integer(value: float) -> None:
    with pytest.raises(UsageError, match="must be a whole number of at least 1"):
        require_count(value, what="--samples", most=10)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1e-9])
def test_amounts_are_finite_and_not_negative(value: float) -> None:
    with pytest.raises(UsageError, match="--budget must be above zero"):
        require_positive(value, what="--budget", example="20")
    with pytest.raises(UsageError, match="--hour-value must be at least zero"):
        require_not_negative(value, what="--hour-value", example="20")
    require_not_negative(0.0, what="--hour-value", example="20")


def test_a_name_known_elsewhere_leads_to_the_catalogs_own() -> None:
    """Google's cloud is not Kaggle, although four of six letters agree."""
    known = load_catalog().providers

    assert set(PROVIDER_ALIASES.values()) <= {*known, "local"}
    for name in ("google", "Google", " google cloud "):
        assert near_names_hint(name, known, see_all="x", aliases=PROVIDER_ALIASES).startswith(
            "did you mean `gcp`?"
        )
    assert near_names_hint("kagle", known, see_all="x", aliases=PROVIDER_ALIASES).startswith(
        "did you mean `kaggle`?"
    )
    assert near_names_hint("hetzner", known, see_all="x", aliases=PROVIDER_ALIASES) == "see all with `x`"
