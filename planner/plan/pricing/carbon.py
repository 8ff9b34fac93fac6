"""Energy and carbon dioxide of a run, from board power limits, vCPUs and the grid's yearly mean intensity.

The method is that of Lacoste et al., 2019, "Quantifying the Carbon Emissions of Machine Learning",
arXiv:1910.09700 (power x time x intensity), with a share of the power limit instead of all of it, and with the
host's processors and the data centre's overhead (PUE) as in the Cloud Carbon Footprint methodology. Manufacture of
the machine is not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...units import SECONDS_PER_HOUR, Interval
from ..cost_terms import Bounds, CostTerms

if TYPE_CHECKING:
    from ..select import OfferContext

W_PER_KW = 1000.0
G_PER_KG = 1000.0
MEAN_VCPU_LOAD = 0.5  # Cloud Carbon Footprint, Methodology: where the load is not known [-]


def machine_power_w(selected: OfferContext, terms: CostTerms) -> Bounds | None:
    """Return the power drawn during training, data-centre overhead included; None if unknown [W].

    Args:
        selected: The offer and its device.
        terms: Share of the board's power limit, power of a vCPU, and overhead of the data centre.
    """
    offer, accelerator = selected.offer, selected.accelerator
    cost, share = terms.provider_cost(offer.provider), terms.bounds("power_share", "any")
    if accelerator is None or share is None:
        return None
    overhead = 1.0 if selected.place == "local" else (cost.pue if cost else None)
    if overhead is None:
        return None
    host = _host_w(selected, terms)
    if accelerator.kind == "cpu":
        return None if host is None else (overhead * host, overhead * host, overhead * host)
    if accelerator.tdp_w is None:
        return None
    low, mid, high = (overhead * (offer.devices * accelerator.tdp_w * part + (host or 0.0)) for part in share)
    return (low, mid, high)


def _host_w(selected: OfferContext, terms: CostTerms) -> float | None:
    """Return the power of the vCPUs: full power if they do the training; None if unknown [W]."""
    offer, cost = selected.offer, terms.provider_cost(selected.offer.provider)
    if cost is None or cost.vcpu_idle_w is None or cost.vcpu_full_w is None or offer.vcpus is None:
        return None
    computes = selected.accelerator is not None and selected.accelerator.kind == "cpu"
    load = 1.0 if computes else MEAN_VCPU_LOAD
    return offer.vcpus * (cost.vcpu_idle_w + load * (cost.vcpu_full_w - cost.vcpu_idle_w))


def energy_kwh(time_s: Interval, power_w: Bounds) -> Interval:
    """Return the energy of a time at a constant power, for each bound [kWh].

    Example:
        >>> energy_kwh(Interval(low=3600.0, mid=7200.0, high=7200.0), (500.0, 500.0, 1000.0)).mid
        1.0
    """
    low, mid, high = (
        time * power / SECONDS_PER_HOUR / W_PER_KW
        for time, power in zip((time_s.low, time_s.mid, time_s.high), power_w, strict=True)
    )
    return Interval(low=low, mid=mid, high=high)


def co2_kg(energy: Interval, *, g_co2_per_kwh: float) -> Interval:
    """Return the carbon dioxide of some energy [kg].

    Args:
        energy: Energy from the grid [kWh].
        g_co2_per_kwh: Yearly mean of the region's grid, by location, without certificates [g/kWh].
    """
    return energy.scaled(g_co2_per_kwh / G_PER_KG)
