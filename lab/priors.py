"""Priors of the fit: starting points, bounds, and spreads of the members of each group of coefficients.

Shares of peak and bandwidth start at what micro-benchmarks of these chips call good (Jia et al., 2018,
"Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", arXiv:1804.06826: 0.7 to 0.9); times are
orders of magnitude. The data decides within the bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuplan.predict.coefficients import (
    GenerationCoefficients,
    HostCoefficients,
    SharedCoefficients,
    StackCoefficients,
    field_names,
)
from gpuplan.predict.run_config import KERAS_TORCH

StartAndBounds = tuple[float, float, float]  # start, lowest, highest
PRIOR_LOG = 1.0  # prior spread of the means around their starting points, in log units
ROBUST_SPREADS = 1.0  # scale of the robust loss for outlying members, in prior spreads
NEVER_LINEAR = 1e3  # scale that is never reached: quadratic loss
ROBUST_LOG = 0.15  # scale of the soft L1 loss of residuals, against outliers


@dataclass(frozen=True, slots=True)
class CoefficientGroup:
    """Group of coefficients with one value per member.

    Args:
        name: What a case calls its member (`generation`, `stack`, `host`); empty when all cases share one.
        kind: The coefficients.
        ranges: Start and bounds of the mean over the members, by coefficient.
        spread_log: Prior spread of a member around the mean, in log units.
        closer_log: Prior spread of a member, by coefficient, where it differs from `spread_log`.
        surer_log: Prior spread of the mean around its start, where that is known better than `PRIOR_LOG` says.
        odd: Coefficients that a single member may be odd in: beyond `ROBUST_SPREADS` prior spreads its deviation
            counts linearly, so that it does not move the mean. In all others it counts squared.
        parents: Member -> coefficient -> the member around which its own lies, where that is not the mean.
        own_log: Member -> coefficient -> prior spread of this member, where it differs from the others'.
        tied_log: Coefficient -> prior spread of inference around training by the same software, if fitted.
        infer_log: Coefficient -> prior spread of the ratio of inference to training, one for all software.
    """

    name: str
    kind: (
        type[GenerationCoefficients] | type[SharedCoefficients] | type[StackCoefficients] | type[HostCoefficients]
    )
    ranges: dict[str, StartAndBounds]
    spread_log: float
    closer_log: dict[str, float] = field(default_factory=dict)
    surer_log: dict[str, float] = field(default_factory=dict)
    odd: frozenset[str] = frozenset()
    parents: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    own_log: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    tied_log: Mapping[str, float] = field(default_factory=dict)
    infer_log: Mapping[str, float] = field(default_factory=dict)

    @property
    def priors_log(self) -> list[float]:
        """Prior spread of the mean, by coefficient in order."""
        return [self.surer_log.get(name, PRIOR_LOG) for name in self.ranges]

    def find_parent(self, member: str, name: str) -> str:
        """Return the member around which another one's coefficient lies; "" for the mean."""
        trained = member.removesuffix(" infer")
        if name in self.tied_log and trained != member and member not in self.parents:
            return trained
        return self.parents.get(member, {}).get(name, "")

    def spreads_log(self, member: str, members: Sequence[str]) -> list[float]:
        """Return the prior spread of a member, by coefficient in order.

        Args:
            member: One of the members.
            members: All that are fitted.
        """
        is_tied = member not in self.parents and member.removesuffix(" infer") in {*members} - {member}
        spreads = {**self.closer_log, **(self.tied_log if is_tied else {}), **self.own_log.get(member, {})}
        return [spreads.get(name, self.spread_log) for name in self.ranges]

    @property
    def robust_spreads(self) -> list[float]:
        """Scale of the robust loss of a member in prior spreads, by coefficient in order."""
        return [ROBUST_SPREADS if name in self.odd else NEVER_LINEAR for name in self.ranges]

    def __post_init__(self) -> None:
        if tuple(self.ranges) != field_names(self.kind):
            raise ValueError(f"the ranges of {self.kind.__name__} are not in the order of its fields")


