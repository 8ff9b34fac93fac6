"""Axes of a device mesh along which something is divided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from ....frozen import Frozen
from .spec import Axes, Axis


class MeshAxes(Frozen):
    """Axes of a mesh, whose devices are numbered along the last axis first.

    Args:
        sizes: Length of each axis, in their order [-].
        replicas: Axes along which samples are divided.
    """

    sizes: Mapping[str, int]
    replicas: frozenset[str] = frozenset()

    def build_axes(self, names: str | Sequence[str] | None) -> Axes:
        """Return the axes of a dimension of an activation by their names; those of one device are left out."""
        listed = (names,) if isinstance(names, str) else tuple(names or ())
        return tuple(
            Axis(name, 1 if name in self.replicas else self.sizes[name])
            for name in listed
            if name in self.sizes
        )

    def describe_ring(self, names: Sequence[str], *, message_bytes: int) -> dict[str, Any]:
        """Return the fields of a `Collective` over some axes, but for those that its place in the step states.

        Args:
            names: Axes.
            message_bytes: The larger of operand and result on one device [bytes].

        Example:
            >>> mesh = MeshAxes(sizes={"batch": 2, "model": 4}, replicas=frozenset(["batch"]))
            >>> mesh.describe_ring(["batch"], message_bytes=8)
            {'devices': 2, 'stride': 4, 'message_bytes': 8, 'replicas': True}
        """
        order = list(self.sizes)
        last = max(order.index(name) for name in names)
        return {
            "devices": prod(self.sizes[name] for name in names),
            "stride": prod(self.sizes[name] for name in order[last + 1 :]),
            "message_bytes": message_bytes,
            "replicas": self.replicas.issuperset(names),
        }
