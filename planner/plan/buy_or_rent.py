"""Comparison of buying a machine with renting one: the month from which buying is cheaper."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ..errors import NoAnswerError, UsageError
from ..limits import MAX_AMOUNT, require_not_negative, require_positive
from ..records import Frozen
from ..units import SECONDS_PER_HOUR, Interval
from .breakeven import Alternative, Alternatives, has_epochs
from .estimate_workload import estimate_in_context
from .question import Filters, OfferContext, select
from .ranking import NEVER_TAKEN
from .timeline import build_access

if TYPE_CHECKING:
    from ..offers.catalog import Catalog
    from .cost_terms import CostTerms, Currency
    from .question import EstimateContext, Question


SCHEMA = "gpuplan.rig/1"
WEEKS_PER_MONTH = 52.1775 / 12
HOURS_PER_WEEK = 168.0
MONTHS_PER_YEAR = 12.0
W_PER_KW = 1000.0
FARTHEST_MONTHS = 240
USEFUL_MONTHS = 60  # after five years a machine is replaced (assumed, as in straight-line depreciation)
BISECTIONS = 60
RENTALS_SHOWN = 5
YEARS = (1, 2, 3)


class OwnedMachine(Frozen):
    """A machine to buy, and its use.

    Raises:
        UsageError: A number out of range.
    """

    purchase_usd: float  # price of the whole machine [USD]
    value_lost_per_year: float = 0.3  # share of its value lost in a year [-]
    power_w: float  # power during training [W]
    idle_power_w: float = 0.0  # power during the rest of the week; 0 if switched off [W]
    electricity_usd_per_kwh: float = 0.17  # price of electricity [USD/kWh]
    hours_a_week: float = 20.0  # hours of training in a week [h]

    def __post_init__(self) -> None:
        require_positive(self.purchase_usd, what="--price", example="2500")
        if not 0 < self.power_w <= MAX_AMOUNT:
            raise UsageError(
                f"`--assume power_w={self.power_w:g}` must be above zero", hint="try `--assume power_w=450`"
            )
        require_positive(self.hours_a_week, what="--hours-a-week", example="20", most=HOURS_PER_WEEK)
        if not 0 <= self.value_lost_per_year < 1:
            raise UsageError(
                "`--assume value_lost_per_year` must be at least 0 and less than 1",
                hint="try `--assume value_lost_per_year=0.3`",
            )
        require_not_negative(self.electricity_usd_per_kwh, what="usd_per_kwh", example="0.17")
        if not 0 <= self.idle_power_w <= MAX_AMOUNT:
            raise UsageError(
                f"`--assume idle_power_w={self.idle_power_w:g}` must be at least zero",
                hint="try `--assume idle_power_w=50`",
            )

    @property
    def hours_a_month(self) -> float:
        """Hours of training in a month [h]."""
        return self.hours_a_week * WEEKS_PER_MONTH

    @property
    def idle_usd_per_month(self) -> float:
        """Electricity of the hours of a month without training [USD]."""
        idle_h = HOURS_PER_WEEK * WEEKS_PER_MONTH - self.hours_a_month
        return idle_h * self.idle_power_w / W_PER_KW * self.electricity_usd_per_kwh

    def value_lost_usd(self, months: float) -> float:
        """Return the value that the machine loses in some months [USD].

        purchase x (1 - (1 - value lost per year)^(months / 12))

        Example:
            >>> round(OwnedMachine(purchase_usd=2000.0, power_w=500.0).value_lost_usd(12.0), 2)
            600.0
        """
        left: float = (1.0 - self.value_lost_per_year) ** (months / MONTHS_PER_YEAR)
        return self.purchase_usd * (1.0 - left)


def months_to_break_even(rig: OwnedMachine, *, saved_usd_per_month: float) -> float | None:
    """Return the months after which a machine has saved the value it lost; None for more than 20 years [months].

    A machine loses most of its value in the first year, so owning starts out more expensive and gains on renting
    month by month: there is at most one crossing, which is found by bisection. What renting costs more than
    running the machine is without the purchase.
    """

    def is_owning_dearer(months: float) -> bool:
        return rig.value_lost_usd(months) > saved_usd_per_month * months

    low, high = 1e-6, float(FARTHEST_MONTHS)
    if is_owning_dearer(high):
        return None
    if not is_owning_dearer(low):
        return 0.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_owning_dearer(middle) else (low, middle)
    return high


class MonthlyWork(Frozen):
    """A month of the work on a machine."""

    selected: OfferContext  # the machine
    hours: float  # machine time [h]
    money_usd: Interval  # amount paid [USD]
    others_usd: float  # what the total of the decision has besides: the user's hours and the wait [USD]

    @property
    def total_usd(self) -> Interval:
        """Total that decides, over the range of the money [USD]."""
        return self.money_usd.plus(self.others_usd)

    @property
    def hours_a_week(self) -> float:
        """Machine time of a week [h]."""
        return self.hours / WEEKS_PER_MONTH


class BuyOrRent(Frozen):
    """Comparison of a machine to buy with the machines to rent that do its work of a week in a week."""

    rig: OwnedMachine  # the machine to buy, and its use
    own: MonthlyWork  # a month of the work on it; its money is electricity
    rentals: tuple[MonthlyWork, ...]  # the same on the machines to rent, the least total first
    currency: Currency  # currency of the sentences
    question: Question | None = None  # values of hours; None where prices alone are compared

    @classmethod
    def of(cls, rig: OwnedMachine, own: MonthlyWork, works: Iterable[MonthlyWork], terms: CostTerms) -> BuyOrRent:
        """Compare with the best machines to rent, one of each instance type and purchase option.

        Raises:
            NoAnswerError: None can do the work.
        """
        first: dict[tuple[str, str], MonthlyWork] = {}
        for one in sorted(works, key=lambda one: one.total_usd.mid):
            calendar_h = build_access(one.selected, terms).calendar_hours(one.hours_a_week)
            if calendar_h <= HOURS_PER_WEEK:
                first.setdefault((one.selected.offer.instance_type, one.selected.offer.purchase), one)
        if not first:
            raise NoAnswerError(
                f"nothing to rent does {rig.hours_a_week:g} h of a {own.selected.offer.accelerator} within a week",
                hint="try fewer `--hours-a-week`",
            )
        return cls(rig=rig, own=own, rentals=tuple(first.values())[:RENTALS_SHOWN], currency=terms.currency)

    @property
    def running_usd(self) -> float:
        """Total of a month of owning, purchase aside [USD]."""
        return self.own.total_usd.mid + self.rig.idle_usd_per_month

    @property
    def is_worth_buying(self) -> bool:
        """Whether the machine pays off before it is replaced."""
        months = self.find_months(self.rentals[0].total_usd.mid)
        return months is not None and months <= USEFUL_MONTHS

    def find_months(self, rent_usd: float) -> float | None:
        """Return the months to break even at the total of a month's rent; None for more than 20 years [months]."""
        return months_to_break_even(self.rig, saved_usd_per_month=rent_usd - self.running_usd)

    def owning_usd(self, months: float) -> float:
        """Return the total of owning the machine for some months, including its sale at the end [USD]."""
        return self.rig.value_lost_usd(months) + self.running_usd * months

    def rival_json(self, one: MonthlyWork) -> dict[str, Any]:
        """Return one entry of `rivals[]`."""
        offer, total_usd, years = one.selected.offer, one.total_usd, {}
        for year in YEARS:
            own_usd, rent_usd = (self.owning_usd(MONTHS_PER_YEAR * year), MONTHS_PER_YEAR * year * total_usd.mid)
            years[str(year)] = {"own_usd": f"{own_usd:.2f}", "rent_usd": f"{rent_usd:.2f}"}
        return {
            "provider": offer.provider,
            "instance_type": offer.instance_type,
            "region": offer.region,
            "purchase": offer.purchase,
            "usd_per_hour": f"{one.money_usd.mid / one.hours:.6f}",
            "speed": self.own.hours / one.hours,
            "hours_a_week": one.hours_a_week,
            "months_to_break_even": self.find_months(total_usd.mid),
            "months_low": self.find_months(total_usd.high),
            "months_high": self.find_months(total_usd.low),
            "after_years": years,
        }


