"""The user's own world in `gpuplan.toml`: what is read, what holds for which offer, what is wrong."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from factories import make_offer
from gpuplan.errors import UsageError
from gpuplan.offers.catalog import load_user_catalog
from gpuplan.settings import Settings, load_settings
from gpuplan.settings_entries import find_committed_price, find_discount

NOWHERE = Path("/nonexistent/gpuplan.toml")
TODAY = date(2026, 11, 21)
FILE = """
currency = "eur"
tax = { name = "VAT", percent = 19 }

[exchange_rate]
EUR = { per_usd = 0.92, as_of = 2026-11-02, source = "ECB" }

[[discount]]
provider = "aws"
percent = 5

[[discount]]
provider = "AWS"
instance_type = "p4d*"
purchase = "on_demand"
percent = 12.5
until = 2026-12-31

[[committed]]
provider = "aws"
instance_type = "g5.xlarge"
region = "us-*"
usd_per_hour = 0.61
until = 2027-06-30

[[machine]]
name = "lab-3090"
accelerator = "rtx 3090"
devices = 2
usd_per_hour = 0.15
"""


def read(folder: Path, text: str = FILE) -> Settings:
    """Return the settings of a folder with this gpuplan.toml."""
    (folder / "gpuplan.toml").write_text(text)
    return load_settings(environ={}, folder=folder, user_file=NOWHERE)


def test_money_is_read_as_decimal(tmp_path: Path) -> None:
    """0.92 is 92/100 exactly, a whole number of percent is one too."""
    settings = read(tmp_path)

    assert settings.currency == "EUR"
    assert settings.tax is not None
    assert (settings.tax.name, settings.tax.percent) == ("VAT", Decimal(19))
    assert settings.exchange_rate["EUR"].per_usd == Decimal("0.92")
    assert settings.exchange_rate["EUR"].as_of == date(2026, 11, 2)


@pytest.mark.parametrize(
    ("changes", "percent"),
    [
        ({"provider": "aws", "instance_type": "p4d.24xlarge"}, Decimal("12.5")),  # the larger, not the sum
        ({"provider": "aws", "instance_type": "p4d.24xlarge", "purchase": "spot"}, Decimal(5)),
        ({"provider": "aws", "instance_type": "g5.xlarge"}, Decimal(5)),
        ({"provider": "gcp"}, None),
    ],
)
def test_the_largest_discount_that_fits_holds(
    tmp_path: Path, changes: dict[str, str], percent: Decimal | None
) -> None:
    """Patterns in any case; one discount an offer."""
    found = find_discount(make_offer(**changes), read(tmp_path).discount, today=TODAY)

    assert (found.percent if found else None) == percent


def test_what_has_run_out_holds_no_more(tmp_path: Path) -> None:
    """The last day counts; the day after does not."""
    settings = read(tmp_path)
    p4d = make_offer(provider="aws", instance_type="p4d.24xlarge")
    g5 = make_offer(provider="aws", instance_type="g5.xlarge", region="us-east-1")

    last = find_discount(p4d, settings.discount, today=date(2026, 12, 31))
    after = find_discount(p4d, settings.discount, today=date(2027, 1, 1))

    assert last is not None
    assert last.percent == Decimal("12.5")
    assert after is not None
    assert after.percent == Decimal(5)
    assert find_committed_price(g5, settings.committed, today=date(2027, 6, 30)) is not None
    assert find_committed_price(g5, settings.committed, today=date(2027, 7, 1)) is None


def test_committed_prices_and_own_machines_are_among_the_offers(tmp_path: Path) -> None:
    """A committed price replaces the on-demand one, there alone, and keeps the list price in its note."""
    offers = load_user_catalog(read(tmp_path), today=TODAY).offers
    g5 = {(o.region, o.purchase): o for o in offers if o.provider == "aws" and o.instance_type == "g5.xlarge"}
    mine = next(offer for offer in offers if offer.provider == "own")

    assert g5["us-east-1", "on_demand"].usd_per_hour == Decimal("0.61")
    assert "list price 1.006 USD/h" in g5["us-east-1", "on_demand"].note
    assert g5["us-east-1", "spot"].usd_per_hour != Decimal("0.61")
    assert g5["eu-west-1", "on_demand"].usd_per_hour != Decimal("0.61")
    assert (mine.instance_type, mine.accelerator, mine.devices, mine.usd_per_hour) == (
        "lab-3090",
        "RTX3090",
        2,
        Decimal("0.15"),
    )


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[[discount]]\npercent = 120", r"`percent` in `discount` in .*toml \(entry 1\): .* less than 100", ""),
        ("[[discount]]\nprovidr = 'aws'\npercent = 5", "unknown field `providr` in `discount`", "`provider`"),
        ("[[committed]]\nprovider = 'aws'", r"`usd_per_hour` is missing in `committed` in .* \(entry 1\)", ""),
        ("[[committed]]\nusd_per_hour = 0.0", "`usd_per_hour` in `committed`.* greater than 0", ""),
        ("tax = 19", "`tax` in `tax` in ", ""),
        ("currency = 'euro'", "`currency` in .* is not a currency: 'euro'", "three letters"),
        ("currency = 'CHF'", r"no exchange rate for `currency` CHF \(from .*gpuplan.toml\)", "per_usd"),
        ("[[machine]]\nname = 'a b'\naccelerator = 'T4'\nusd_per_hour = 0", "`name` in `machine`", ""),
        (
            "[[machine]]\nname = 'a'\naccelerator = 'T4'\nusd_per_hour = 0\n" * 2,
            "two machines are called `a`",
            "a unique name",
        ),
    ],
)
def test_mistakes_name_file_entry_and_field(tmp_path: Path, text: str, message: str, hint: str) -> None:
    """One line: what is wrong, in which entry of which file."""
    with pytest.raises(UsageError, match=message) as caught:
        read(tmp_path, text)

    assert hint in (caught.value.hint or "")
    assert "\n" not in str(caught.value)


def test_an_unknown_accelerator_of_ones_own_machine_is_told(tmp_path: Path) -> None:
    """With what may have been meant."""
    settings = read(tmp_path, "[[machine]]\nname = 'lab'\naccelerator = 'RTX 3009'\nusd_per_hour = 0.1")

    with pytest.raises(UsageError, match="unknown accelerator `RTX 3009`") as caught:
        _ = load_user_catalog(settings).offers

    assert "RTX3090" in (caught.value.hint or "")
