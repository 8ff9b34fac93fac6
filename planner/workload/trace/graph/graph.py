"""The step as a flat list of primitives over numbered values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ...ops import Loop, Phase
from ..rules import Equation, Product, Role, Rule

_CONVERSIONS = ("convert_element_type", "transpose")
_PARTS = ("slice", "dynamic_slice", "split")


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
    equation: Equation | None  # None for loop border marks
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
        """Set the role."""
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
    inputs: tuple[int, ...] = ()  # values that exist before the step: variables and the batch
    outputs: tuple[int, ...] = ()  # values returned by the step
    parameters: tuple[int, ...] = ()  # inputs that are variables; the others are frozen ones
    frozen: tuple[int, ...] = ()
    constants: dict[int, int] = field(default_factory=dict)  # integer values known before execution
    remarks: list[Remark] = field(default_factory=list)
    _users: tuple[list[Node], list[list[int]]] | None = None  # of the list of nodes that is given first

    def new_value(self, size: int, *, parent: int | None = None) -> int:
        """Add a value of a given size and return its number."""
        number = len(self.sizes)
        self.sizes.append(size)
        self.parents.append(number if parent is None else parent)
        return number

    def users(self) -> list[list[int]]:
        """Return, for each value, the indices of the nodes that read it, in program order.

        They are computed once for a list of nodes, which is replaced rather than changed.
        """
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
        """Return the values that are trainable variables or parts of them, and the variable each one
        converts.

        A cast or transposed variable is the same weight; a part of a variable is a separate weight.
        """
        weights = {value: value for value in self.parameters}
        for node in self.nodes:
            if node.inputs and node.inputs[0] in weights:
                if node.name in _CONVERSIONS:
                    weights.update(dict.fromkeys(node.outputs, weights[node.inputs[0]]))
                elif node.name in _PARTS:
                    weights.update({value: value for value in node.outputs})
        return weights
