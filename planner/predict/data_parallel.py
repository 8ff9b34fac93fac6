"""Constants of several devices, fitted on published steps whose step on one device was published beside them."""

from __future__ import annotations

import math
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any

from ..records import Frozen, from_plain
from .coefficients import read_fitted
from .interconnect import LinkKind

ANY_METHOD = ""  # the mean of the methods that were measured
# The chips of a TPU slice run in step, and their links take nothing from their cores (Jouppi et al., 2020, "A
# domain-specific supercomputer for training deep neural networks", CACM 63(7), doi:10.1145/3360307).
IN_STEP = frozenset({"ici"})
IMAGE_BYTES = 20_000  # a sample of this size and more is decoded and augmented by the host's cores
BACKWARD_SHARE = 2.0 / 3.0  # of a step's arithmetic: gradients to inputs and to weights, after forward


# Scale of the residuals of a step that several devices do not lengthen, in units of log(ratio): the residuals of
# left-out publishers are likeliest with it (844 steps of five publishers).
LEAST_SCALE = 0.05


class MethodCoefficients(Frozen):
    """Coefficients of one synchronization method."""

    # relative growth of the device's own work with each doubling of the devices: waiting for the slowest, memory
    # and multiprocessors shared with the exchange [-]
    slowdown: float
    sync_s: float  # fixed time per exchange [s]
    overlap: float  # share of the backward pass in which the exchange can hide, 0..1 [-]


class ExchangeCoefficients(Frozen):
    """Coefficients common to all methods of one form of exchange."""

    links: dict[str, float]  # share of the datasheet rate that an exchange reaches, by kind of link [-]
    decoded_per_s_per_core: float  # images that a host's core reads, decodes and augments [1/s]
    sharpness: float  # how sharply the host's limit sets in (power of a p-norm) [-]


class ParallelCoefficients(Frozen):
    """Everything that was fitted for one form of exchange, and on what.

    ``interval`` holds the ends of the 80 % interval of log(measured / predicted), on sources left out, of the
    ratio of the steps on several devices and on one, over its `ratio_scale`.
    """

    shares: ExchangeCoefficients
    methods: dict[str, MethodCoefficients]
    interval: tuple[float, float] = (0.0, 0.0)
    fitted_on: dict[str, Any] = field(default_factory=dict)

    def method(self, name: str) -> MethodCoefficients:
        """Return a fitted method; unknown ones behave as the mean."""
        return self.methods.get(name, self.methods[ANY_METHOD])


@cache
def load_parallel_coefficients(path: Path | None = None) -> dict[str, ParallelCoefficients]:
    """Read the constants by form (`all_reduce`, `parameter_server`, `one_process`); see `read_fitted`."""
    return read_fitted(
        "parallel.json",
        path,
        lambda data: {name: from_plain(ParallelCoefficients, row) for name, row in data["forms"].items()},
        what="constants of several devices",
    )


def compute_waiting_s(single_s: float, *, devices: float, kind: LinkKind, way: MethodCoefficients) -> float:
    """Return the slowdown of a device's own work next to others: work x slowdown x log2(N); 0 in step [s]."""
    return 0.0 if kind in IN_STEP else single_s * way.slowdown * math.log2(devices)


def ratio_scale(ratio: float) -> float:
    """Return the scale of the residuals of a ratio of steps, `LEAST_SCALE` + log(ratio) [-].

    The error of the time added by several devices is a share of that time, so a step that they hardly lengthen is
    well known. The residuals of left-out publishers are likelier with this scale than with one that grows with the
    number of devices.

    Args:
        ratio: Predicted step on several devices over that on one, at least 1 [-].
    """
    return LEAST_SCALE + math.log(max(ratio, 1.0))
