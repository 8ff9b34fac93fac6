"""Comparison of buying a machine with renting one: the month from which buying is cheaper."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import NoAnswerError, UsageError
from ..limits import MAX_AMOUNT, require_not_negative, require_positive
from ..units import SECONDS_PER_HOUR
from ..workload.resize import Resizer
from .estimate_workload import build_device_estimator, estimate_in_context
from .script_layout import follow_script, limit_to_one_device, uses_one_device
from .select import OfferContext

if TYPE_CHECKING:
    from ..offers.catalog import Catalog
    from ..offers.rows import Offer
    from .question import EstimateContext, Question


SCHEMA = "gpuplan.rig/1"
WEEKS_PER_MONTH = 52.1775 / 12
HOURS_PER_WEEK = 168.0
MONTHS_PER_YEAR = 12.0
W_PER_KW = 1000.0
FARTHEST_MONTHS = 240
USEFUL_MONTHS = 60  # after five years a machine is replaced (assumed, as in straight-line depreciation)
BISECTIONS = 60
RentalOption = tuple[dict[str, str], float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedMachine:
    """A machine to buy, and its use.

    Args:
        purchase_usd: Price of the whole machine [USD].
        value_lost_per_year: Share of its value lost in a year [-].
        power_w: Power during training [W].
        idle_power_w: Power during the rest of the week; 0 if switched off [W].
        electricity_usd_per_kwh: Price of electricity [USD/kWh].
        hours_a_week: Hours of training in a week [h].

    Raises:
        UsageError: A number out of range.
    """

    purchase_usd: float
    value_lost_per_year: float = 0.3
    power_w: float
    idle_power_w: float = 0.0
    electricity_usd_per_kwh: float = 0.17
    hours_a_week: float = 20.0

    def __post_init__(self) -> None:
        require_positive(self.purchase_usd, what="--price", example="2500")
        if not 0 < self.power_w <= MAX_AMOUNT:
            raise UsageError(
                f"`--assume power_w={self.power_w:g}` must be above zero", hint="try `--assume power_w=450`"
            )
        require_positive(self.hours_a_week, what="--hours-a-week", example="20")
        if self.hours_a_week > HOURS_PER_WEEK:
            raise UsageError(
                f"--hours-a-week {self.hours_a_week:g}: a week has 168", hint="try `--hours-a-week 20`"
            )
        if not 0 <= self.value_lost_per_year < 1:
            raise UsageError(
                "`--assume value_lost_per_year` must be at least 0 and less than 1",
                hint="try `--assume value_lost_per_year=0.3`",
            )
        require_not_negative(self.electricity_usd_per_kwh, what="--electricity", example="0.17")
        if not 0 <= self.idle_power_w <= MAX_AMOUNT:
            raise UsageError(
                f"`--assume idle_power_w={self.idle_power_w:g}` must be at least zero",
                hint="try `--assume idle_power_w=50`",
            )


def owning_usd(rig: OwnedMachine, *, months: float) -> float:
    """Return the cost of owning a machine for some months, including its sale at the end [USD].

    purchase x (1 - (1 - value lost per year)^(months / 12)) + energy x electricity price. In the example, the
    machine loses $600 of value, and 521.8 kWh cost $0.17 each.

    Example:
        >>> round(owning_usd(OwnedMachine(purchase_usd=2000.0, power_w=500.0), months=12.0), 2)
        688.7
    """
    left: float = (1.0 - rig.value_lost_per_year) ** (months / MONTHS_PER_YEAR)
    used_h = rig.hours_a_week * WEEKS_PER_MONTH * months
    idle_h = (HOURS_PER_WEEK - rig.hours_a_week) * WEEKS_PER_MONTH * months
    kwh = (used_h * rig.power_w + idle_h * rig.idle_power_w) / W_PER_KW
    return rig.purchase_usd * (1.0 - left) + kwh * rig.electricity_usd_per_kwh


def renting_usd(*, usd_per_hour: float, hours_a_week: float, speed: float, months: float) -> float:
    """Return the cost of renting for the same work over some months: price x hours / speed [USD].

    Args:
        usd_per_hour: Price of the rented machine including all fees, and of waiting for it [USD/h].
        hours_a_week: Hours a week that the owned machine needs for the work [h].
        speed: Speed of the rented machine relative to the owned one [-].
        months: Number of months [-].

    Example:
        >>> round(renting_usd(usd_per_hour=0.5, hours_a_week=20.0, speed=2.0, months=12.0), 2)
        260.89
    """
    return usd_per_hour * hours_a_week / speed * WEEKS_PER_MONTH * months


def months_to_break_even(
    rig: OwnedMachine, *, usd_per_hour: float, speed: float = 1.0, wait_value_usd: float = 0.0
) -> float | None:
    """Return the months after which owning costs no more than renting; None if more than 20 years [months].

    A machine loses most of its value in the first year, so owning starts out more expensive and gains on renting
    month by month: there is at most one crossing, which is found by bisection.

    Args:
        rig: The machine and its use.
        usd_per_hour: Price of the rented machine [USD/h].
        speed: Speed of the rented machine relative to the owned one [-].
        wait_value_usd: Value of an hour of waiting: for the rented machine, less that for the owned one [USD/h].
    """
    total = usd_per_hour + wait_value_usd * (1.0 - speed)

    def is_owning_dearer(months: float) -> bool:
        rent = renting_usd(usd_per_hour=total, hours_a_week=rig.hours_a_week, speed=speed, months=months)
        return owning_usd(rig, months=months) > rent

    low, high = 1e-6, float(FARTHEST_MONTHS)
    if is_owning_dearer(high):
        return None
    if not is_owning_dearer(low):
        return 0.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_owning_dearer(middle) else (low, middle)
    return high


@dataclass(frozen=True, slots=True, kw_only=True)
class BuyRentComparison:
    """Comparison of an owned machine with a rented one.

    Args:
        rig: The owned machine and its use.
        accelerator: Accelerator of the owned machine.
        rented: Provider, instance type, region and purchase option of the rented machine.
        usd_per_hour: Price of the rented machine [USD/h].
        speed: Speed of the rented machine relative to the owned one; 1 for the same accelerator [-].
        months: Months to break even; None if more than 20 years.
        wait_value_usd: Value of an hour of waiting [USD/h].
    """

    rig: OwnedMachine
    accelerator: str
    rented: dict[str, str]
    usd_per_hour: float
    speed: float
    months: float | None
    wait_value_usd: float = 0.0

    def cost_usd(self, months: float) -> tuple[float, float]:
        """Return the cost of owning and of renting over some months, with the wait for a slower machine [USD]."""
        total = self.usd_per_hour + self.wait_value_usd * (1.0 - self.speed)
        rent = renting_usd(usd_per_hour=total, hours_a_week=self.rig.hours_a_week, speed=self.speed, months=months)
        return owning_usd(self.rig, months=months), rent

    def to_json(self) -> dict[str, Any]:
        """Return one entry of `rivals[]`."""
        years = {}
        for year in (1, 2, 3):
            own, rent = self.cost_usd(MONTHS_PER_YEAR * year)
            years[str(year)] = {"own_usd": f"{own:.2f}", "rent_usd": f"{rent:.2f}"}
        return {
            **self.rented,
            "usd_per_hour": f"{self.usd_per_hour:.6f}",
            "speed": self.speed,
            "months_to_break_even": self.months,
            "after_years": years,
        }


def compare_buy_rent(
    rig: OwnedMachine, *, accelerator: str, rivals: list[RentalOption], wait_value_usd: float = 0.0
) -> tuple[BuyRentComparison, ...]:
    """Compare an owned machine with each rented one, sorted by the total of the work ((price + wait) / speed).

    Args:
        rig: The owned machine and its use.
        accelerator: Accelerator of the owned machine.
        rivals: Names, price [USD/h] and relative speed of each rented machine.
        wait_value_usd: Value of an hour of waiting [USD/h].
    """
    verdicts = [
        BuyRentComparison(
            rig=rig,
            accelerator=accelerator,
            rented=names,
            usd_per_hour=usd,
            speed=speed,
            months=months_to_break_even(rig, usd_per_hour=usd, speed=speed, wait_value_usd=wait_value_usd),
            wait_value_usd=wait_value_usd,
        )
        for names, usd, speed in rivals
    ]
    return tuple(sorted(verdicts, key=lambda one: (one.usd_per_hour + wait_value_usd) / one.speed))


T = TypeVar("T")
RENTALS_SHOWN = 5


def find_rentals_by_price(catalog: Catalog, accelerator: str, devices: float) -> list[RentalOption]:
    """Return the cheapest rented machines with the same accelerator; their relative speed is 1.

    Raises:
        NoAnswerError: No such machine is offered.
    """
    found = [
        (float(offer.usd_per_hour), offer)
        for offer in catalog.offers
        if offer.accelerator == accelerator
        and offer.devices == devices
        and offer.usd_per_hour
        and offer.complete
        and offer.status in ("active", "legacy")
    ]
    if not found:
        raise NoAnswerError(
            f"no offer in the catalog has {devices:g} {accelerator}",
            hint="name a MODEL to compare machines with other accelerators by their speed",
        )
    found.sort(key=lambda pair: pair[0])
    return [(_names(offer), usd, 1.0) for usd, offer in _distinct(found, lambda offer: offer)][:RENTALS_SHOWN]


def find_rentals_for_work(
    context: EstimateContext, question: Question, *, accelerator: str, devices: float
) -> list[RentalOption]:
    """Return the rented machines of the least total for some work, with their relative speed.

    Hourly price = bill of the work / hours of the work, including boot, disk and fees.

    Raises:
        UsageError: The length of the run is unknown.
        NoAnswerError: The owned machine or every rented one cannot run the work.
    """
    own_h = _own_hours(context, question, accelerator, devices)
    estimate = estimate_in_context(context, question)
    able = [
        (one.total_usd, one)
        for one in estimate.list_takable()
        if one.bill and one.bill.mid_nano and one.run_time_s and one.total_usd is not None
    ]
    if not able:
        raise NoAnswerError("no rented machine can run this work", hint="select other offers")
    able.sort(key=lambda pair: pair[0])
    rivals = []
    for _, one in _distinct(able, lambda one: one.offer):
        if one.bill is not None and one.run_time_s is not None:
            hours = one.run_time_s.mid / SECONDS_PER_HOUR
            rivals.append((_names(one.offer), float(one.bill.total.mid) / hours, own_h / hours))
    return rivals[:RENTALS_SHOWN]


def _own_hours(context: EstimateContext, question: Question, accelerator: str, devices: float) -> float:
    """Return the time of the work on the owned machine [h]."""
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
        usd_per_hour=None,
        price_as_of=None,
        price_source=None,
        status="active",
    )
    followed = follow_script(question, context.workload)
    one_device = uses_one_device(question, context.workload)
    estimator = build_device_estimator(
        followed, context.predictor, resized=context.resized or Resizer(context.workload)
    )
    rig = OfferContext(offer, context.catalog.accelerators[accelerator], "local")
    device_estimate = estimator.estimate(context.workload, limit_to_one_device(rig) if one_device else rig)
    if device_estimate.memory.fits is False:
        raise NoAnswerError(f"the work does not fit on {accelerator}", hint="try a smaller `--batch-size`")
    if device_estimate.train_time_s is None:
        raise UsageError(
            f"the time of `{context.workload.model}` on {accelerator} is unknown",
            hint="add `--samples N --epochs N`, or `--steps N`",
        )
    return device_estimate.train_time_s.mid / SECONDS_PER_HOUR


def _distinct(pairs: Iterable[tuple[float, T]], offer_of: Callable[[T], Offer]) -> list[tuple[float, T]]:
    """Return the first of each instance type and purchase option."""
    first: dict[tuple[str, str], tuple[float, T]] = {}
    for pair in pairs:
        offer = offer_of(pair[1])
        first.setdefault((offer.instance_type, offer.purchase), pair)
    return list(first.values())


def _names(offer: Offer) -> dict[str, str]:
    return {
        "provider": offer.provider,
        "instance_type": offer.instance_type,
        "region": offer.region,
        "purchase": offer.purchase,
    }
