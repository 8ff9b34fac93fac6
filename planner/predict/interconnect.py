"""Interconnect of the devices of a machine and of machines, and the time of collectives on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from ..offers.rows import Accelerator, MachineLinks, Topology
from ..records import Frozen
from ..units import GIGA

BITS_PER_BYTE = 8.0

LinkKind = Literal["nvlink", "pcie", "ici", "network"]

# Share of a device's NVLinks that a ring over N devices can use, in the hybrid cube mesh.
MESH_SHARES: Mapping[str, Mapping[int, float]] = {
    "Pascal": {2: 1 / 4, 3: 2 / 4, 4: 3 / 4},
    "Volta": {2: 1 / 6, 3: 2 / 6, 4: 4 / 6},
}


class HostSpec(Frozen):
    """Properties of a host besides its accelerators; None if unknown."""

    topology: Topology | None = None  # how the devices are joined; None: as their accelerator usually is
    cpu_cores: int | None = None  # physical cores of the host [-]
    network_gbit_per_s: float | None = None  # all ports together, one direction [Gbit/s]


UNKNOWN_HOST = HostSpec()
HOST_SPECS: Mapping[str, HostSpec] = {
    "DGX-1": HostSpec(topology="cube mesh", cpu_cores=40, network_gbit_per_s=400.0),
    "DGX-2": HostSpec(topology="switch", cpu_cores=48, network_gbit_per_s=800.0),
    "DGX-2H": HostSpec(topology="switch", cpu_cores=48, network_gbit_per_s=800.0),
    "DGX A100": HostSpec(topology="switch", cpu_cores=128, network_gbit_per_s=1600.0),
    "p2.8xlarge": HostSpec(topology="pcie", cpu_cores=16, network_gbit_per_s=10.0),
    "p2.16xlarge": HostSpec(topology="pcie", cpu_cores=32, network_gbit_per_s=25.0),
    "p3.8xlarge": HostSpec(topology="cube mesh", cpu_cores=16, network_gbit_per_s=10.0),
    "p3.16xlarge": HostSpec(topology="cube mesh", cpu_cores=32, network_gbit_per_s=25.0),
    "p3dn.24xlarge": HostSpec(topology="cube mesh", cpu_cores=48, network_gbit_per_s=100.0),
    "p4d.24xlarge": HostSpec(topology="switch", cpu_cores=48, network_gbit_per_s=400.0),
    "g4dn.12xlarge": HostSpec(topology="pcie", cpu_cores=24, network_gbit_per_s=50.0),
    "n1-standard-32-k80x8": HostSpec(topology="pcie", cpu_cores=16, network_gbit_per_s=16.0),
    "GCE 8xV100": HostSpec(topology="cube mesh", cpu_cores=48, network_gbit_per_s=32.0),
}


def build_host_spec(links: MachineLinks | None) -> HostSpec:
    """Return the host specification from an instance type's links in the catalog; unknown for None."""
    if links is None:
        return UNKNOWN_HOST
    return HostSpec(topology=links.topology, network_gbit_per_s=links.network_gbit_per_s)


class Link(Frozen):
    """The slowest link of a ring over devices."""

    kind: LinkKind  # which share of its datasheet rate a collective reaches is fitted by kind
    bytes_per_s: float  # bandwidth of a device in one direction, by datasheet [bytes/s]


def find_slowest_link(
    accelerator: Accelerator, *, devices: float, machine: HostSpec = UNKNOWN_HOST, hosts: int = 1
) -> Link | None:
    """Return the slowest link of a ring over all devices; None when a rate on the way is unknown.

    A ring passes every host's network ports once, whatever the number of devices behind them.
    """
    inside = _inside(accelerator, devices=devices / hosts, machine=machine)
    if hosts == 1 or inside is None:
        return inside
    if machine.network_gbit_per_s is None:
        return None
    network = Link(kind="network", bytes_per_s=machine.network_gbit_per_s / BITS_PER_BYTE * GIGA)
    return min(inside, network, key=lambda link: link.bytes_per_s)


def _inside(accelerator: Accelerator, *, devices: float, machine: HostSpec) -> Link | None:
    topology = machine.topology or _usual_topology(accelerator)
    if topology == "ici" and accelerator.ici_gbit_per_s_per_direction:
        rate = accelerator.ici_gbit_per_s_per_direction / BITS_PER_BYTE * GIGA
        return Link(kind="ici", bytes_per_s=rate)
    if topology in ("switch", "cube mesh") and accelerator.link_gb_per_s_total:
        one_way = accelerator.link_gb_per_s_total / 2.0 * GIGA
        in_mesh = {} if topology == "switch" else MESH_SHARES.get(accelerator.architecture, {})
        return Link(kind="nvlink", bytes_per_s=one_way * in_mesh.get(round(devices), 1.0))
    if accelerator.pcie_gb_per_s_per_direction:
        rate = accelerator.pcie_gb_per_s_per_direction * GIGA / accelerator.dies_per_slot
        return Link(kind="pcie", bytes_per_s=rate)
    return None


def _usual_topology(accelerator: Accelerator) -> Topology:
    if accelerator.ici_gbit_per_s_per_direction:
        return "ici"
    if not accelerator.link_gb_per_s_total or accelerator.bridged:
        return "pcie"
    return "cube mesh" if accelerator.architecture in MESH_SHARES else "switch"


def exposed_s(*, exchange_s: float, hidden_at_most_s: float) -> float:
    """Return the part of an exchange that is not hidden by the backward pass [s].

    The part that hides is a smooth minimum of both (a p-norm of order -3): gradients come late in the pass, so
    that an exchange as long as the pass does not hide whole. Never negative, never more than the exchange.
    """
    if exchange_s <= 0.0 or hidden_at_most_s <= 0.0:
        return max(exchange_s, 0.0)
    smaller, larger = sorted((exchange_s, hidden_at_most_s))
    hidden_s = smaller / math.cbrt(1.0 + (smaller / larger) ** 3)
    return exchange_s - hidden_s
