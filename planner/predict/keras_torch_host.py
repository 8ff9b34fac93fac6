"""Host times of Keras on PyTorch, measured for this project: no published row is of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from .coefficients import Coefficients, HostCoefficients, load_coefficients
from .run_config import KERAS_TORCH, append_mode

# Fitted on 12 training steps of Keras 3.15.1 on PyTorch 2.11, timed without the loop of `fit()` on one H200
# with 16 cores of a Xeon (`profiles/measured/nvidia-h200-torch.json`, `benchmarks/keras_torch_host.py`). In
# most of them the host is the limit. Each step left out, the other eleven predict it with a median error of 23
# %. PyTorch's own modules take 38 microseconds in published steps. A step also casts weights, updates metrics
# and goes through the optimizer's lists, of which the kernels are not counted one by one.
DISPATCH_S = 77e-6
STEP_S = 6.1e-3


@cache
def load_user_coefficients() -> Coefficients:
    """Read the packaged coefficients and add the host of Keras on PyTorch; see `load_coefficients`."""
    packaged = load_coefficients()
    return replace(packaged, hosts=add_keras_torch_host(packaged.hosts))


def add_keras_torch_host(hosts: Mapping[str, HostCoefficients]) -> dict[str, HostCoefficients]:
    """Return fitted hosts with that of Keras on PyTorch; all that was not measured is that of PyTorch's modules.

    No inference was measured: a call has the time of a dispatch, and not what a training step takes beside.

    Args:
        hosts: Fitted ones by name, among them `eager`, for training and for inference.
    """
    found = dict(hosts)
    for mode, step_s in (("train", STEP_S), ("infer", 0.0)):
        own = hosts[append_mode("eager", mode)]
        found[append_mode(KERAS_TORCH, mode)] = replace(
            own, dispatch_s=DISPATCH_S, fixed_s=own.fixed_s + step_s
        )
    return found
