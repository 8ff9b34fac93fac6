"""Which offers: filters that say which of them left nothing over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..errors import NoAnswerError, UsageError, near_names_hint
from .load import load_catalog
from .names import Names
from .rows import Offer, Status

__all__ = ["PURCHASES", "select_offers"]

PURCHASES = ("any", "on-demand", "spot")
GONE: tuple[Status, ...] = ("retired", "historical")  # listed, but not to be had


def select_offers(
    offers: Sequence[Offer],
    *,
    accelerators: Sequence[str] = (),
    providers: Sequence[str] = (),
    regions: Sequence[str] = (),
    purchase: str = "any",
    devices: Sequence[float] = (),
    include_retired: bool = False,
    names: Names | None = None,
) -> tuple[Offer, ...]:
    """Return the offers that pass all filters, in their order; an empty filter lets everything pass.

    Args:
        offers: What to choose from.
        accelerators: Names in any spelling that the catalog knows.
        providers, regions: Names as the offers have them, in any case. An offer whose region is ``any``
            (a notebook, a marketplace) passes only when no region is asked for.
        purchase: ``any``, ``on-demand`` or ``spot``.
        devices: Numbers of GPUs or TPU chips.
        include_retired: Also offers that are listed but can no longer be had.
        names: Spellings of accelerators; those of the packaged catalog by default.

    UsageError for a name that is unknown (with near names) and NoAnswerError (exit 3) when nothing is left;
    it names the filter that removed the last offers.
    """
    spellings = names or load_catalog().names
    wanted = {spellings.resolve(name) for name in accelerators}
    clouds = _known(providers, (offer.provider for offer in offers), what="provider", option="--provider")
    places = _known(regions, (offer.region for offer in offers), what="region", option="--region")
    option = _purchase(purchase)
    left: tuple[Offer, ...] = tuple(offers)
    filters: list[tuple[str, bool, Callable[[Offer], bool]]] = [
        (f"--accelerator {' '.join(sorted(wanted))}", bool(wanted), lambda o: o.accelerator in wanted),
        (f"--provider {' '.join(sorted(clouds))}", bool(clouds), lambda o: o.provider in clouds),
        (f"--region {' '.join(sorted(places))}", bool(places), lambda o: o.region in places),
        (f"--purchase {purchase}", option is not None, lambda o: o.purchase == option),
        (f"--devices {' '.join(map(str, devices))}", bool(devices), lambda o: o.devices in devices),
        ("without --retired", not include_retired, lambda o: o.status not in GONE),
    ]
    for label, active, passes in filters:
        if active:
            left = _filtered(left, passes, label)
    return left


def _filtered(offers: tuple[Offer, ...], passes: Callable[[Offer], bool], label: str) -> tuple[Offer, ...]:
    """Return the offers that pass; NoAnswerError when there were some and none is left."""
    left = tuple(offer for offer in offers if passes(offer))
    if not left:
        gone = label == "without --retired"
        hint = "add `--retired` to see them" if gone else f"leave out or widen `{label}`"
        raise NoAnswerError(f"no offer is left after `{label}` ({len(offers)} before it)", hint=hint)
    return left


def _known(wanted: Sequence[str], names: Iterable[str], *, what: str, option: str) -> set[str]:
    """Return names as the offers spell them; UsageError with near names for one that no offer has."""
    if not wanted:
        return set()
    known = set(names)
    by_lower = {name.lower(): name for name in known}
    found = set()
    for name in wanted:
        if name.lower() not in by_lower:
            hint = near_names_hint(name, known, see_all="gpuplan offers")
            raise UsageError(f"unknown {what} `{name}` in `{option}`", hint=hint)
        found.add(by_lower[name.lower()])
    return found


def _purchase(purchase: str) -> str | None:
    """Return the purchase option as the offers spell it; None for any; UsageError for anything else."""
    if purchase not in PURCHASES:
        choices = ", ".join(f"`{choice}`" for choice in PURCHASES)
        raise UsageError(f"unknown purchase option `{purchase}`", hint=f"choose one of {choices}")
    return None if purchase == "any" else purchase.replace("-", "_")
