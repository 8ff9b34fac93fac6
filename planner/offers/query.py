"""Selection of offers: by filters, and the reference price of each accelerator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal

from ..errors import NoAnswerError, UsageError, near_names_hint
from .aliases import PROVIDER_ALIASES, AcceleratorNames
from .catalog import load_catalog
from .rows import Offer, Status

PURCHASES = ("any", "on-demand", "spot")
UNAVAILABLE: tuple[Status, ...] = ("retired", "historical")  # listed, but no longer available


def sort_by_device_price(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """Sort offers by price per device, cheapest first, unknown prices last; the sort is stable."""

    def key(offer: Offer) -> tuple[bool, Decimal]:
        usd = offer.usd_per_hour
        return usd is None, (usd or Decimal(0)) / Decimal(str(offer.devices))

    return tuple(sorted(offers, key=key))


def select_offers(
    offers: Sequence[Offer],
    *,
    accelerators: Sequence[str] = (),
    providers: Sequence[str] = (),
    regions: Sequence[str] = (),
    purchase: str = "any",
    devices: Sequence[float] = (),
    include_retired: bool = False,
    names: AcceleratorNames | None = None,
) -> tuple[Offer, ...]:
    """Return the offers that pass all filters, in their order; an empty filter passes every offer.

    Args:
        offers: Offers to filter.
        accelerators: Accelerator names or aliases.
        providers, regions: Names as in the offers, case-insensitive. An offer with region ``any`` (a
            notebook, a marketplace) passes only without a region filter.
        purchase: ``any``, ``on-demand`` or ``spot``.
        devices: Numbers of GPUs or TPU chips.
        include_retired: Include offers that are listed but no longer available.
        names: Accelerator names and aliases; by default those of the packaged catalog.

    UsageError for an unknown name (listing similar names). NoAnswerError (exit code 3) if no offer remains,
    naming the filter that removed the last one.
    """
    spellings = names or load_catalog().names
    wanted = {spellings.resolve(name) for name in accelerators}
    clouds = _match_names(
        providers, (offer.provider for offer in offers), what="provider", option="--provider"
    )
    places = _match_names(regions, (offer.region for offer in offers), what="region", option="--region")
    option = _parse_purchase(purchase)
    left: tuple[Offer, ...] = tuple(offers)
    filters: list[tuple[str, bool, Callable[[Offer], bool]]] = [
        (f"--accelerator {' '.join(sorted(wanted))}", bool(wanted), lambda o: o.accelerator in wanted),
        (f"--provider {' '.join(sorted(clouds))}", bool(clouds), lambda o: o.provider in clouds),
        (f"--region {' '.join(sorted(places))}", bool(places), lambda o: o.region in places),
        (f"--purchase {purchase}", option is not None, lambda o: o.purchase == option),
        (f"--devices {' '.join(map(str, devices))}", bool(devices), lambda o: o.devices in devices),
        ("without --retired", not include_retired, lambda o: o.status not in UNAVAILABLE),
    ]
    for label, active, passes in filters:
        if active:
            left = _apply_filter(left, passes, label)
    return left


def _apply_filter(
    offers: tuple[Offer, ...], passes: Callable[[Offer], bool], label: str
) -> tuple[Offer, ...]:
    """Return the offers that pass; NoAnswerError if a filter removes the last one."""
    left = tuple(offer for offer in offers if passes(offer))
    if not left:
        gone = label == "without --retired"
        hint = "add `--retired` to include them" if gone else f"remove or widen `{label}`"
        raise NoAnswerError(f"no offer matches `{label}` ({len(offers)} before this filter)", hint=hint)
    return left


def _match_names(wanted: Sequence[str], names: Iterable[str], *, what: str, option: str) -> set[str]:
    """Return names as spelled in the offers; UsageError with similar names for an unknown one."""
    if not wanted:
        return set()
    known = set(names)
    by_lower = {name.lower(): name for name in known}
    found = set()
    for name in wanted:
        if name.lower() not in by_lower:
            aliases = PROVIDER_ALIASES if what == "provider" else {}
            hint = near_names_hint(name, known, see_all="gpuplan offers", aliases=aliases)
            raise UsageError(f"unknown {what} `{name}` in `{option}`", hint=hint)
        found.add(by_lower[name.lower()])
    return found


def _parse_purchase(purchase: str) -> str | None:
    """Return the purchase option as spelled in the offers; None for any; UsageError for anything else."""
    if purchase not in PURCHASES:
        choices = ", ".join(f"`{choice}`" for choice in PURCHASES)
        raise UsageError(f"unknown purchase option `{purchase}`", hint=f"choose one of {choices}")
    return None if purchase == "any" else purchase.replace("-", "_")
