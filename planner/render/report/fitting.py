"""Report lines on devices that are too small, and on better batch sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..numbers import format_device, format_duration

__all__ = ["format_memory_lines"]

SHOWN = 6


def format_memory_lines(offers: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each accelerator that is too small, or that a larger batch would use better.

    Args:
        offers: Offers of a plan, best first; the first per accelerator and number of devices is used.
    """
    first: dict[tuple[str, float], Mapping[str, Any]] = {}
    for one in offers:
        first.setdefault((one["accelerator"], one["devices"]), one)
    lines = [line for one in first.values() for line in _format_lines(one)]
    return lines[:SHOWN]


def _format_lines(one: Mapping[str, Any]) -> list[str]:
    name = format_device(one["accelerator"], one["devices"])
    remedies, best = one.get("memory_remedies") or [], one.get("best_batch")
    lines = []
    if remedies:
        verdict = one["memory_verdict"]
        ways = "; ".join(w["remedy"] + ("" if w["fits"] else ", not enough by itself") for w in remedies)
        lines.append(f"{name}: {verdict}. Possible remedies: {ways}.")
    if best is not None:
        faster = "" if best["speedup"] is None else f", {best['speedup']:.2g} times the samples per second"
        run = "" if best["run_time_s"] is None else f": {format_duration(best['run_time_s']['mid'])}"
        lines.append(f"{name} at its best batch, {best['batch_size']}{run}{faster}.")
    return lines
