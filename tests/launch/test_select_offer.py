"""Which offers of an estimate are launched, and in which order: rows written by hand."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpuplan.errors import NoAnswerError, UsageError
from gpuplan.launch.core.request import LaunchCandidate
from gpuplan.launch.select_offer import (
    ESTIMATE_LIFE,
    LAUNCH_LIFE,
    EstimateOffers,
    Renter,
    add_live_prices,
    filter_affordable,
    read_estimate,
    require_fresh,
    require_known_prices,
    select_candidates,
)
from launch.export.plans import offer, write_plan

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
ENGINE = Renter(title="An engine", providers=("aws", "gcp"))
T4 = offer("aws", "g4dn.xlarge", "T4")
COLAB = offer("colab", "payg-t4", "T4", region="any")
KAGGLE = offer("kaggle", "free-t4", "T4", region="any")


def planned(*offers: dict[str, Any], chosen: tuple[int, ...] = (0,)) -> EstimateOffers:
    """Return the offers of an estimate."""
    return EstimateOffers(path=Path("plan.json"), model="train.py", offers=offers, chosen=chosen, written_at=NOW)


def ranks(*offers: dict[str, Any], fallbacks: int = 9, rank: int | None = None, **more: Any) -> list[int]:
    """Return the ranks of the candidates."""
    found = select_candidates(planned(*offers, **more), ENGINE, rank=rank, fallbacks=fallbacks)
    return [one.rank for one in found[1]]


def refuse(
    *offers: dict[str, Any], renter: Renter = ENGINE, rank: int | None = None, **more: Any
) -> tuple[str, str]:
    """Return message and hint of the refusal to launch."""
    with pytest.raises(NoAnswerError) as caught:
        select_candidates(planned(*offers, **more), ENGINE, rank=rank, fallbacks=0)
    return str(caught.value), caught.value.hint or ""


def test_as_many_fallbacks_as_asked_for() -> None:
    """Of four equal machines, the first and at most so many further ones."""
    four = [T4, *({**T4, "region": region} for region in ("us-east-2", "us-west-1", "us-west-2"))]

    assert [ranks(*four, fallbacks=count) for count in (0, 1, 2, 9)] == [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]]
    assert ranks(*four, rank=3) == [3, 4], "those before it are better, and were passed over"
    assert ranks(*four, rank=4) == [4]


@pytest.mark.parametrize(
    "other",
    [
        {"provider": "gcp"},
        {"accelerator": "A10"},
        {"devices": 2},
        {"usd_per_hour": "1.51"},
        {"memory_fits": False},
    ],
    ids=["provider", "accelerator", "devices", "price", "memory"],
)
def test_a_fallback_is_the_same_kind_of_machine_at_a_like_price(other: dict[str, Any]) -> None:
    """The second row differs in what matters; the third, elsewhere at 1.5 times the price, does not."""
    assert ranks(T4, {**T4, **other}, {**T4, "region": "us-west-1", "usd_per_hour": "1.50"}) == [1, 3]


@pytest.mark.parametrize("rank", [0, 3])
def test_a_rank_that_does_not_exist_is_refused(rank: int) -> None:
    """Two offers have the ranks 1 and 2."""
    with pytest.raises(UsageError, match=rf"`--rank {rank}`: plan.json has 2 offers"):
        ranks(T4, T4, rank=rank)


def test_a_pick_that_cannot_be_launched_is_refused_unless_the_next_may_be_taken() -> None:
    """By default only the recommended one; else the first of the picks that can be launched, if there is one."""
    plan = planned(COLAB, KAGGLE, T4, chosen=(0, 1, 2))
    with pytest.raises(NoAnswerError, match=r"colab payg-t4 of plan\.json cannot be launched by An engine"):
        select_candidates(plan, ENGINE, rank=None, fallbacks=0)

    provider, (taken,) = select_candidates(plan, ENGINE, rank=None, fallbacks=0, only_recommended=False)
    assert (provider, taken.rank) == ("aws", 3)
    with pytest.raises(NoAnswerError, match=r"colab payg-t4 of plan\.json"):
        select_candidates(planned(COLAB, KAGGLE), ENGINE, rank=None, fallbacks=0, only_recommended=False)


def test_without_a_recommended_offer_the_best_is_named() -> None:
    """One that can be launched, or the providers to ask for."""
    assert refuse(T4, chosen=()) == (
        "plan.json recommends no offer",
        "the best that can be launched is aws g4dn.xlarge in us-east-1: `--rank 1`",
    )
    assert (
        refuse(COLAB, chosen=())[1]
        == "plan such a machine: `gpuplan estimate train.py --provider aws -o plan.json`"
    )


def timed(minutes: float, usd: str, **more: Any) -> dict[str, Any]:
    """Return a machine on which the run takes some minutes and dollars."""
    return {**T4, "run_time_s": {"mid": 60 * minutes}, "cost_usd": {"mid": usd}, **more}


def totalling(usd: str, **more: Any) -> dict[str, Any]:
    """Return a machine by the total of the run."""
    return {**T4, "total_usd": usd, **more}


@pytest.mark.parametrize(
    ("offers", "rank"),
    [
        ([totalling("4"), totalling("1.5"), totalling("9")], 2),
        ([T4, totalling("900")], 2),
        ([T4, timed(1, "1")], 1),
        ([totalling("10"), totalling("9")], 2),
        ([totalling("1", quota={"state": "too_small"}), T4], 2),
        ([totalling("1", quota={"state": "unknown"}), T4], 1),
        ([totalling("0", usd_per_hour="0"), totalling("10")], 2),
        ([totalling("0", usd_per_hour="0"), totalling("0", usd_per_hour="0.00")], 1),
        ([totalling("0.1", memory_fits=False), totalling("10")], 2),
    ],
)
def test_the_best_that_can_be_launched_has_the_least_total(offers: list[dict[str, Any]], rank: int) -> None:
    """Totals are compared as numbers; unknown ones come after, in the plan's order, then refused ones.

    Of free ones, which are not rented, one is named only where nothing is paid for.
    """
    assert refuse(*offers, chosen=())[1].endswith(f": `--rank {rank}`")


def test_the_best_is_named_with_time_and_cost() -> None:
    """Half an hour for $1.50, as far as they are known."""
    name = "the best that can be launched is aws g4dn.xlarge in us-east-1"

    assert refuse(timed(30, "1.5"), chosen=())[1] == f"{name}, 30 min, $1.50: `--rank 1`"
    assert refuse({**T4, "run_time_s": {"mid": 1800.0}}, chosen=())[1] == f"{name}, 30 min: `--rank 1`"
    assert refuse({**T4, "cost_usd": {"mid": "1.5"}}, chosen=())[1] == f"{name}, $1.50: `--rank 1`"


def test_a_notebook_is_opened_by_its_own_command() -> None:
    """Colab's rank is its own; another's is that of the first Colab whose memory is large enough, if any."""
    small = {**COLAB, "memory_fits": False}
    command = "`gpuplan export plan.json --to colab --rank {} -o notebook.ipynb`"
    best = "plan such a machine: `gpuplan estimate train.py --provider aws -o plan.json`"

    assert refuse(KAGGLE, small, COLAB, rank=2)[1] == f"{command.format(2)}; {best}"
    assert refuse(KAGGLE, small, COLAB, COLAB)[1] == (
        f"it is a notebook, opened at kaggle.com; for Colab: {command.format(3)}; {best}"
    )
    assert refuse(KAGGLE, small)[1] == best
    assert refuse(offer("azure", "Standard_NC4as_T4_v3", "T4"))[1] == best


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"usd_per_hour": None}, "has no known price"),
        ({"hosts": 2}, "has 2 machines, and An engine launches one"),
        ({"complete": False}, "is only a part of a machine"),
        ({"memory_fits": False}, "has too little memory for this workload"),
        ({"runs": False}, "does not run Keras 3"),
        ({"status": "retired"}, "can no longer be rented"),
        ({"status": "historical"}, "can no longer be rented"),
        ({"provider": "azure"}, "cannot be launched by An engine (it launches on aws, gcp)"),
    ],
)
def test_reasons_why_an_offer_cannot_be_launched(changes: dict[str, Any], reason: str) -> None:
    """Each by itself."""
    assert ENGINE.why_not({**T4, **changes}) == reason


@pytest.mark.parametrize("changes", [{"hosts": 1}, {"memory_fits": None}, {"runs": None}, {"runs": True}])
def test_what_is_not_known_to_fail_can_be_launched(changes: dict[str, Any]) -> None:
    """Unknown memory and an unknown build of Keras are no reason."""
    assert ENGINE.why_not({**T4, **changes}) == ""


def test_several_machines_for_what_joins_them() -> None:
    """Two."""
    assert Renter(providers=("aws",), joins_hosts=True).why_not({**T4, "hosts": 2}) == ""


def candidate(usd: str, **more: Any) -> LaunchCandidate:
    """Return the machine at a price."""
    (found,) = select_candidates(planned({**T4, "usd_per_hour": usd, **more}), ENGINE, rank=1, fallbacks=0)[1]
    return found


def test_a_candidate_keeps_what_its_row_says() -> None:
    """By hand: a life of 2 h is 7,200 s; a pass that is the whole batch of a device is no pass."""
    spot = {
        "hours_to_preemption": 2.0, "basis": "b", "notice_s": 120.0, "preemptions": 0.5,
        "checkpoint_interval_s": 600.0, "checkpoint_s": 5.0,
    }  # fmt: skip
    more = {"shard": "fsdp", "recomputed": True, "gradient_accumulation_steps": 4, "batch_size_per_device": 64}
    found = candidate("2.00", spot=spot, micro_batch_size=16, **more)

    assert found.spot is not None
    assert found.spot.model_dump() == {
        "life_s": 7200.0, "basis": "b", "notice_s": 120.0, "count": 0.5, "checkpoint_every_s": 600.0,
        "checkpoint_s": 5.0,
    }  # fmt: skip
    assert (found.shard, found.recomputed, found.gradient_accumulation_steps) == ("fsdp", True, 4)
    assert found.micro_batch_size == 16
    assert found.run_s is not None
    assert found.step_s is not None
    assert (found.run_s.mid, found.step_s.mid) == (3600.0, 0.1)
    assert candidate("1.00", micro_batch_size=64, **more).micro_batch_size is None
    plain = candidate("1.00", train_time_s=None, step_time_s=None)
    assert (plain.run_s, plain.step_s, plain.spot, plain.shard, plain.micro_batch_size) == (
        None,
        None,
        None,
        "none",
        None,
    )
    assert plain.cap_s == 30 * 24 * 3600


def test_what_costs_over_half_more_is_no_fallback() -> None:
    """By hand: 1.5 times $2 is $3, and no cent more; the first stays at any price."""
    found = filter_affordable([candidate(usd) for usd in ("2.00", "3.00", "3.01", "0.50")])

    assert [str(one.usd_per_hour) for one in found] == ["2.00", "3.00", "0.50"]


def add_live(price: str, *, limited: bool) -> tuple[LaunchCandidate, ...]:
    """Return a machine of a dollar an hour at its current price."""
    live = SimpleNamespace(usd_per_hour=Decimal(price), source="list", read_at=NOW)
    adapter: Any = SimpleNamespace(missing=lambda: "", live_price=lambda *_: live)
    return add_live_prices([candidate("1.00")], adapter, {}, limited=limited)


def test_a_price_up_to_a_tenth_higher_is_taken() -> None:
    """By hand: $1.10 for $1.00, and $1.11 only where the cost of the whole run is limited."""
    (found,) = add_live("1.10", limited=False)
    assert (found.usd_per_hour, found.planned_usd_per_hour) == (Decimal("1.10"), Decimal("1.00"))
    assert found.price_source == "list, 2026-11-21 12:00 UTC"
    assert add_live("1.11", limited=True)[0].usd_per_hour == Decimal("1.11")
    with pytest.raises(NoAnswerError, match=r"costs \$1.11 an hour now, and \$1.00 in the plan"):
        add_live("1.11", limited=False)


@pytest.mark.parametrize(("now", "accepted"), [("1.01", True), ("0.99", True), ("1.02", False), ("0.98", False)])
def test_the_catalogs_price_may_have_changed_by_a_hundredth(now: str, accepted: bool) -> None:
    """Up or down, for rounding; of the same provider, machine, region and purchase."""
    one = candidate("1.00", price_as_of="2026-11-20")
    row: Any = SimpleNamespace(**{**T4, "usd_per_hour": Decimal(now)})
    other: Any = SimpleNamespace(**{**T4, "provider": "gcp", "usd_per_hour": Decimal(9)})

    def check() -> None:
        require_known_prices(
            [one], provider="aws", offers=[row, other], today=date(2026, 11, 21), accept_old=False
        )

    if accepted:
        check()
    else:
        with pytest.raises(NoAnswerError, match=rf"changed from \$1.00 to \${now} an hour"):
            check()


def test_a_price_that_the_catalog_no_longer_has_is_refused() -> None:
    """Unless it was read now."""
    unread = candidate("1.00", purchase="spot", price_as_of="2026-11-20")
    rows: dict[str, Any] = {"provider": "aws", "offers": [], "today": date(2026, 11, 21), "accept_old": False}
    with pytest.raises(NoAnswerError, match=r"no longer has a price for g4dn.xlarge in us-east-1 \(spot\)"):
        require_known_prices([unread], **rows)

    require_known_prices([unread.changed(price_source="list")], **rows)


@pytest.mark.parametrize(("life", "hours"), [(LAUNCH_LIFE, 24), (ESTIMATE_LIFE, 7 * 24)])
def test_a_plan_is_valid_up_to_its_age(life: timedelta, hours: int) -> None:
    """A day for exact calls, a week for catalog prices, and not a second more; 1,000 days are 24,000 h."""
    require_fresh(what="plan.json", made_at=NOW - timedelta(hours=hours), now=NOW, life=life)
    with pytest.raises(NoAnswerError):
        require_fresh(what="plan.json", made_at=NOW - timedelta(hours=hours, seconds=1), now=NOW, life=life)
    with pytest.raises(NoAnswerError, match=rf"plan.json was made 24000 h ago and is valid for {hours} h"):
        require_fresh(what="plan.json", made_at=NOW - timedelta(days=1000), now=NOW, life=life)


def test_an_estimate_is_read_with_its_picks(tmp_path: Path) -> None:
    """Without a decision the first of the choices; the file's own time is that of the estimate."""
    found = read_estimate(write_plan(tmp_path, T4, COLAB))

    assert found is not None
    assert (found.model, found.chosen, len(found.offers), dict(found.versions)) == ("train.py", (0,), 2, {})
    assert abs(datetime.now(tz=UTC) - found.written_at) < timedelta(minutes=5)


