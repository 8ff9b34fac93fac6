"""The step as a list of primitives over numbered values, and the loops and branches of the jaxpr behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from ...ops import Loop, LoopPart, Phase
from ..rules import SETS, Equation, Product, Role, Rule, count_elements, find_rule, nbytes


class Remark(NamedTuple):
    """An assumption made during flattening; relevant only if the values defined meanwhile are used."""

    text: str
    values: range
    unknown_loop: bool = False  # whether it concerns a loop with an unknown number of iterations


@dataclass(slots=True)
class Node:
    """A primitive of the step, with loops multiplied and calls inlined."""

    name: str  # of the primitive
    rule: Rule
    equation: Equation  # None for loop border marks
    inputs: tuple[int, ...]  # value numbers, without literals, as are outputs
    outputs: tuple[int, ...]
    reads: tuple[int, ...]  # of each input, in their order [bytes]
    layer: str  # layer and phase of origin
    phase: Phase | None
    writes: int = 0  # [bytes]
    count: float = 1.0  # executions in a step [-]
    work: int = 0  # number of elements of its largest operand or result [-]
    scalar: bool = False  # whether all its operands are scalars
    kernel_reversed: bool = False  # kernel of a convolution (an input gradient)
    loop: Loop | None = None  # innermost loop over time
    call: int = 0  # number of its `keras.ops` call; 0 outside calls [-]
    composed: str = ""  # framework without a kernel for that call: `tensorflow`, `torch`
    attention: bool = False  # whether it belongs to a call of `keras.ops.dot_product_attention`
    product: Product | None = None  # of a fused kernel, whose equation does not say it
    role: Role = field(init=False)  # that of its rule, which is read often

    def __post_init__(self) -> None:
        self.role = self.rule.role

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written by one separate execution [bytes]."""
        return sum(self.reads) + self.writes


@dataclass(slots=True)
class Graph:
    """A step: nodes in program order over numbered values."""

    nodes: list[Node] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # size of each value [bytes]
    parents: list[int] = field(default_factory=list)  # what each is a part of (of a scanned array), or itself
    inputs: tuple[int, ...] = ()  # variables and the batch
    outputs: tuple[int, ...] = ()  # values returned by the step
    parameters: tuple[int, ...] = ()  # inputs that are trainable variables
    remarks: list[Remark] = field(default_factory=list)
    _users: tuple[list[Node], list[list[int]]] | None = None  # of the list of nodes that is given first

    def new_value(self, size: int, *, parent: int | None = None) -> int:
        """Add a value of a given size and return its number."""
        number = len(self.sizes)
        self.sizes.append(size)
        self.parents.append(number if parent is None else parent)
        return number

    def users(self) -> list[list[int]]:
        """Return, for each value, the indices of the nodes that read it, in program order."""
        if self._users is None or self._users[0] is not self.nodes:
            users: list[list[int]] = [[] for _ in self.sizes]
            for index, node in enumerate(self.nodes):
                for value in dict.fromkeys(node.inputs):
                    users[value].append(index)
            self._users = (self.nodes, users)
        return self._users[1]

    def producers(self) -> dict[int, int]:
        """Return the index of the node that produces each value, except for inputs of the step."""
        return {value: index for index, node in enumerate(self.nodes) for value in node.outputs}

    def weights(self) -> dict[int, int]:
        """Return trainable variables, parts (weights of their own) and conversions, with the weight of each."""
        weights = {value: value for value in self.parameters}
        for node in self.nodes:
            if node.inputs and node.inputs[0] in weights:
                if node.name in SETS["conversions"]:
                    weights.update(dict.fromkeys(node.outputs, weights[node.inputs[0]]))
                elif node.name in SETS["parts"]:
                    weights.update({value: value for value in node.outputs})
        return weights


def mark_loop(
    nodes: Sequence[Node], *, state: Sequence[int], ends: Sequence[int | None], length: int, layer: str
) -> None:
    """Assign every node of a `scan` body without a loop its role in this loop.

    A node belongs to the chain if it lies on a cycle through carried values. A carried value that is only
    added to forms no chain, since the order of a sum is arbitrary. Values that pass through an inner loop's
    own constants are not followed. `state`: carried values at the start; `ends`: those at the end, then collected.
    """
    uses = Counter(value for node in nodes for value in node.inputs)
    uses.update(end for end in ends if end is not None)
    adders = {node.outputs[0]: node for node in nodes if node.name in SETS["additions"]}
    sums = {  # carried values that the body only adds to
        index
        for index, (value, end) in enumerate(zip(state, ends, strict=False))
        if end in adders and value in adders[end].inputs and uses[value] == 1 and uses[end] == 1
    }
    carries = [index for index in range(len(state)) if index not in sums]
    sources = spread_bits(nodes, {state[index]: 1 << index for index in carries})
    wanted: dict[int | None, int] = {}
    for index, end in enumerate(ends):
        if index not in sums:
            wanted[end] = wanted.get(end, 0) | 1 << index
    targets = spread_bits(nodes, wanted, backward=True)
    before = [1 << index | sources.get(end, 0) for index, end in enumerate(ends[: len(state)])]
    for middle in range(len(before)):  # carried values that each one depends on over any number of iterations
        before = [bits | before[middle] if bits & 1 << middle else bits for bits in before]
    for node in nodes:
        if node.loop is None:
            reached = combine_bits(targets, node.outputs)
            waits_for = combine_bits(sources, node.inputs)
            part: LoopPart = "apart" if reached else "sum"
            if any(waits_for & (1 << i) and reached & before[i] for i in carries):
                part = "chain"
            node.loop = Loop(part=part, length=length, layer=layer)


def spread_bits(
    nodes: Sequence[Node], known: Mapping[int | None, int], *, backward: bool = False
) -> dict[int | None, int]:
    """Return, for each value, the bits of those that it depends on; backward, of those that depend on it."""
    bits = dict(known)
    for node in reversed(nodes) if backward else nodes:
        near, far = (node.outputs, node.inputs) if backward else (node.inputs, node.outputs)
        reached = combine_bits(bits, near)
        for value in far:
            bits[value] = bits.get(value, 0) | reached
    return bits


def combine_bits(bits: Mapping[int | None, int], values: Iterable[int]) -> int:
    """Return the bits of any of some values."""
    return reduce(or_, (bits.get(value, 0) for value in values), 0)


def find_inner_jaxprs(equation: Equation) -> list[Any]:
    """Return the jaxprs called by an equation (`jit`, `custom_jvp_call`, `checkpoint`, `shard_map`, ...)."""
    jaxprs = (getattr(value, "jaxpr", value) for value in equation.params.values())  # of closed ones, the open
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
            if rule.role is Role.CONTRACTION:
                total += count_elements(equation.outvars[0]) * nbytes(equation.invars[1])
    return total
