"""Phases of a run in words, from the entries of `phases[]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...numbers import format_count

PHASES_SHOWN = 4


def format_phases(phases: Sequence[Mapping[str, Any]]) -> str:
    """Describe the phases of a run; empty for a single call of `fit()` and nothing else.

    Args:
        phases: Entries of `phases[]`.

    Example:
        >>> format_phases([{"epochs": 50, "steps": 10, "times": 10, "parameters": 8, "trainable_parameters": 8}])
        '10 times 50 epochs'
    """
    if len(phases) < 2:
        return "; ".join(
            "".join([_format_length(one) if one["times"] > 1 else "one fit()", _format_passes(one)])
            for one in phases
            if one["times"] > 1 or one.get("passes")
        )
    texts = [
        f"phase {number}: {_format_length(one)}, {_format_trained(one)}{_format_passes(one)}"
        for number, one in enumerate(phases[:PHASES_SHOWN], start=1)
    ]
    more = len(phases) - PHASES_SHOWN
    return "; ".join([*texts, *([f"and {more} more"] if more > 0 else [])])


def _format_length(phase: Mapping[str, Any]) -> str:
    epochs, times = phase["epochs"], phase["times"]
    length = "unknown length" if epochs is None else f"{epochs:,} epoch{'' if epochs == 1 else 's'}"
    return f"{times:,} times {length}" if times > 1 else length


def _format_passes(phase: Mapping[str, Any]) -> str:
    return "".join(
        f", then {one['kind']}() of {one['samples']:,} samples"
        + (f" {one['calls']:,} times" if one["calls"] > 1 else "")
        for one in phase.get("passes") or ()
    )


def _format_trained(phase: Mapping[str, Any]) -> str:
    trained, whole = phase["trainable_parameters"], phase["parameters"]
    if trained == whole:
        return "all parameters trained"
    return f"{format_count(trained)} of {format_count(whole)} parameters trained"
