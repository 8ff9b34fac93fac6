"""Question about a workload: filters and limits, the selected offers, and the context in which it is answered."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..errors import NoAnswerError, UsageError, near_names_hint
from ..limits import MAX_DEVICES, MAX_DURATION_S, MAX_HOSTS, require_count, require_not_negative, require_positive
from ..offers.clouds import NOTEBOOKS, OWNED
from ..predict.sharding import Sharding
from ..records import Frozen
from .device_estimate import ScalingMode
from .preemption import SpotTerms

if TYPE_CHECKING:
    from ..offers.catalog import Catalog
    from ..offers.costs import HostKind
    from ..offers.notebooks import SessionLimits
    from ..offers.refresh.quotas import AccountQuotas, QuotaCheck
    from ..offers.rows import Accelerator, Availability, AvailabilityRule, MachineLinks, Offer
    from ..offers.spot import PreemptionData
    from ..predict.step_time import StepPredictor
    from ..workload.model import Workload
    from ..workload.options import WorkloadOptions
    from .cost_terms import CostTerms
    from .input_pipeline import InputPipeline


# Members of the European Union since 2020, and of the European Economic Area (ISO 3166-1).
EU = frozenset({
    "AT", "BE", "BG", "CY", "CZ", "DE", "DK", "EE", "ES", "FI", "FR", "GR", "HR", "HU", "IE", "IT", "LT", "LU",
    "LV", "MT", "NL", "PL", "PT", "RO", "SE", "SI", "SK",
})  # fmt: skip
JURISDICTIONS: Mapping[str, frozenset[str]] = {"eu": EU, "eea": EU | {"IS", "LI", "NO"}, "uk": frozenset({"GB"})}
CALLED = {"europe": "eu", "european union": "eu", "britain": "uk", "england": "uk", "usa": "US"}
CODE_LENGTH = 2


def resolve_countries(names: Iterable[str], *, known: Iterable[str]) -> frozenset[str]:
    """Return the countries of jurisdictions or ISO 3166-1 codes, in any case; `known` ones have machines.

    Raises:
        UsageError: A name that is neither, or a country without machines.

    Example:
        >>> sorted(resolve_countries(["CH", "uk"], known=["CH", "GB"]))
        ['CH', 'GB']
    """
    countries: set[str] = set()
    codes = set(known)
    for name in names:
        if name.lower() in JURISDICTIONS:
            countries |= JURISDICTIONS[name.lower()]
        elif len(name) == CODE_LENGTH and name.upper() in codes:
            countries.add(name.upper())
        else:
            known_names = [*JURISDICTIONS, *sorted(codes)]
            hint = near_names_hint(name, known_names, see_all="gpuplan offers", aliases=CALLED)
            raise UsageError(f"unknown residency `{name}` in `--residency`", hint=hint)
    return frozenset(countries)


def rent_hosts(offer: Offer, hosts: int) -> Offer:
    """Return an offer of several equal machines, with devices, vCPUs, memory and price summed."""
    if hosts == 1:
        return offer
    price = offer.usd_per_hour
    return replace(
        offer,
        hosts=hosts,
        devices=hosts * offer.devices,
        vcpus=None if offer.vcpus is None else hosts * offer.vcpus,
        memory_gib=None if offer.memory_gib is None else hosts * offer.memory_gib,
        usd_per_hour=None if price is None else hosts * price,
    )


def expand_hosts(offers: Iterable[Offer], hosts: Sequence[int], *, own: Offer | None) -> tuple[Offer, ...]:
    """Return every offer for each number of machines, as far as it can be combined.

    Notebooks, the user's own machines, shares of a GPU, parts of a machine and hosts without accelerators are
    available as single machines only.

    Raises:
        NoAnswerError: No offer can be combined, and single machines are not requested.
    """
    from ..offers.rows import CPU

    def joins(offer: Offer) -> bool:
        alone = offer.provider in (*OWNED, *NOTEBOOKS) or offer is own or offer.accelerator == CPU
        return offer.complete and offer.devices >= 1 and not alone

    found = tuple(rent_hosts(offer, count) for offer in offers for count in hosts if count == 1 or joins(offer))
    if not found:
        raise NoAnswerError(
            "none of these offers can be rented as several machines that share the work",
            hint="add `--hosts 1`, or select other offers",
        )
    return found


class Filters(Frozen):
    """Filters of offers; an empty filter passes all.

    Raises:
        UsageError: A number of devices or machines that is not positive.
    """

    accelerators: tuple[str, ...] = ()  # names or aliases of accelerators or families
    providers: tuple[str, ...] = ()  # names as in the catalog
    regions: tuple[str, ...] = ()
    purchase: Literal["on-demand", "spot", "any"] = "any"  # purchase option: on demand, spot, or any
    devices: tuple[float, ...] = ()  # numbers of GPUs or TPU chips of one machine [-]
    hosts: tuple[int, ...] = (1,)  # numbers of equal machines that share the work [-]
    include_retired: bool = False  # whether to include offers that can no longer be rented
    include_local: bool = True  # whether to include this machine, at $0
    # Allowed locations of the data: `eu`, `eea`, `uk` or countries; the user's own machines always pass
    residency: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for count in self.devices:
            require_positive(count, what="--devices", example="1", most=MAX_DEVICES)
        for number in self.hosts:
            require_count(number, what="--hosts", example="2", most=MAX_HOSTS)


class OfferContext(NamedTuple):
    """An offer with its device, host kind, links, limits and availability."""

    offer: Offer  # row of the catalog, or this machine
    accelerator: Accelerator | None  # device of the offer; None if the catalog does not describe it
    place: HostKind = "vm"  # host kind, which selects the assumptions on start-up and shutdown
    links: MachineLinks | None = None  # links between the devices; None for the usual ones
    limits: SessionLimits | None = None  # limits of a notebook; None for other machines
    # Comparison with the account's quota; None if not asked for, or not readable at the provider
    quota: QuotaCheck | None = None
    rule: AvailabilityRule | None = None  # rule of the catalog on its availability; None: it can be had now

    @property
    def mesh_devices(self) -> float:
        """Number of devices that a script sees on the machine; a chip of TPU v2 or v3 is two [-]."""
        return self.offer.devices * (self.accelerator.cores_per_chip if self.accelerator else 1)

    @property
    def is_refused(self) -> bool:
        """Whether the account's quota is known to be too small for the offer."""
        return self.quota is not None and self.quota.state == "too_small"

    @property
    def availability(self) -> Availability:
        """Whether the offer can be had."""
        if self.offer.status in ("retired", "historical"):
            return "retired"
        if self.is_refused:
            return "quota"
        return "now" if self.rule is None else self.rule.state

    @property
    def needs(self) -> str:
        """What is needed to get the machine; empty for nothing."""
        if self.quota is not None and self.quota.state != "enough":
            return self.quota.why
        return "" if self.rule is None else self.rule.needs


