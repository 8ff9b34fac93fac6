"""Calls, loops and branches inside a jaxpr."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

from ...ops import Loop, LoopPart
from ..rules import Equation, count_elements, find_rule, nbytes
from .graph import Node

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
        length, layer: As for `Loop`.
    """
    sums = _find_sums(nodes, state, ends)
    carries = [index for index in range(len(state)) if index not in sums]
    sources = _spread_bits(nodes, {state[index]: 1 << index for index in carries})
    wanted: dict[int, int] = {}
    for index, end in enumerate(ends):
        if end is not None and index not in sums:
            wanted[end] = wanted.get(end, 0) | 1 << index
    targets = _spread_bits(nodes, wanted, backward=True)
    before = [
        1 << index | (sources.get(end, 0) if end is not None else 0)
        for index, end in enumerate(ends[: len(state)])
    ]
    for middle in range(len(before)):  # carried values that each one depends on over any number of iterations
        before = [bits | before[middle] if bits & 1 << middle else bits for bits in before]
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
    return {
        index
        for index, (value, end) in enumerate(zip(state, ends, strict=False))
        if end in adders and value in adders[end].inputs and uses[value] == 1 and uses[end] == 1
    }


def _spread_bits(nodes: Sequence[Node], known: Mapping[int, int], *, backward: bool = False) -> dict[int, int]:
    """Return, for each value, the bits of those that it depends on; backward, of those that depend on it."""
    bits = dict(known)
    for node in reversed(nodes) if backward else nodes:
        near, far = (node.outputs, node.inputs) if backward else (node.inputs, node.outputs)
        reached = _combine_bits(bits, near)
        for value in far:
            bits[value] = bits.get(value, 0) | reached
    return bits


def _combine_bits(bits: dict[int, int], values: Iterable[int]) -> int:
    return reduce(or_, (bits.get(value, 0) for value in values), 0)


def find_inner_jaxprs(equation: Equation) -> list[Any]:
    """Return the jaxprs called by an equation (`jit`, `custom_jvp_call`, `checkpoint`, `shard_map`, ...)."""
    jaxprs = (
        getattr(value, "jaxpr", value) for value in equation.params.values()
    )  # closed ones contain open ones
    return [one for one in jaxprs if hasattr(one, "eqns") and hasattr(one, "invars")]


def has_primitive(jaxpr: Any, name: str) -> bool:
    """Return whether a jaxpr, or one that it calls, has an equation of a primitive."""
    return any(
        equation.primitive.name == name or any(has_primitive(inner, name) for inner in find_inner_jaxprs(equation))
        for equation in jaxpr.eqns
    )


def select_most_expensive_branch(equation: Equation) -> Any:
    """Return the branch of a `cond` with the highest cost."""
    return max((branch.jaxpr for branch in equation.params["branches"]), key=_estimate_cost)


def _estimate_cost(jaxpr: Any) -> float:
    """Return a rough cost of a jaxpr: bytes accessed, plus 2 FLOP per element pair for contractions."""
    total = 0.0
    for equation in jaxpr.eqns:
        inner = find_inner_jaxprs(equation)
        if inner:
            total += sum(map(_estimate_cost, inner)) * equation.params.get("length", 1)
        else:
            rule = find_rule(equation.primitive.name)
            total += rule.flops(equation) + sum(rule.reads(equation)) + rule.writes(equation)
            if rule.role.value == "contraction":
                total += count_elements(equation.outvars[0]) * nbytes(equation.invars[1])
    return total


def compute_trip_count(equation: Equation, known: list[int | None]) -> int | None:
    """Return the iterations of a `while` loop that counts in steps of one; None if they depend on data [-].

    `known` are integer values of its operands; None for those that are not known before execution.
    """
    condition, body = equation.params["cond_jaxpr"].jaxpr, equation.params["body_jaxpr"].jaxpr
    head, shared = equation.params["cond_nconsts"], equation.params["body_nconsts"]
    tests = [e for e in condition.eqns if e.outvars[0] is condition.outvars[0]]
    if len(condition.eqns) != 1 or not tests or tests[0].primitive.name not in ("lt", "gt"):
        return None
    low, high = tests[0].invars if tests[0].primitive.name == "lt" else reversed(tests[0].invars)
    operands = dict(zip(condition.invars, [*known[:head], *known[head + shared :]], strict=True))

    def find(variable: Any) -> int | None:
        return int(variable.val) if hasattr(variable, "val") else operands.get(variable)

    start, stop = find(low), find(high)
    if start is None or stop is None:
        return None
    position = condition.invars.index(low) - head  # of the counter among carried values
    counter, result = body.invars[position + shared], body.outvars[position]
    adders = [one for one in body.eqns if one.outvars[0] is result and one.primitive.name == "add"]
    steps = [one for adder in adders[:1] for one in adder.invars if one is not counter]
    counts = len(steps) == 1 and hasattr(steps[0], "val") and int(steps[0].val) == 1
    return max(stop - start, 0) if counts else None
