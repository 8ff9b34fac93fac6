"""What of a loop's body waits for the iteration before, and what does not."""

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
    """Give every node of a `scan`'s body that has none its place in the loop.

    A node is part of the chain when it lies on a cycle through carried values. A carried value that is only
    added to makes no chain: the order of a sum is free. What flows through an inner loop's own constants is
    not followed.

    Args:
        nodes: The flattened body.
        state: Carried values as the body receives them.
        ends: What the body returns: the carried values first, then what it collects.
        length: Iterations [-].
        layer: See `Loop`.
    """
    sums = _sums(nodes, state, ends)
    carries = [index for index in range(len(state)) if index not in sums]
    sources = _sources(nodes, {state[index]: 1 << index for index in carries})
    targets = _targets(nodes, [(end, 1 << index) for index, end in enumerate(ends) if index not in sums])
    before = _before([sources.get(end, 0) if end is not None else 0 for end in ends[: len(state)]])
    for node in nodes:
        if node.loop is None:
            reached = _joined(targets, node.outputs)
            waits_for = _joined(sources, node.inputs)
            part: LoopPart = "apart" if reached else "sum"
            if any(waits_for & (1 << i) and reached & before[i] for i in carries):
                part = "chain"
            node.loop = Loop(part=part, length=length, layer=layer)


def _sums(nodes: Sequence[Node], state: Sequence[int], ends: Sequence[int | None]) -> set[int]:
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


def _sources(nodes: Sequence[Node], known: dict[int, int]) -> dict[int, int]:
    """Return, for each value, the carried values that it is made from, as bits."""
    bits = dict(known)
    for node in nodes:
        bits.update(dict.fromkeys(node.outputs, _joined(bits, node.inputs)))
    return bits


def _targets(nodes: Sequence[Node], ends: Iterable[tuple[int | None, int]]) -> dict[int, int]:
    """Return, for each value, the results of the body that are made from it, as bits; sums are left out."""
    bits: dict[int, int] = {}
    for end, bit in ends:
        if end is not None:
            bits[end] = bits.get(end, 0) | bit
    for node in reversed(nodes):
        reached = _joined(bits, node.outputs)
        for value in node.inputs:
            bits[value] = bits.get(value, 0) | reached
    return bits


def _before(sources: Sequence[int]) -> list[int]:
    """Return, for each carried value, itself and those that it is made from in any iteration before, as bits."""
    before = [bits | (1 << index) for index, bits in enumerate(sources)]
    for middle in range(len(before)):
        for index, bits in enumerate(before):
            if bits & (1 << middle):
                before[index] |= before[middle]
    return before


def _joined(bits: dict[int, int], values: Iterable[int]) -> int:
    total = 0
    for value in values:
        total |= bits.get(value, 0)
    return total