@pytest.mark.parametrize(
    ("part", "picks", "chosen"),
    [
        ("decision", {"recommended": 2, "cheaper": 0, "faster": 1}, (2, 0, 1)),
        ("decision", {"recommended": None, "cheaper": 0, "faster": 1}, ()),
        ("recommendation", {"cheapest": 0, "within_deadline": 1, "within_budget": 2, "free": 1}, (2,)),
        ("recommendation", {"cheapest": None, "free": 1}, (1,)),
        ("recommendation", {}, ()),
    ],
)
def test_picks_are_those_of_the_decision(
    tmp_path: Path, part: str, picks: dict[str, int | None], chosen: tuple[int, ...]
) -> None:
    """The recommended one first, and none without it; of an estimate without a decision, the first choice."""
    path = write_plan(tmp_path, T4, T4, T4)
    named = {name: None if index is None else {"offer": index} for name, index in picks.items()}
    path.write_text(json.dumps({**json.loads(path.read_text()), part: named}))
    found = read_estimate(path)

    assert found is not None
    assert found.chosen == chosen


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is not JSON"), ("[]", "its schema is None"), ('{"schema": "other/1"}', "its schema is 'other/1'")],
)
def test_what_is_no_estimate_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """Except for a launch plan, which is no estimate."""
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_estimate(path)
    path.write_text('{"schema": "gpuplan.launch/1"}')
    assert read_estimate(path) is None
