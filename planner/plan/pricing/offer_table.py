"""Offers of an estimate as columns of prices; a row becomes an object on access."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, overload

from ..result.offer_estimate import OfferEstimate
from .bill import itemize

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..select import OfferContext
    from .bill import CostBasis, UnpricedRun
    from .comparison import Market


class OfferTable(Sequence[OfferEstimate]):
    """Offers in order: many rows with different prices that share a few runs.

    Args:
        contexts: The offers with their devices, one per row.
        runs: Unpriced run on each machine kind and purchase option.
        run_of: Index in `runs` of each row.
        price_nano: Hourly price of each row as a Python integer; None if unknown [1e-9 USD/h].
        market: Comparisons between the offers.
    """

    def __init__(
        self,
        contexts: Sequence[OfferContext],
        runs: Sequence[UnpricedRun],
        run_of: NDArray[np.intp],
        price_nano: NDArray[np.object_],
        market: Market,
    ) -> None:
        self.contexts, self.runs, self.run_of = contexts, runs, run_of
        self.price_nano = price_nano
        self._market = market
        self._rows: dict[int, OfferEstimate] = {}

    def __len__(self) -> int:
        return len(self.contexts)

    @overload
    def __getitem__(self, index: int) -> OfferEstimate: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[OfferEstimate, ...]: ...
    def __getitem__(self, index: int | slice) -> OfferEstimate | tuple[OfferEstimate, ...]:
        if isinstance(index, slice):
            return tuple(self[row] for row in range(*index.indices(len(self))))
        row = range(len(self))[index]
        known = self._rows.get(row)
        if known is None:
            known = self._rows[row] = self._build_row(row)
        return known

    def __iter__(self) -> Iterator[OfferEstimate]:
        return (self._rows.get(row) or self._build_row(row) for row in range(len(self)))  # none is kept

    def _build_row(self, row: int) -> OfferEstimate:
        context, run = self.contexts[row], self.runs[self.run_of[row]]
        return OfferEstimate(
            offer=context.offer,
            selected=context,
            device_estimate=run.device_estimate,
            timeline=run.timeline,
            bill=run.bill(context.offer.usd_per_hour, half_width=self.price_half_width(row)),
            unbilled=run.fees.unknown,
            preemption_forecast=run.preemption_forecast,
            market=self._market,
        )

    @cached_property
    def is_free(self) -> NDArray[np.bool_]:
        """Whether each row is free."""
        free: NDArray[np.bool_] = self.price_nano == 0
        return free

    def first_rows(self) -> list[int]:
        """Return the first row of each run, in order."""
        import numpy as np

        _, first = np.unique(self.run_of, return_index=True)
        return sorted(first.tolist())

    @cached_property
    def has_cost_basis(self) -> NDArray[np.bool_]:
        """Whether the run of each row can be billed: its length and the time of its steps are known."""
        import numpy as np

        return np.array([run.cost_basis is not None for run in self.runs], dtype=bool)[self.run_of]

    def compute_totals(self, rows: NDArray[np.intp], bound: int) -> NDArray[np.object_]:
        """Return the totals of the bills of some rows, which have a price and a cost basis [1e-9 USD].

        Args:
            rows: Positions of the rows.
            bound: 0 for the lower end, 1 for the central estimate, 2 for the upper end.
        """
        import numpy as np

        used, basis_of = np.unique(self.run_of[rows], return_inverse=True)
        bases = [basis for index in used.tolist() if (basis := self.runs[index].cost_basis) is not None]
        widths = None if bound == 1 else [self.price_half_width(row) for row in rows.tolist()]
        return compute_totals(bases, basis_of, self.price_nano[rows], bound, widths)

    def price_half_width(self, row: int) -> float:
        """Return half of the 80 % interval of ln(today's price / dated price) of a row [-]."""
        return self._market.terms.price_half_width(self.contexts[row].offer)

    def reorder(self, order: NDArray[np.intp]) -> OfferTable:
        """Return the rows in another order."""
        contexts = [self.contexts[row] for row in order.tolist()]
        return OfferTable(contexts, self.runs, self.run_of[order], self.price_nano[order], self._market)


def compute_totals(
    bases: Sequence[CostBasis],
    basis_of: NDArray[np.intp],
    price_nano: NDArray[np.object_],
    bound: int,
    half_widths: Sequence[float] | None = None,
) -> NDArray[np.object_]:
    """Return the totals of many bills at one bound, computed as columns [1e-9 USD].

    Args:
        bases: Cost bases.
        basis_of: Index in `bases` of each bill.
        price_nano: Price of each bill's machine [1e-9 USD/h].
        bound: 0 for the lower end, 1 for the central estimate, 2 for the upper end.
        half_widths: Half-width of ln(price) of each bill for the price's age [-]; None: 0.
    """
    import numpy as np

    totals = np.zeros(len(price_nano), dtype=object)
    if half_widths is not None and bound != 1:
        columns = zip(basis_of.tolist(), price_nano, half_widths, strict=True)
        ranged = [bases[basis].price_at(price, bound, width) for basis, price, width in columns]
        price_nano = np.array(ranged, dtype=object)
    rates = [(basis.fees.discount, basis.fees.tax) for basis in bases]
    for rate in dict.fromkeys(rates):
        alike = np.array([one == rate for one in rates], dtype=bool)
        rows = np.flatnonzero(alike[basis_of])
        positions = basis_of[rows]
        nanoseconds = np.array([basis.nanoseconds[bound] for basis in bases], dtype=object)
        least = np.array([sum(basis.minimum.values()) for basis in bases], dtype=object)
        fixed = np.array([sum(nano[bound] for nano in basis.fixed.values()) for basis in bases], dtype=object)
        items = itemize(
            price_nano[rows],
            nanoseconds=nanoseconds[positions],
            minimum={"minimum": least[positions]} if least.any() else {},
            fixed={"fixed": fixed[positions]},
            fees=bases[rates.index(rate)].fees,
        )
        totals[rows] = sum(items.values())
    return totals