GROUPS = (
    CoefficientGroup(
        "generation",
        GenerationCoefficients,
        {
            "conv": (0.8, 0.05, 1.5), "conv_wgrad": (0.7, 0.05, 1.5), "depthwise": (0.1, 0.005, 1.0),
            "depthwise_wgrad": (0.1, 0.005, 1.0), "dot": (0.85, 0.05, 1.0), "conv_tensor": (0.6, 0.3, 0.9),
            "dot_tensor": (0.75, 0.4, 1.0), "winograd_gain": (2.25, 1.0, 4.0), "stream": (0.75, 0.2, 1.0),
            "pool": (0.75, 0.05, 1.0), "irregular": (0.3, 0.02, 1.0), "launch_s": (4e-6, 5e-7, 2e-5),
            "step_latency_s": (4e-7, 2e-8, 4e-6), "filter_passes": (10.0, 0.5, 60.0),
            "array_passes": (1.0, 0.05, 8.0), "atomics": (9.0, 0.5, 64.0),
        },
        0.3,
        # One library family serves all of them; NVIDIA's guides show 0.6 to 0.8 of the peak for large products
        # on V100 as on A100, of twice its density ("Matrix Multiplication Background User's Guide", figures 2 to
        # 7). The gap between two kernels is the driver's and the scheduler's, transforms are the same everywhere.
        # Latencies of caches differ by a factor of two and more (Jia et al., table 3.1). An address takes one
        # atomic addition a clock (NVIDIA, "Kepler GK110", 2012), a filter of 3 x 3 has nine.
        dict.fromkeys(("stream", "pool", "irregular"), 0.15) | dict.fromkeys(
            ("conv_tensor", "dot_tensor", "conv", "conv_wgrad", "dot", "winograd_gain"), 0.1
        ) | {"launch_s": 0.02, "filter_passes": 0.15, "array_passes": 0.15, "step_latency_s": 0.1},
        # One of some ten instructions of a depthwise convolution multiplies, and a core of most generations issues
        # two in the time of one multiplication. Steps alone do not tell it from the gradient of the filter.
        {"conv_tensor": 0.1, "dot_tensor": 0.1, "dot": 0.1, "pool": 0.15, "launch_s": 0.2, "depthwise": 0.3},
        odd=frozenset(field_names(GenerationCoefficients)) - {"launch_s"},
    ),
    CoefficientGroup(
        "",
        SharedCoefficients,
        {
            "tile_exponent": (0.5, 0.05, 1.5), "quantization": (0.5, 0.01, 1.0), "split_cost": (0.1, 0.01, 1.0),
            "sharpness": (3.0, 1.0, 10.0), "dot_sharpness": (3.0, 1.0, 10.0), "host_sharpness": (4.0, 1.0, 20.0),
            "tensor_density": (0.3, 0.01, 1.0), "memory_density": (0.3, 0.01, 1.0),
            "clock_headroom": (1.6, 1.0, 2.5), "inline_ecc": (0.85, 0.6, 1.0), "l2_reuse": (0.3, 0.01, 0.95),
            "pressure_slope": (0.5, 0.01, 3.0), "tensor_per_year": (1.0, 0.8, 1.3),
            "scalar_per_year": (1.0, 0.8, 1.3), "serial": (1.0, 0.3, 4.0),
        },
        0.0,
        # Of the three densities of tensor units that were measured, a chip that is left out takes away an end.
        # Steps that need more memory than there is are few. Training draws a half to three quarters of the
        # heaviest load's power, which goes with the second to third power of the clock: 1.1 to 1.4 times the base
        # clock. A T4 is said to keep 1.1 to 1.3 GHz in long training, 1.9 to 2.2 times its own
        # (catalog/accelerators.toml): between the two. A T4 copies at 0.75 of its datasheet's rate and a V100 at
        # 0.82 (CUDA's bandwidthTest of both, github.com/router-gao/cuda-demo at 8e2367b), though a T4 has less to
        # move for each core. Kernels of the libraries overlap arithmetic and traffic: neither sum nor maximum is
        # likely.
        surer_log={
            "sharpness": 0.2, "dot_sharpness": 0.2, "tensor_density": 0.3, "pressure_slope": 0.3,
            "clock_headroom": 0.15, "tensor_per_year": 0.1, "scalar_per_year": 0.1, "inline_ecc": 0.05,
            "host_sharpness": 0.3, "serial": 0.5,
        },
    ),
    CoefficientGroup(
        "stack",
        StackCoefficients,
        {
            "contraction": (1.0, 0.5, 2.0), "tensor": (1.0, 0.5, 2.0), "stream": (1.0, 0.5, 2.0),
            "launch": (1.0, 0.3, 3.0),
        },
        0.25,
        # A framework that dispatches kernels one by one leaves gaps of its own; a program has those of the driver.
        {"launch": 0.7},
        # Factors relative to the mean of all stacks, which is therefore 1.
        surer_log=dict.fromkeys(("contraction", "tensor", "stream", "launch"), 0.01),
        # XLA captures a step in CUDA graphs, whose kernels follow one another sooner than those of a host. XLA and
        # TensorFlow call the same library for convolutions; PyTorch launches the kernels of Keras on it, and its
        # compiler leaves convolutions and products to the libraries.
        parents={
            "xla": dict.fromkeys(("contraction", "tensor"), "tensorflow2 keras"),
            KERAS_TORCH: dict.fromkeys(field_names(StackCoefficients), "pytorch eager"),
            "inductor infer": dict.fromkeys(("contraction", "tensor"), "pytorch eager infer"),
        },
        own_log={
            "xla": {"contraction": 0.1, "tensor": 0.1, "launch": 1.0},
            KERAS_TORCH: dict.fromkeys(field_names(StackCoefficients), 0.1),
            "inductor infer": dict.fromkeys(("contraction", "tensor"), 0.1),
        },
        # A forward pass runs the same kernels whether a backward pass follows or not.
        tied_log=dict.fromkeys(field_names(StackCoefficients), 0.1),
    ),
    CoefficientGroup(
        "host",
        HostCoefficients,
        {
            "fixed_s": (1e-3, 1e-5, 2e-2), "dispatch_s": (2e-5, 1e-6, 2e-4),
            "feed_bytes_per_s": (4e9, 3e8, 1e11),
        },
        0.4,
        # Threads of C++ dispatch a graph, Python the modules of PyTorch: these do not tell of other hosts. Keras
        # takes time beside that PyTorch's modules do not: for metrics, for each variable, and to convert and
        # reshape in each layer call.
        parents={KERAS_TORCH: dict.fromkeys(field_names(HostCoefficients), "pytorch eager")},
        own_log={
            KERAS_TORCH: {"fixed_s": 1.0, "dispatch_s": 1.0},
            "pytorch eager": {"dispatch_s": 1.0},
            "pytorch tuned": {"dispatch_s": 1.0},
        },
        tied_log={"dispatch_s": 0.2},
        # Nothing is recorded for a backward pass, which has most of a graph's nodes that launch no kernel.
        infer_log={"dispatch_s": 0.5},
    ),
)  # fmt: skip

