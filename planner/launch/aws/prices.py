"""What an instance costs at most an hour, with what hangs on it. Pure."""

from __future__ import annotations

from decimal import Decimal

from ..request import Candidate

__all__ = ["SPOT_CEILING", "max_usd_per_hour", "spot_max_price"]

SPOT_CEILING = Decimal("1.25")  # a spot price that rises past this times the planned one ends the machine
# gp3 is $0.08 a GB-month in us-east-1 and below $0.16 wherever it is sold (aws.amazon.com/ebs/pricing); a month
# there has 730 hours. A public IPv4 address is $0.005 an hour (aws.amazon.com/vpc/pricing).
GP3_USD_PER_GB_MONTH = Decimal("0.16")
HOURS_PER_MONTH = Decimal(730)
ADDRESS_USD_PER_HOUR = Decimal("0.005")
CENTS_OF_A_CENT = Decimal("0.0001")


def spot_max_price(usd_per_hour: Decimal) -> Decimal:
    """Return the most that is bid for a spot machine [USD/h].

    Example:
        >>> spot_max_price(Decimal("0.2"))
        Decimal('0.2500')
    """
    return (usd_per_hour * SPOT_CEILING).quantize(CENTS_OF_A_CENT)


def max_usd_per_hour(candidate: Candidate, *, disk_gb: int) -> Decimal:
    """Return the highest hourly price of an instance, its disk and its address [USD/h]."""
    spot = candidate.purchase == "spot"
    machine = spot_max_price(candidate.usd_per_hour) if spot else candidate.usd_per_hour
    disk = (disk_gb * GP3_USD_PER_GB_MONTH / HOURS_PER_MONTH).quantize(CENTS_OF_A_CENT)
    return machine + disk + ADDRESS_USD_PER_HOUR
