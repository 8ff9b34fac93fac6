"""The step as a flat list of primitives over numbered values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ...ops import Loop, Phase
from ..rules import Equation, Product, Role, Rule

_CONVERSIONS = ("convert_element_type", "transpose")
_PARTS = ("slice", "dynamic_slice", "split")


class Remark(NamedTuple):
    """An assumption made during flattening; relevant only if the values defined meanwhile are used.

    Args:
        text: Text for the user.
        values: Numbers of the values.
        unknown_loop: Whether it concerns a loop with an unknown number of iterations.
    """

    text: str
    values: range
    unknown_loop: bool = False


@dataclass(slots=True)
class Node:
    """A primitive of the step, with loops multiplied and calls inlined.

    Args:
        name: Name of the primitive.
        rule: Cost rule.
        equation: The equation with its shapes and parameters; None for loop border marks.
        inputs, outputs: Value numbers, without literals.
        reads: Bytes of each input that are read, in the order of `inputs` [bytes].
        writes: Bytes written [bytes].
        layer, phase: Layer and phase of origin.
        count: Executions in a step [-].
        work: Number of elements of its largest operand or result [-].
        scalar: Whether all its operands are scalars.
        kernel_reversed: Whether the kernel of a convolution is reversed (an input gradient).
        loop: Its position in the innermost loop over time; None outside loops.
        call: Number of its `keras.ops` call; 0 outside calls [-].
        composed: Framework without a kernel for the call that it belongs to: `tensorflow`, `torch`, or empty.
        attention: Whether it belongs to a call of `keras.ops.dot_product_attention`.
        product: Matrix product that it stands for, if its equation does not say so: a fused kernel.
        role: Role in fusion.
    """

    name: str
    rule: Rule
    equation: Equation | None
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    reads: tuple[int, ...]
    layer: str
    phase: Phase | None
    writes: int = 0
    count: float = 1.0
    work: int = 0
    scalar: bool = False
    kernel_reversed: bool = False
    loop: Loop | None = None
    call: int = 0
    composed: str = ""
    attention: bool = False
    product: Product | None = None
    role: Role = field(init=False)

    def __post_init__(self) -> None:
        """Set the role of its rule, which is read often."""
        self.role = self.rule.role

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written by one separate execution [bytes]."""
        return sum(self.reads) + self.writes


@dataclass(slots=True)
class Graph:
    """Nodes in program order, and their values.

    Args:
        nodes: Nodes in program order.
        sizes: Size of each value [bytes].
        parents: For each value, the value it is part of (a slice of a scanned array), or itself.
        inputs: Values that exist before the step: variables and the batch.
        outputs: Values returned by the step.
        parameters: Inputs that are trainable variables.
        frozen: Inputs that are variables, but not trained.
        constants: Integer values known before execution.
        remarks: Assumptions.
    """

    nodes: list[Node] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    parameters: tuple[int, ...] = ()
    frozen: tuple[int, ...] = ()
    constants: dict[int, int] = field(default_factory=dict)
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
