"""What a report says of devices that are too small, and of batches larger than the user's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..numbers import device_text, duration_text

__all__ = ["memory_ways"]

SHOWN = 6


def memory_ways(offers: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each kind of device that is too small, or that a larger batch would use better.

    Args:
        offers: Of a plan, best first; of each kind and number of devices the first counts.
    """
    first: dict[tuple[str, float], Mapping[str, Any]] = {}
    for one in offers:
        first.setdefault((one["accelerator"], one["devices"]), one)
    lines = [line for one in first.values() for line in _lines(one)]
    return lines[:SHOWN]


def _lines(one: Mapping[str, Any]) -> list[str]:
    name = device_text(one["accelerator"], one["devices"])
    remedies, best = one.get("memory_remedies") or [], one.get("best_batch")
    lines = []
    if remedies:
        verdict = one["memory_verdict"]
        ways = "; ".join(w["remedy"] + ("" if w["fits"] else ", not enough by itself") for w in remedies)
        lines.append(f"{name}: {verdict}. What would help: {ways}.")
    if best is not None:
        faster = "" if best["speedup"] is None else f", {best['speedup']:.2g} times the samples a second"
        run = "" if best["run_time_s"] is None else f": {duration_text(best['run_time_s']['mid'])}"
        lines.append(f"{name} at its best batch, {best['batch_size']}{run}{faster}.")
    return lines
