"""Estimate of a workload on all selected offers: recommendation, report details, JSON (``gpuplan.estimate/1``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..errors import NoAnswerError
from ..estimate_document import SharedFacts
from ..records import Frozen, round_floats, to_plain
from .cost_terms import CostTerms
from .memory import memory_parts
from .offer_table import OfferTable

if TYPE_CHECKING:
    from ..units import Interval
    from ..workload.model import Workload
    from .improvements import Improvement
    from .offer_estimate import OfferEstimate
    from .question import OfferContext


class Crossover(Frozen):
    """A number of epochs or runs from which another alternative is the cheapest."""

    at: int  # the first such number [-]
    before: str  # name of the alternative until then
    to: str  # and from then on

    def to_json(self) -> dict[str, Any]:
        """Return one entry of `turns`."""
        return {"from": self.at, "instead_of": self.before, "cheapest": self.to}


class BudgetEpochs(Frozen):
    """Epochs that a budget buys."""

    offer: int  # position of the offer in ``Estimate.offers``
    epochs: Interval  # at the high end of the cost, at its centre and at its low end [-]
    sentence: str  # the number with its range, and the machine


DECISION_ROLES = ("recommended", "free", "cheaper", "faster")


class Decision(Frozen):
    """Recommended offers. Positions are those in ``Estimate.offers``; None if there is no such offer."""

    recommended: int | None = None  # offer of least total that surely keeps the limits, or else the likeliest
    free: int | None = None  # best free offer, if another is taken
    cheaper: int | None = None  # best offer of clearly less money
    faster: int | None = None  # best offer that ends clearly sooner, at a reasonable price of an hour saved
    lines: tuple[str, ...] = ()  # what to take, the alternatives, and what is to be known of them, as sentences
    needs: tuple[str, ...] = ()  # what is needed to get the recommended offer
    probability: float | None = None  # that it keeps deadline and budget; None without limits [-]
    nearest: tuple[int, ...] = ()  # the nearest misses if nothing keeps the limits
    values: str = ""  # the values of hours in a sentence, where half or double of one would change the choice
    kept: tuple[int, ...] = ()  # all offers that keep the limits as surely as the recommended one
    # Changes of the training that are worth their while on the recommended offer
    improvements: tuple[Improvement, ...] = ()
    misfit: str = ""  # why the training is not planned as it is, if it fits nowhere so; empty otherwise
    hint: str | None = None  # what helps where nothing is recommended; None if unknown
    # What a measurement would make of the interval of its time; empty unless asked for and worth it
    measuring: str = ""

    @property
    def sentence(self) -> str:
        """All lines as one text."""
        return " ".join(filter(None, (self.misfit, *self.lines)))

    def roles(self) -> dict[int, tuple[str, ...]]:
        """Return the roles of each offer by its position, the recommended one first."""
        found: dict[int, tuple[str, ...]] = {}
        for role in DECISION_ROLES:
            index = getattr(self, role)
            if index is not None:
                found[index] = (*found.get(index, ()), role)
        return found


SCHEMA = "gpuplan.estimate/1"
STATED_KEYS = (
    "model", "mode", "batch_size", "precision", "quantization", "compiled", "samples", "tokens_per_sample",
)  # fmt: skip
SIZE_KEYS = ("parameters", "trainable_parameters", "flops_per_step")
PHASE_KEYS = (
    "parameters", "trainable_parameters", "batch_size", "samples", "validation_samples", "flops_per_step",
)  # fmt: skip
REFERENCE_KEYS = ("provider", "instance_type", "region", "purchase")


class Estimate(Frozen):
    """Time, cost and memory of a workload on every selected offer."""

    workload: Workload
    # Estimates, best first by ``options["sort"]``; offers that do not fit or are unknown come last
    offers: Sequence[OfferEstimate]
    recommendation: Recommendation  # positions in ``offers``
    decision: Decision  # decision, with positions in ``offers``
    options: Mapping[str, Any]  # the question as plain JSON types
    terms: CostTerms  # costs and assumptions besides the training
    catalog_as_of: str | None  # date of the newest price; None if unknown
    version: str  # version of gpuplan
    details: dict[str, Any] | None = None  # details of a report as JSON; None unless requested
    not_billed: tuple[str, ...] = ()  # items of a real bill that are not in the bills, by name
    unmatched: tuple[str, ...] = ()  # accelerators that were asked for and have no offer
    takable: tuple[int, ...] = ()  # positions of the offers that can be taken, in order; empty for none
    undominated: tuple[int, ...] = ()  # those of them that no other beats in money, time and effort
    budget_epochs: BudgetEpochs | None = None  # what the budget buys; None without one, or where it is unknown

    @property
    def taken(self) -> OfferEstimate | None:
        """The recommended offer; None for none."""
        row = self.decision.recommended
        return None if row is None else self.offers[row]

    @property
    def contexts(self) -> Sequence[OfferContext]:
        """The offers with their devices; the rows of a table are not built for it."""
        offers = self.offers
        return offers.contexts if isinstance(offers, OfferTable) else [one.selected for one in offers]

    def best_per_devices(self) -> tuple[int, ...]:
        """Return the best row of each kind and number of devices, best first; the own machine is its own kind."""
        first: dict[tuple[str, float, bool], int] = {}
        offers = self.offers
        for index in offers.first_rows() if isinstance(offers, OfferTable) else range(len(offers)):
            offer = self.offers[index].offer
            first.setdefault((offer.accelerator, offer.devices, offer.provider == "local"), index)
        return tuple(first.values())

    @property
    def has_serving(self) -> bool:
        """Whether an offer has a serving estimate; False for a table, which is priced without."""
        return not isinstance(self.offers, OfferTable) and any(one.serving for one in self.offers)

    def to_json(self, *, breakdown: bool = False) -> dict[str, Any]:
        """Return the object behind `--json` and `plan.json`.

        With a breakdown each offer has its itemized bill, forecast of preemptions and comparison with one device.
        A plan has the forecasts in any case: a launch needs them.
        """
        facts, spot, work = SharedFacts(), self.details is not None, self.workload
        offers = [one.entry_json(facts, breakdown=breakdown, spot=spot) for one in self.offers]
        return {
            "schema": SCHEMA,
            "gpuplan_version": self.version,
            "catalog": {"as_of": self.catalog_as_of},
            "options": dict(self.options),
            "workload": {
                **{key: getattr(work, key) for key in STATED_KEYS},
                "epochs": work.total_epochs,
                "steps": work.total_steps,
                **{key: getattr(work, key) for key in SIZE_KEYS},
                "memory": {part: size for part, size in asdict(work.memory).items() if size is not None},
                "memory_parts_bytes": memory_parts(work),
                "notes": list(work.notes),
                "versions": dict(work.versions),
            },
            "phases": self.phases_json(),
            "unplanned": list(work.unplanned),
            "devices": facts.devices,
            "price_sources": facts.price_sources,
            "offers": offers,
            "recommendation": self._recommendation_json(),
            "decision": self.decision_json(),
            "input": self.input_json(),
            "budget_epochs": to_plain(self.budget_epochs),
            "unmodelled": [asdict(unmodelled) for unmodelled in work.unmodelled],
            "terms": self.terms.to_json(),
            "not_billed": list(self.not_billed),
            **({} if self.details is None else {"details": self.details}),
        }

    def phases_json(self) -> list[dict[str, Any]]:
        """Return `phases[]`: equal calls of `fit()` in the order of the script, with the length of one."""
        return [
            {
                "epochs": None if one.epochs is None else one.epochs // one.calls,
                "steps": None if one.steps is None else one.steps // one.calls,
                "times": one.calls,
                "total_epochs": one.epochs,
                "total_steps": one.steps,
                **{key: getattr(one, key) for key in PHASE_KEYS},
                "passes": to_plain(one.passes),
            }
            for one in self.workload.phases
        ]

    def decision_json(self) -> dict[str, Any]:
        """Return the decision, each offer in it with its time and cost."""
        return {
            **{role: self._choice(getattr(self.decision, role)) for role in DECISION_ROLES},
            "sentence": self.decision.sentence,
            "needs": list(self.decision.needs),
            "probability": self.decision.probability,
            "improvements": round_floats(to_plain(self.decision.improvements)),
        }

    def input_json(self) -> dict[str, Any]:
        """Return the input's rate in the longest phase, and what the recommended (or cheapest) devices take."""
        measured, stated = self.workload.input, self.options.get("feed")
        cheapest, needed_per_s = self.recommendation.cheapest, None
        one = self.offers[cheapest] if self.taken is None and cheapest is not None else self.taken
        if one is not None:
            own = one.samples_per_s
            needed_per_s = one.device_estimate.able_per_s or (None if own is None else own.mid)
        rate = None if measured is None or stated is not None else measured
        basis = "stated" if stated is not None else "unknown"
        if rate is not None and (rate.kind == "arrays" or rate.samples_per_s is not None):
            basis = "arrays" if rate.kind == "arrays" else "measured"
        facts: dict[str, Any] = {} if rate is None else to_plain(rate)
        return {
            "samples_per_s_here": facts.get("samples_per_s"),
            "samples_per_s_needed": round_floats(needed_per_s),
            "basis": basis,
            **{key: facts.get(key) for key in ("kind", "workers", "cores")},
        }

    def _choice(self, index: int | None) -> dict[str, Any] | None:
        """Return a picked offer with its time and cost."""
        if index is None:
            return None
        one = self.offers[index]
        return {
            **(self._reference(index) or {}),
            "accelerator": one.offer.accelerator,
            "devices": one.offer.devices,
            "train_time_s": round_floats(to_plain(one.device_estimate.train_time_s)),
            "run_time_s": round_floats(to_plain(one.run_time_s)),
            "cost_usd": one.bill.total_json() if one.bill else None,
            "total_usd": None if one.total_usd is None else f"{one.total_usd:.6f}",
        }

    def _recommendation_json(self) -> dict[str, Any]:
        """Return each recommended offer by position and by name."""
        chosen = self.recommendation
        single = ("cheapest", "fastest", "within_deadline", "within_budget", "free")
        return {
            **{name: self._reference(getattr(chosen, name)) for name in single},
            "pareto": [self._reference(index) for index in chosen.pareto],
        }

    def _reference(self, index: int | None) -> dict[str, Any] | None:
        """Return the position of an offer in `offers[]`, with its name."""
        if index is None:
            return None
        offer = self.offers[index].offer
        return {"offer": index, **{key: getattr(offer, key) for key in REFERENCE_KEYS}}


def explain_no_answer(estimate: Estimate) -> NoAnswerError | None:
    """Return the error that explains why no offer answers the question, or None if one does."""
    decision = estimate.decision
    return None if decision.recommended is not None else NoAnswerError(decision.sentence, hint=decision.hint)


class Recommendation(Frozen):
    """Positions in ``Estimate.offers``; None if no offer qualifies or the limit was not given.

    Only complete machines are considered on which the step is known to fit, and which can be held for the whole
    run. Free machines are listed separately, since they are not guaranteed, unless no others were selected.
    """

    cheapest: int | None = None  # cheapest offer by the whole run, or by sample if the run's length is unknown
    fastest: int | None = None  # fastest offer by the same measure
    within_deadline: int | None = None  # cheapest offer that meets the deadline even at its upper bound
    within_budget: int | None = None  # fastest offer that stays within the budget even at its upper bound
    free: int | None = None  # fastest offer that costs nothing
    pareto: tuple[int, ...] = ()  # pareto-optimal offers in time and cost, fastest first
