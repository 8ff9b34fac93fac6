"""Numbers as a person reads them. Data (TSV, JSON) never passes through here."""

from __future__ import annotations

from fractions import Fraction

from ..units import GIGA, KILO, MEGA, SECONDS_PER_HOUR, TERA

__all__ = ["count_text", "device_text", "duration_text", "offer_text", "range_text", "short_text", "usd_text"]

SECONDS_PER_MINUTE = 60.0
LARGEST_SHARE_DENOMINATOR = 24
SECONDS_PER_DAY = 24 * SECONDS_PER_HOUR


def short_text(value: float) -> str:
    """Return a number in about two to three digits.

    Example:
        >>> [short_text(x) for x in (0.01234, 1.234, 12.34, 123.4, 12345.6)]
        ['0.012', '1.2', '12', '123', '12,346']
    """
    if value == 0:
        return "0"
    if value < 1:
        return f"{value:.2g}" if value >= 1e-4 else f"{value:.0e}"
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def usd_text(value: float) -> str:
    """Return dollars with cents while cents matter.

    Example:
        >>> [usd_text(x) for x in (0.0, 0.00123, 0.526, 12.345, 1234.5)]
        ['0', '0.0012', '0.53', '12.35', '1,234']
    """
    if value < 0.1 or value >= 1000:
        return short_text(value)
    return f"{value:.2f}"


def offer_text(provider: str, instance_type: str, *, hosts: int = 1) -> str:
    """Return an offer's name without saying its provider twice, and how many such machines it is.

    Example:
        >>> offer_text("aws", "p3.2xlarge"), offer_text("vast", "vast:1xK80"), offer_text("colab", "colab-free-t4")
        ('aws p3.2xlarge', 'vast 1xK80', 'colab free-t4')
    """
    machines = f"{hosts}× " if hosts > 1 else ""
    return f"{provider} {machines}{instance_type.removeprefix(f'{provider}:').removeprefix(f'{provider}-')}"


def range_text(low: float, high: float) -> str:
    """Return the two ends of an interval.

    Example:
        >>> range_text(0.9, 14.2)
        '0.9–14'
    """
    return f"{short_text(low)}–{short_text(high)}"


def duration_text(seconds: float) -> str:
    """Return a time in the unit that fits it.

    Example:
        >>> [duration_text(x) for x in (0.5, 90, 600, 7200, 90_000, 900_000)]
        ['0.5 s', '90 s', '10 min', '2.0 h', '25 h', '10 d']
    """
    if seconds < 2 * SECONDS_PER_MINUTE:
        return f"{short_text(seconds)} s"
    if seconds < 2 * SECONDS_PER_HOUR:
        return f"{short_text(seconds / SECONDS_PER_MINUTE)} min"
    if seconds < 3 * SECONDS_PER_DAY:
        return f"{short_text(seconds / SECONDS_PER_HOUR)} h"
    return f"{short_text(seconds / SECONDS_PER_DAY)} d"


def count_text(value: float, unit: str = "") -> str:
    """Return a large count with a prefix before its unit.

    Example:
        >>> [count_text(512), count_text(25_636_712), count_text(7.8e11, "FLOP")]
        ['512', '25.6 M', '780 GFLOP']
    """
    for size, prefix in ((TERA, "T"), (GIGA, "G"), (MEGA, "M"), (KILO, "k")):
        if value >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:g} {unit}".rstrip()


def device_text(accelerator: str, devices: float) -> str:
    """Return a device with its number.

    Example:
        >>> device_text("T4", 1.0), device_text("A100-80GB", 8.0), device_text("A10", 0.167)
        ('T4', '8× A100-80GB', '1/6× A10')
    """
    if devices == 1:
        return accelerator
    return f"{Fraction(devices).limit_denominator(LARGEST_SHARE_DENOMINATOR)}× {accelerator}"
