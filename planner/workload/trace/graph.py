"""The step as one flat list of primitives over numbered values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..ops import Loop, Phase
from .rule import Equation, Role, Rule

__all__ = ["Graph", "Node", "Remark"]

_CONVERSIONS = ("convert_element_type", "transpose")
_PARTS = ("slice", "dynamic_slice", "split")


@dataclass(frozen=True, slots=True)
class Remark:
    """Something assumed while flattening; it matters only if the values made meanwhile are used.

    Args:
        text: For the user.
        values: Numbers of the values.
        unknown_loop: Whether it is a loop whose number of iterations is not known.
    """

    text: str
    values: range
    unknown_loop: bool = False


@dataclass(slots=True)
class Node:
    """One primitive of the step, loops multiplied in, calls inlined.

    Args:
        name: The primitive.
        rule: How it is counted.
        equation: Where its shapes and parameters are; None for the marks at a loop's border.
        inputs, outputs: Numbers of the values; literals are left out.
        reads: Bytes of each input that are read, in the order of `inputs` [bytes].
        writes: Bytes written [bytes].
        layer, phase: Where it comes from.
        count: Executions in a step [-].
        work: Elements that its loop runs over: of the largest operand or result [-].
        scalar: Whether it works on single numbers only.
        kernel_reversed: Of a convolution: whether its kernel is reversed (an input gradient).
        loop: Its place in the innermost loop over time; None outside.
        call: Number of the call of `keras.ops` that it is a part of; 0 outside of all [-].
        composed: Whether it is a part of a call that some frameworks have no kernel for.
    """

    name: str
    rule: Rule
    equation: Equation | None
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    reads: tuple[int, ...]
    writes: int
    layer: str
    phase: Phase | None
    count: float
    work: int
    scalar: bool
    kernel_reversed: bool = False
    loop: Loop | None = None
    call: int = 0
    composed: bool = False

    @property
    def role(self) -> Role:
        """Part in fusion."""
        return self.rule.role

    @property
    def bytes_moved(self) -> int:
        """What one execution reads and writes on its own [bytes]."""
        return sum(self.reads) + self.writes


@dataclass(slots=True)
class Graph:
    """Nodes in program order, and the values between them.

    Args:
        nodes: Program order.
        sizes: Size of each value [bytes].
        parents: For each value, the value that it is a part of (a slice of a scanned array), or itself.
        inputs: Values that exist before the step: variables and the batch.
        outputs: Values that the step returns.
        parameters: Those of the inputs that are trainable variables.
        constants: Integers of values that are known before running.
        remarks: What was assumed.
    """

    nodes: list[Node] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    parameters: tuple[int, ...] = ()
    constants: dict[int, int] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)

    def new_value(self, size: int, *, parent: int | None = None) -> int:
        """Add a value of so many bytes and return its number."""
        number = len(self.sizes)
        self.sizes.append(size)
        self.parents.append(number if parent is None else parent)
        return number

    def users(self) -> list[list[int]]:
        """Return, for each value, the indices of the nodes that read it, in program order."""
        users: list[list[int]] = [[] for _ in self.sizes]
        for index, node in enumerate(self.nodes):
            for value in dict.fromkeys(node.inputs):
                users[value].append(index)
        return users

    def producers(self) -> dict[int, int]:
        """Return the index of the node that makes each value; inputs of the step are missing."""
        return {value: index for index, node in enumerate(self.nodes) for value in node.outputs}

    def weights(self) -> dict[int, int]:
        """Return the values that are trainable variables, or parts of them, and which value each one converts.

        A variable that is cast or transposed stays the same; a part of it is a weight of its own.
        """
        weights = {value: value for value in self.parameters}
        for node in self.nodes:
            if node.inputs and node.inputs[0] in weights:
                if node.name in _CONVERSIONS:
                    weights.update(dict.fromkeys(node.outputs, weights[node.inputs[0]]))
                elif node.name in _PARTS:
                    weights.update({value: value for value in node.outputs})
        return weights

    def total_bytes(self, values: Sequence[int]) -> int:
        """Return the size of several distinct values together [bytes]."""
        return sum(self.sizes[value] for value in dict.fromkeys(values))
