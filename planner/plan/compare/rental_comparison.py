"""Rented machines to compare with an owned one: effective hourly price and relative speed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from ...errors import NoAnswerError, UsageError
from ...units import SECONDS_PER_HOUR
from ..estimate_workload import build_device_estimator, estimate_in_context
from ..script_layout import follow_script
from ..select import OfferContext

if TYPE_CHECKING:
    from ...offers.catalog import Catalog
    from ...offers.rows import Offer
    from ..question import EstimateContext, Question

T = TypeVar("T")
RentalOption = tuple[dict[str, str], float, float]
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
    """Return the rented machines with the lowest bills for some work, with their relative speed.

    Hourly price = bill of the work / hours of the work, including boot, disk and fees.

    Raises:
        UsageError: The length of the run is unknown.
        NoAnswerError: The owned machine or every rented one cannot run the work.
    """
    own_h = _own_hours(context, question, accelerator, devices)
    estimate = estimate_in_context(context, question)
    able = [
        (float(one.bill.total.mid), one)
        for one in estimate.offers
        if one.bill
        and one.bill.mid_nano
        and one.device_estimate.memory.fits
        and not one.device_estimate.is_ruled_out
        and one.offer.complete
        and one.sessions == 1
    ]
    if not able:
        raise NoAnswerError("no rented machine can run this work", hint="select other offers")
    able.sort(key=lambda pair: pair[0])
    rivals = []
    for usd, one in _distinct(able, lambda one: one.offer):
        hours = one.run_time_s.mid / SECONDS_PER_HOUR if one.run_time_s else own_h
        rivals.append((_names(one.offer), usd / hours, own_h / hours))
    return rivals[:RENTALS_SHOWN]


def _own_hours(context: EstimateContext, question: Question, accelerator: str, devices: float) -> float:
    """Return the time of the work on the owned machine [h]."""
    from ...offers.rows import Offer

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
    estimator = build_device_estimator(followed, context.predictor, resized=context.resized)
    rig = OfferContext(offer, context.catalog.accelerators[accelerator], None, "local")
    device_estimate = estimator.estimate(context.workload, rig)
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
