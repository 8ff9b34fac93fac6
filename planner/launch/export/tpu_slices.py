"""TPU slices as hosts, and as nodes of Google Kubernetes Engine."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import NoAnswerError
from .task import ExportTask

CHIPS_PER_HOST = 4
# Chips that one host can have (ct5lp-hightpu-8t, ct6e-standard-8t): cloud.google.com/tpu/docs/v5e and /v6e
_ON_ONE_HOST = {"TPU-v5e": 8, "TPU-v6e": 8}
# Topologies by chips. github.com/AI-Hypercomputer/xpk, src/xpk/core/system_characteristics.py, 367c838: labels of
# GKE's nodes, and the default shape of each size. Slices of one host with 1, 4 and 8 chips of v5e and v6e:
# cloud.google.com/kubernetes-engine/docs/how-to/tpus.
_FLAT = {
    1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16",
}  # fmt: skip
_CUBES = {
    4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4", 128: "4x4x8", 256: "4x8x8", 512: "8x8x8",
    768: "8x8x12", 1024: "8x8x16", 2048: "8x16x16",
}  # fmt: skip
_NODES = {
    "TPU-v4": ("tpu-v4-podslice", _CUBES),
    "TPU-v5e": ("tpu-v5-lite-podslice", _FLAT),
    "TPU-v5p": ("tpu-v5p-slice", _CUBES),
    "TPU-v6e": ("tpu-v6e-slice", _FLAT),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TpuSlice:
    """A slice as a node pool of GKE.

    Args:
        accelerator: Value of the nodes' label `cloud.google.com/gke-tpu-accelerator`.
        topology: Value of their label `cloud.google.com/gke-tpu-topology`.
        hosts: Nodes, each with one pod [-].
        chips_per_host: Chips of each [-].
    """

    accelerator: str
    topology: str
    hosts: int
    chips_per_host: int


def count_slice_hosts(accelerator: str, chips: float) -> int:
    """Return the hosts of a TPU slice, each of which runs the script; 1 for other devices [-].

    Args:
        accelerator: Name in the catalog.
        chips: Chips of the slice [-].

    Example:
        >>> count_slice_hosts("TPU-v5e", 8), count_slice_hosts("TPU-v5e", 16), count_slice_hosts("TPU-v5p", 8)
        (1, 4, 2)
    """
    if not accelerator.startswith("TPU") or chips <= _ON_ONE_HOST.get(accelerator, CHIPS_PER_HOST):
        return 1
    return int(chips) // CHIPS_PER_HOST


def find_tpu_slice(task: ExportTask) -> TpuSlice:
    """Return the node pool of a task's slice.

    Raises:
        NoAnswerError: GKE's labels of such a slice are not known.
    """
    offer, chips = task.offer, task.devices
    label, topologies = _NODES.get(offer.accelerator, ("", {}))
    if chips not in topologies:
        raise NoAnswerError(
            f"cannot export {offer.instance_type} to Kubernetes: no known nodes of GKE with {chips} chips of "
            f"{offer.accelerator}",
            hint=f"choose another offer: `--rank N`; known are slices of {', '.join(_NODES)}",
        )
    hosts = count_slice_hosts(offer.accelerator, chips)
    return TpuSlice(accelerator=label, topology=topologies[chips], hosts=hosts, chips_per_host=chips // hosts)


def require_single_host(task: ExportTask, *, engine: str) -> None:
    """Raise NoAnswerError for a TPU slice of several hosts."""
    hosts = count_slice_hosts(task.offer.accelerator, task.devices)
    if hosts > 1:
        raise NoAnswerError(
            f"cannot export {task.offer.instance_type} to {engine}: it has {hosts} hosts",
            hint="`--to skypilot` and `--to kubernetes` take slices of several hosts",
        )