class Selection(Frozen):
    """The offers that pass the filters."""

    offers: tuple[OfferContext, ...]  # selected offers in the catalog's order
    catalog_as_of: str  # date of the newest price
    spot: PreemptionData | None = None  # preemption data of the catalog; None if no offer is a spot machine
    unmatched: tuple[str, ...] = ()  # accelerators that were asked for and have no offer among the selected

    def with_quotas(self, account: AccountQuotas | None) -> Selection:
        """Return the offers, each compared with the account's quota."""
        if account is None:
            return self

        def check(one: OfferContext) -> OfferContext:
            quota, rule = account.check(one.offer), one.rule
            is_settled = quota and quota.state == "enough" and rule and rule.state == "quota"
            return one._replace(quota=quota, rule=None if is_settled else rule)

        return replace(self, offers=tuple(map(check, self.offers)))

    def group_accelerators(self) -> dict[float, list[Accelerator]]:
        """Return the distinct accelerators of the offers with each number of devices, and all for one device."""
        kinds = {(id(one.accelerator), one.offer.devices): one.accelerator for one in self.offers}
        found: dict[float, dict[int, Accelerator]] = {}
        for (name, devices), accelerator in kinds.items():
            if accelerator is not None:
                for number in (1.0, devices):
                    found.setdefault(number, {})[name] = accelerator
        return {devices: [*each.values()] for devices, each in found.items()}


