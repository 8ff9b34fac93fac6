"""Bounds of the checks on listed prices, at both of their sides, without a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

import pytest
from factories import make_offer
from gpuplan.offers.aliases import AcceleratorNames
from gpuplan.offers.refresh.sanity_checks import CheckedPart, check_part
from gpuplan.offers.refresh.source import InstanceSpec, InstanceSpecs, LeftOut, ListedPrice, PricePart
from gpuplan.offers.rows import Offer

PART = PricePart(region="*", purchases=("on_demand", "spot"), label="all prices")
SPECS = InstanceSpecs(
    known={f"box-{n}": InstanceSpec("T4", 4.0, 8.0, 32.0) for n in range(30)},
    families={},
    names=AcceleratorNames(canonical=("T4",)),
)


def listed(usd: str, *, box: int = 0, purchase: str = "on_demand", region: str = "here") -> ListedPrice:
    """Return the listed price of a machine with four devices."""
    return ListedPrice(
        instance_type=f"box-{box}", region=region, purchase=purchase, usd_per_hour=Decimal(usd), sku="1", url="u"
    )  # fmt: skip


def known(*rows: ListedPrice, **changes: object) -> dict[tuple[str, str, str], Offer]:
    """Return offers that were known before at the prices of rows."""
    return {
        row.key: make_offer(
            "T4", instance_type=row.instance_type, region=row.region, purchase=row.purchase, devices=4.0,
            **{"usd_per_hour": row.usd_per_hour, **changes},
        )
        for row in rows
    }  # fmt: skip


def checked(
    rows: Sequence[ListedPrice], old: Mapping[tuple[str, str, str], Offer] | None = None, *, accept: bool = False
) -> CheckedPart:
    """Check the rows of the one part."""
    return check_part(PART, rows, old=old or {}, specs=SPECS, accept_moves=accept)


def codes(found: CheckedPart) -> list[str]:
    """Return the failed checks, in order."""
    return [anomaly.code for anomaly in found.anomalies]


@pytest.mark.parametrize(
    ("usd", "expected"),
    [
        ("-1", ["not above 0"]),
        ("0", ["not above 0"]),
        ("0.0039", ["out of bounds"]),  # of four devices: $0.001 to $100 each
        ("0.004", []),
        ("400", []),
        ("400.1", ["out of bounds"]),
    ],
)
def test_prices_are_positive_and_within_the_bounds_of_a_device(usd: str, expected: list[str]) -> None:
    """Both ends of the bounds are accepted, for each device of a machine with four."""
    found = checked([listed(usd)])

    assert codes(found) == expected
    assert len(found.accepted) == (0 if expected else 1)
    assert not found.refused


def test_a_spot_price_of_exactly_a_tenth_is_a_placeholder() -> None:
    """On demand costs $4: $0.40 is a placeholder, $0.41 a price, and $0.40 on demand is one, too."""
    tenth, price = listed("0.4", purchase="spot"), listed("0.41", purchase="spot")
    on_demand = listed("4")

    assert codes(checked([on_demand, tenth])) == ["placeholder"]
    assert codes(checked([on_demand, price])) == []
    assert codes(checked([tenth])) == []
    assert codes(checked([listed("0.4")], known(listed("0.4")))) == []


def test_the_price_on_demand_may_be_one_known_before() -> None:
    """The part lists spot prices alone: a tenth of the known price on demand, not of one of another region."""
    tenth = listed("0.4", purchase="spot")

    assert codes(checked([tenth], known(listed("4")))) == ["placeholder"]
    assert codes(checked([tenth], known(listed("4", region="there")))) == []
    assert codes(checked([tenth], known(listed("4"), usd_per_hour=None))) == []
    listed_now = [listed("4.6"), tenth]
    assert codes(checked(listed_now, known(listed("4")))) == []  # what is listed now counts, not what was known


@pytest.mark.parametrize(
    ("prices", "expected"),
    [(6, []), (5, ["far fewer rows"])],  # 60 % of ten
)
def test_a_part_keeps_six_tenths_of_its_rows(prices: int, expected: list[str]) -> None:
    old = known(*(listed("1", box=box) for box in range(10)))

    found = checked([listed("1", box=box) for box in range(prices)], old)
    assert codes(found) == expected
    assert found.refused == bool(expected)
    assert len(found.accepted) == (0 if expected else prices)


def test_shares_of_less_than_five_rows_say_nothing() -> None:
    """One row left of four is accepted; one of five is not, unless four of them were estimated or had no price."""
    rows, row = [listed("1", box=box) for box in range(5)], listed("1")

    assert codes(checked([row], known(*rows[:4]))) == []
    assert codes(checked([row], known(*rows))) == ["far fewer rows"]
    for changes in ({"estimated": True}, {"usd_per_hour": None}, {"status": "retired"}):
        assert codes(checked([row], known(row) | known(*rows[1:], **changes))) == []


@pytest.mark.parametrize(("usd", "expected"), [("3", []), ("3.01", ["moved"]), ("0.34", []), ("0.33", ["moved"])])
def test_a_price_may_move_by_a_factor_of_three(usd: str, expected: list[str]) -> None:
    """From $1, up and down; a larger move is accepted after a look, or if the old price was an estimate."""
    row, old = listed(usd), known(listed("1"))
    found = checked([row], old)

    assert codes(found) == expected
    assert len(found.accepted) == (0 if expected else 1)
    assert codes(checked([row], old, accept=True)) == []
    assert codes(checked([row], known(listed("1"), estimated=True))) == []


@pytest.mark.parametrize(
    ("prices", "moved", "refused"),
    [(25, 5, False), (25, 6, True), (10, 4, False), (10, 5, True)],  # a fifth of 25 are five; four are too few
)
def test_a_part_in_which_more_than_a_fifth_moved_is_refused(prices: int, moved: int, refused: bool) -> None:
    old = known(*(listed("1", box=box) for box in range(prices)))
    rows = [listed("10" if box < moved else "1", box=box) for box in range(prices)]

    found = checked(rows, old)
    assert codes(found) == [*(["most prices moved"] if refused else []), *["moved"] * moved]
    assert found.refused == refused
    assert len(found.accepted) == (0 if refused else prices - moved)


def test_two_prices_of_one_machine_are_both_dropped() -> None:
    """A price that is listed twice alike is kept once."""
    again = listed("1.5", box=1)

    found = checked([listed("1"), listed("2"), again, again])
    assert codes(found) == ["two prices"]
    assert [row.instance_type for row, _ in found.accepted] == ["box-1"]


def test_a_machine_is_of_interest_if_it_is_known_or_said_to_have_an_accelerator() -> None:
    """A source that says nothing of accelerators, as lists of spot prices do: only what is known."""
    boxes = [listed("1.0", box=box) for box in (29, 30)]
    boxes.append(replace(boxes[1], is_accelerated=True))

    assert [SPECS.find_instance_spec(one) for one in boxes] == [
        InstanceSpec("T4", 4.0, 8.0, 32.0),
        LeftOut(reason="no accelerator", name="box-30"),
        LeftOut(reason="unknown machine", name="box-30"),
    ]
