"""Collectives of a step that devices share."""

from __future__ import annotations

from typing import Literal

from ..frozen import Frozen
from .ops import Phase

CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter"]
PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}  # around the ring of its devices [-]


class Collective(Frozen):
    """A collective of a divided step, over rings of the devices along one or more axes of the mesh.

    Args:
        kind: What it does.
        devices: Devices of one ring [-].
        stride: Distance of neighbours in the order of the mesh: as many rings lie side by side [-].
        message_bytes: The larger of operand and result on one device [bytes].
        count: Executions in a step [-].
        phase: Forward pass, backward pass or update.
        replicas: Whether its devices have samples of their own, so that it sums gradients or gathers variables.
    """

    kind: CollectiveKind
    devices: int
    stride: int
    message_bytes: int
    count: float
    phase: Phase
    replicas: bool

    @property
    def passes(self) -> int:
        """Passes of the message around the ring [-]."""
        return PASSES[self.kind]

    @property
    def sent_bytes(self) -> float:
        """Data that a device sends in all executions, (N - 1) / N of the message each pass [bytes].

        Patarasuk and Yuan, 2009, doi:10.1016/j.jpdc.2008.09.002, section 3.
        """
        share = (self.devices - 1) / self.devices
        return self.passes * share * self.message_bytes * self.count