def select(filters: Filters, *, catalog: Catalog | None = None) -> Selection:
    """Select the offers that pass the filters, of the packaged catalog without another.

    Raises:
        UsageError: A filter value is not in the catalog, or the catalog cannot be read.
        NoAnswerError: No offer passes all filters.
    """
    from ..offers.catalog import UNAVAILABLE, load_catalog, select_offers
    from ..offers.local import probe_local_offer
    from ..offers.spot import load_preemption_data

    catalog = catalog or load_catalog()
    own = OfferContext(*probe_local_offer(catalog), place="local") if filters.include_local else None
    chosen = select_offers(
        catalog.offers if own is None else (*catalog.offers, own.offer),
        accelerators=filters.accelerators,
        providers=filters.providers,
        regions=filters.regions,
        purchase=filters.purchase,
        devices=filters.devices,
        include_retired=filters.include_retired or bool(filters.accelerators),
        names=catalog.names,
    )
    if filters.accelerators and not filters.include_retired:  # what is named and only was to be had is answered
        left = {offer.accelerator for offer in chosen if offer.status not in UNAVAILABLE}
        chosen = tuple(o for o in chosen if o.status not in UNAVAILABLE or o.accelerator not in left)
    if filters.residency:
        chosen = _residents(chosen, filters.residency, catalog)
    describe = _describer(catalog, chosen)
    if filters.hosts != (1,):
        chosen = expand_hosts(chosen, filters.hosts, own=None if own is None else own.offer)
    had = {offer.accelerator for offer in chosen}
    wanted = {catalog.names.resolve_all(name): name for name in filters.accelerators}
    return Selection(
        offers=tuple(own if own is not None and offer is own.offer else describe(offer) for offer in chosen),
        catalog_as_of=catalog.as_of,
        spot=load_preemption_data(catalog.folder) if any(one.purchase == "spot" for one in chosen) else None,
        unmatched=tuple(
            every[0] if len(every) == 1 else name for every, name in wanted.items() if had.isdisjoint(every)
        ),
    )


def _residents(offers: Iterable[Offer], names: Iterable[str], catalog: Catalog) -> tuple[Offer, ...]:
    """Return the offers in countries or jurisdictions, without those whose country is unknown."""
    regions = catalog.costs.regions
    countries = resolve_countries(names, known={region.country for region in regions.values()})

    left = tuple(
        offer
        for offer in offers
        if offer.provider in OWNED
        or ((region := regions.get((offer.provider, offer.region))) and region.country in countries)
    )
    if not left:
        raise NoAnswerError(
            f"no offer is left after `--residency {' '.join(names)}`", hint="leave it out, or add countries"
        )
    return left


def _describer(catalog: Catalog, offers: Sequence[Offer]) -> Callable[[Offer], OfferContext]:
    """Return a function that finds an offer's device, limits and availability, cached by instance type."""
    from ..offers.catalog import find_device, find_links
    from ..offers.costs import classify_host
    from ..offers.notebooks import find_session_limits

    hosted = {runtime.provider for runtime in catalog.notebooks.runtimes}
    known: dict[tuple[str, str], OfferContext] = {}
    rules: dict[tuple[str, str, str], list[AvailabilityRule]] = {}
    likely = {  # matching all rules with all machines takes as long as reading the offers
        provider: [rule for rule in catalog.availability if re.fullmatch(rule.provider, provider)]
        for provider in {offer.provider for offer in offers}
    }

    def describe(offer: Offer) -> OfferContext:
        machine = (offer.provider, offer.instance_type)
        if machine not in known:
            device = find_device(catalog, offer)
            place = classify_host(*machine, kind=device.kind if device else None)
            limits = find_session_limits(catalog.notebooks, offer) if offer.provider in hosted else None
            known[machine] = OfferContext(offer, device, place, find_links(catalog, offer), limits)
        if (kind := (*machine, offer.purchase)) not in rules:
            rules[kind] = [rule for rule in likely[offer.provider] if rule.matches(offer)]
        found = (rule for rule in rules[kind] if not rule.regions or offer.region in rule.regions)
        return OfferContext(offer, *known[machine][1:5], None, next(found, None))

    return describe


