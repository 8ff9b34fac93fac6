"""Itemized bills on a terminal and in a pipe, written out by hand."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from factories import make_offer
from gpuplan.plan.cost_terms import Currency
from gpuplan.plan.money import BillLine, UsdInterval
from gpuplan.render.estimate_output import emit_breakdown, iter_breakdown_lines
from gpuplan.units import Interval

HOUR = Interval(low=1800.0, mid=3600.0, high=9000.0)
WORDS = "one two three four five six seven eight nine ten"


def amount(low: str, mid: str, high: str) -> UsdInterval:
    """Return an amount."""
    return UsdInterval(low=Decimal(low), mid=Decimal(mid), high=Decimal(high))


LINES = (
    BillLine("training", (500_000_000, 1_000_000_000, 2_500_000_000), WORDS, HOUR),
    BillLine("disk", (250_000_000, 250_000_000, 250_000_000), ""),
    BillLine("discount", (-125_000_000, -250_000_000, -625_000_000), "25 % off"),
)
OFFER = make_offer("T4", provider="aws", instance_type="g4dn.xlarge", purchase="on_demand")
BILL = SimpleNamespace(lines=LINES, total=amount("0.125", "1", "2.125"))
PRICED = SimpleNamespace(offer=OFFER, bill=BILL, run_time_s=HOUR, unbilled=("egress",))
TIMELESS = SimpleNamespace(offer=OFFER, bill=BILL, run_time_s=None, unbilled=())
UNKNOWN = SimpleNamespace(
    offer=make_offer("T4", region="nowhere", purchase="spot"), bill=None, run_time_s=None, unbilled=()
)


def answer(*, per_usd: int = 1, code: str = "USD", nearest: tuple[int, ...] = (), **chosen: int) -> Any:
    """Return the parts of an estimate that bills need, with a decision that names offers by number."""
    named = dict.fromkeys(("recommended", "free", "cheaper", "faster"))
    return SimpleNamespace(
        offers=(UNKNOWN, PRICED, TIMELESS),
        decision=SimpleNamespace(nearest=nearest, **{**named, **chosen}),
        terms=SimpleNamespace(currency=Currency(code=code, per_usd=Decimal(per_usd))),
    )


WIDE = """
bill of aws g4dn.xlarge, us-east-1, on demand:
  training                      60 min         0.5–2.5  one two three four five six seven eight
                                                        nine ten
  disk                                            0.25
  discount                                 -0.12–-0.62  25 % off
  egress                                             –  unknown for this provider
  total, USD                    60 min        0.12–2.1"""

NARROW = """
bill of aws g4dn.xlarge, us-east-1, on demand:
  training                      60 min         0.5–2.5
      one two three four five six seven eight nine ten
  disk                                            0.25
  discount                                 -0.12–-0.62
      25 % off
  egress                                             –  unknown for this provider
  total, USD                    60 min        0.12–2.1"""


@pytest.mark.parametrize(
    ("width", "text"), [(96, WIDE), (95, NARROW), (54, NARROW)], ids=["wide", "too narrow", "narrow"]
)
def test_a_bill_on_a_terminal(width: int, text: str) -> None:
    """Three columns; the reasons stand in the 40 characters beside them, or below on a narrower terminal."""
    assert "\n".join(iter_breakdown_lines(answer(recommended=1, faster=1), width=width)) == text


def test_a_reason_below_is_wrapped_and_moved_in() -> None:
    lines = list(iter_breakdown_lines(answer(recommended=1), width=32))

    assert lines[3:5] == ["      one two three four five", "      six seven eight nine ten"]


def test_a_bill_in_another_currency() -> None:
    """Four to the dollar: every amount is four times as much."""
    lines = list(iter_breakdown_lines(answer(recommended=1, per_usd=4, code="XYZ"), width=96))

    amounts = [line[38:54].strip() for line in lines[2:] if line[:3] != "   "]
    assert amounts == ["2.0–10", "1.0", "-0.5–-2.5", "–", "0.5–8.5"]
    assert lines[-1].startswith("  total, XYZ")


def test_each_recommended_offer_has_one_bill_and_an_unknown_one_says_so() -> None:
    """In the order of the decision, or the nearest misses; what nothing names has none."""
    lines = list(iter_breakdown_lines(answer(recommended=1, cheaper=0, faster=1), width=96))

    heads = [line for line in lines if line.startswith("bill of")]
    assert heads == ["bill of aws g4dn.xlarge, us-east-1, on demand:", "bill of lambda one_T4, nowhere, spot:"]
    assert lines[-1] == "  –"
    assert list(iter_breakdown_lines(answer(nearest=(2,)), width=96))[2:] == ["  –"]
    assert list(iter_breakdown_lines(answer(), width=96)) == []


def test_a_pipe_gets_every_item_of_every_bill(capsys: pytest.CaptureFixture[str]) -> None:
    """At full precision and in dollars, whatever is recommended; an empty cell where there is no time."""
    emit_breakdown(answer(per_usd=4, code="XYZ"))

    head, *rows = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert len(rows) == 2 * 3
    training, disk, discount = (dict(zip(head, row, strict=True)) for row in rows[:3])
    assert training == {
        "provider": "aws",
        "instance_type": "g4dn.xlarge",
        "region": "us-east-1",
        "purchase": "on_demand",
        "item": "training",
        "because": WORDS,
        **{f"time_s_{end}": text for end, text in (("low", "1800.0"), ("mid", "3600.0"), ("high", "9000.0"))},
        **{
            f"usd_{end}": text
            for end, text in (("low", "0.500000000"), ("mid", "1.000000000"), ("high", "2.500000000"))
        },
    }
    assert [disk[f"time_s_{end}"] for end in ("low", "mid", "high")] == ["", "", ""]
    assert (discount["usd_low"], discount["usd_high"]) == ("-0.125000000", "-0.625000000")