def compare_by_price(
    rig: OwnedMachine, *, accelerator: str, devices: float, catalog: Catalog, terms: CostTerms
) -> BuyOrRent:
    """Compare buying a machine with renting the same accelerators, hour for hour.

    Raises:
        NoAnswerError: No such machine is offered, or none for the hours.
    """
    filters = Filters(accelerators=(accelerator,), devices=(devices,), include_local=False)
    found = [
        one
        for one in select(filters, catalog=catalog).offers
        if one.offer.usd_per_hour and one.offer.complete and one.availability not in NEVER_TAKEN
    ]
    if not found:
        raise NoAnswerError(
            f"no offer in the catalog has {devices:g} {accelerator}",
            hint="name a MODEL to compare machines with other accelerators by their speed",
        )
    works = []
    for one in (_build_own_offer(rig, accelerator, devices, catalog), *found):
        usd = rig.hours_a_month * float(one.offer.usd_per_hour or 0)
        factor = math.exp(terms.price_half_width(one.offer))  # by which the price may have changed since its date
        money_usd = Interval(low=usd / factor, mid=usd, high=usd * factor)
        aged_usd = usd * terms.compute_aged_share(one.offer)
        month = MonthlyWork(selected=one, hours=rig.hours_a_month, money_usd=money_usd, others_usd=aged_usd)
        works.append(month)
    return BuyOrRent.of(rig, works[0], works[1:], terms)