PARTIAL_HINT = "correct what stops the script, or add `--partial` to plan the phases that were found alone"
SortBy = Literal["cost", "time", "co2"]


class Question(Frozen):
    """Filters, order and limits of an estimate.

    Raises:
        UsageError: A limit that is not positive, or a value below zero.
    """

    filters: Filters = field(default_factory=Filters)
    sort: SortBy = "cost"
    deadline_s: float | None = None  # longest time of the run [s]
    budget_usd: float | None = None  # highest cost of the run [USD]
    spot: SpotTerms = field(default_factory=SpotTerms)  # properties of spot machines stated by the user
    # Input pipeline: `none`, `arrays`, `jpeg` or samples per second of one vCPU; None: as measured
    feed: str | None = None
    # Weak scaling (each device keeps the batch) or strong (devices share it); None for what the script says
    scaling: ScalingMode | None = None
    # Shardings to try on several devices, of which the first that fits is taken; None for what the script says
    shard: tuple[Sharding, ...] | None = None
    hour_value_usd: float = 20.0  # value of an hour of the user's time [USD/h]
    wait_value_usd: float = 1.0  # value of an unattended hour until the run ends [USD/h]
    quotas: AccountQuotas | None = None  # quotas of the user's accounts; None if they are not checked
    partial: bool = False  # whether the phases that could be planned are answered for without the others

    def refuses(self, workload: Workload) -> bool:
        """Return whether a phase of the script could not be planned, and the others will not do."""
        return bool(workload.unplanned) and not self.partial

    def __post_init__(self) -> None:
        if self.deadline_s is not None:
            require_positive(self.deadline_s, what="--deadline", example="12h", most=MAX_DURATION_S)
        if self.budget_usd is not None:
            require_positive(self.budget_usd, what="--budget", example="20")
        for flag, usd in (("--hour-value", self.hour_value_usd), ("--wait-value", self.wait_value_usd)):
            require_not_negative(usd, what=flag, example="20")

    @property
    def has_limits(self) -> bool:
        """Whether a deadline or a budget is given."""
        return self.deadline_s is not None or self.budget_usd is not None


class EstimateContext(Frozen):
    """Inputs of an estimate."""

    workload: Workload
    options: WorkloadOptions  # options with which it was traced, for the devices and the sharding of the question
    selection: Selection
    predictor: StepPredictor
    catalog: Catalog
    terms: CostTerms  # costs and assumptions besides the training
    resized: Callable[[int], Workload] | None = None  # the workload at another batch size; None if unavailable
    feed: InputPipeline | None = None  # input pipeline measured by a profile; None for no limit


def require_run_length(workload: Workload, what: str) -> None:
    """Raise UsageError, which says what needs it, for a run of unknown length."""
    if workload.steps is None and (workload.samples is None or workload.epochs is None):
        raise UsageError(
            f"{what} needs the length of the run, which `{workload.model}` does not state",
            hint="add `--samples N --epochs N`, or `--steps N`",
        )


def require_whole(workload: Workload, question: Question) -> None:
    """Raise NoAnswerError for a script of which a phase could not be planned, unless the others will do."""
    if question.refuses(workload):
        raise NoAnswerError(workload.why_partial, hint=PARTIAL_HINT)
