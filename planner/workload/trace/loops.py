"""Dependence of a loop's body on the previous iteration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ..ops import Loop, LoopPart
from .graph import Node

__all__ = ["mark_loop"]

_ADDITIONS = ("add", "add_any")


def mark_loop(
    nodes: Sequence[Node], *, state: Sequence[int], ends: Sequence[int | None], length: int, layer: str
) -> None:
    """Assign every node of a `scan` body without a loop its role in this loop.

    A node belongs to the chain if it lies on a cycle through carried values. A carried value that is only
    added to forms no chain, since the order of a sum is arbitrary. Values that pass through an inner loop's
    own constants are not followed.

    Args:
        nodes: The flattened body.
        state: Carried values at the start of the body.
        ends: Results of the body: carried values first, then collected values.
        length: Iterations [-].
        layer: See `Loop`.
    """
    sums = _find_sums(nodes, state, ends)
    carries = [index for index in range(len(state)) if index not in sums]
    sources = _compute_sources(nodes, {state[index]: 1 << index for index in carries})
    targets = _compute_targets(
        nodes, [(end, 1 << index) for index, end in enumerate(ends) if index not in sums]
    )
    before = _compute_ancestors([sources.get(end, 0) if end is not None else 0 for end in ends[: len(state)]])
    for node in nodes:
        if node.loop is None:
            reached = _combine_bits(targets, node.outputs)
            waits_for = _combine_bits(sources, node.inputs)
            part: LoopPart = "apart" if reached else "sum"
            if any(waits_for & (1 << i) and reached & before[i] for i in carries):
                part = "chain"
            node.loop = Loop(part=part, length=length, layer=layer)


def _find_sums(nodes: Sequence[Node], state: Sequence[int], ends: Sequence[int | None]) -> set[int]:
    """Return the positions of carried values that the body only adds to."""
    uses = Counter(value for node in nodes for value in node.inputs)
    uses.update(end for end in ends if end is not None)
    adders = {node.outputs[0]: node for node in nodes if node.name in _ADDITIONS}
    found = set()
    for index, (value, end) in enumerate(zip(state, ends, strict=False)):
        adder = adders.get(end) if end is not None else None
        if adder is not None and value in adder.inputs and uses[value] == 1 and uses[adder.outputs[0]] == 1:
            found.add(index)
    return found


def _compute_sources(nodes: Sequence[Node], known: dict[int, int]) -> dict[int, int]:
    """Return, for each value, the carried values it depends on, as bits."""
    bits = dict(known)
    for node in nodes:
        bits.update(dict.fromkeys(node.outputs, _combine_bits(bits, node.inputs)))
    return bits


def _compute_targets(nodes: Sequence[Node], ends: Iterable[tuple[int | None, int]]) -> dict[int, int]:
    """Return, for each value, the results of the body that depend on it, as bits, without sums."""
    bits: dict[int, int] = {}
    for end, bit in ends:
        if end is not None:
            bits[end] = bits.get(end, 0) | bit
    for node in reversed(nodes):
        reached = _combine_bits(bits, node.outputs)
        for value in node.inputs:
            bits[value] = bits.get(value, 0) | reached
    return bits


def _compute_ancestors(sources: Sequence[int]) -> list[int]:
    """Return, for each carried value, itself and those it depends on over any number of iterations, as bits."""
    before = [bits | (1 << index) for index, bits in enumerate(sources)]
    for middle in range(len(before)):
        for index, bits in enumerate(before):
            if bits & (1 << middle):
                before[index] |= before[middle]
    return before


def _combine_bits(bits: dict[int, int], values: Iterable[int]) -> int:
    total = 0
    for value in values:
        total |= bits.get(value, 0)
    return total