def compare_for_work(
    rig: OwnedMachine, *, accelerator: str, devices: float, context: EstimateContext, question: Question
) -> BuyOrRent:
    """Compare buying a machine with what `estimate` could take for some work, by the total of its decision.

    Raises:
        UsageError: The length of the run is unknown.
        NoAnswerError: The machine cannot run the work, or no other does it within the week.
    """
    own = _build_own_offer(rig, accelerator, devices, context.catalog)
    selection = replace(context.selection, offers=(own, *context.selection.offers))
    estimate = estimate_in_context(replace(context, selection=selection), question)
    every = Alternatives(estimate=estimate, context=context, question=question)
    place = next(row for row, selected in enumerate(every.offers.contexts) if selected is own)
    bought = every.offers[place]
    if bought.device_estimate.memory.fits is False:
        raise NoAnswerError(f"the work does not fit on {accelerator}", hint="try a smaller `--batch-size`")
    if bought.timeline is None:
        raise UsageError(
            f"the time of `{context.workload.model}` on {accelerator} is unknown",
            hint="add `--samples N --epochs N`, or `--steps N`",
        )
    workload, length = context.workload, rig.hours_a_month * SECONDS_PER_HOUR / bought.timeline.total_s.mid
    epochs, runs = None, max(1, round(length))
    if has_epochs(workload):  # one run a month, so that a short one is not set up a thousand times
        epochs, runs = max(1, round(length * (workload.total_epochs or 1))), 1
    rows = [place, *(row for row in estimate.takable if row != place)]
    table, _ = every.price(rows, epochs=epochs, runs=runs)
    ways = [Alternative(name="", offer=one, runs=runs) for one in table]
    scale = rig.hours_a_month / ways[0].machine_h.mid
    work, *works = (
        MonthlyWork(
            selected=way.offer.selected,
            hours=scale * way.machine_h.mid,
            money_usd=way.money_usd.scaled(scale),
            others_usd=scale * (way.total_usd - way.money_usd.mid),
        )
        for way in ways
    )
    return replace(BuyOrRent.of(rig, work, works, context.terms), question=question)


def _build_own_offer(rig: OwnedMachine, accelerator: str, devices: float, catalog: Catalog) -> OfferContext:
    """Return a machine to buy as an offer at the price of its electricity."""
    from ..offers.rows import Offer

    offer = Offer(
        provider="own",
        instance_type="rig",
        accelerator=accelerator,
        devices=devices,
        vcpus=None,
        memory_gib=None,
        region="own",
        purchase="on_demand",
        usd_per_hour=Decimal(repr(rig.power_w / W_PER_KW * rig.electricity_usd_per_kwh)),
        price_as_of=None,
        price_source=None,
        status="active",
    )
    return OfferContext(offer, catalog.accelerators[accelerator], "local")