# Since Volta, first-level cache and shared memory are one, and threads of a warp are scheduled each on its own
# (NVIDIA, "Tesla V100 GPU Architecture", 2017; how much faster that cache is: Jia et al., 2018, section 3). What
# chips of this era have on top of the older ones is fitted too, and serves chips of generations that were never
# measured. Prior spread of half of the difference, in log units. Older chips have no tensor units to differ
# from, no algorithm makes a product do more than the peak on either, one transforms as another does, and the gap
# between two kernels is the driver's and the scheduler's.
ERA_SPREAD_LOG = (
    dict.fromkeys(GROUPS[0].ranges, 0.3)
    | {"launch_s": 0.1, "step_latency_s": 0.45}
    | dict.fromkeys(("filter_passes", "array_passes"), 0.05)
    | dict.fromkeys(("conv_tensor", "dot_tensor", "dot"), 0.02)
)
NEVER_RISING = ("launch_s", "step_latency_s")  # clocks and schedulers do not get slower with the years

# Spreads that are chosen for each fit by cross-validation of its rows (`spread_choice.py`), as factors of those
# above: group of coefficients -> coefficient -> class. A member with a spread of its own is a class of its own.
CHOSEN: Mapping[str, Mapping[str, str]] = {
    "generation": {
        **dict.fromkeys(("conv", "conv_wgrad", "conv_tensor", "dot", "dot_tensor", "winograd_gain"), "products"),
        **dict.fromkeys(("depthwise", "depthwise_wgrad", "atomics"), "depthwise"),
        **dict.fromkeys(("stream", "pool", "irregular"), "streams"),
        "step_latency_s": "latency",
    },
    "": {"serial": "serial"},
    "stack": dict.fromkeys(field_names(StackCoefficients), "stack"),
    "host": dict.fromkeys(field_names(HostCoefficients), "host"),
}


def name_spread_class(group: CoefficientGroup, member: str, name: str) -> str:
    """Return the class of a member's prior spread of a coefficient; "" if it is not chosen."""
    found = CHOSEN[group.name].get(name, "")
    if found and name in group.own_log.get(member, {}):
        return f"{found} {member}"
    return f"{found} infer" if found and group.find_parent(member, name) else found
