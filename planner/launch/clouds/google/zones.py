"""Zones of a region, machine types of catalog names, and TPU runtimes by generation."""

from __future__ import annotations

import re

from ....errors import UsageError
from ...core.request import LaunchCandidate

# Most regions have zones a, b and c (https://cloud.google.com/memorystore/docs/memcached/regions). These have
# others: us-central1 as listed there; us-east1 and europe-west1 as `gcloud compute zones list` printed them
# (https://gist.github.com/maurer/cb14d5badf112b5fb984); us-central2, for TPU v4, [unverified]. A wrong one is
# refused, and the next is tried.
_OTHER_ZONES = {"us-central1": "abcf", "us-east1": "bcd", "europe-west1": "bcd", "us-central2": "b"}
# Accelerators that are attached to N1 machines: names of `acceleratorTypes`, as in Kubernetes'
# cluster-autoscaler/cloudprovider/gce/gce_price_info.go.
_ATTACHED = {
    "T4": "nvidia-tesla-t4",
    "P4": "nvidia-tesla-p4",
    "P100": "nvidia-tesla-p100",
    "V100": "nvidia-tesla-v100",
    "K80": "nvidia-tesla-k80",
}
# TPU runtimes for JAX and PyTorch: https://docs.cloud.google.com/tpu/docs/runtimes
_RUNTIMES = {"v5litepod": "v2-alpha-tpuv5-lite", "v5p": "v2-alpha-tpuv5", "v6e": "v2-alpha-tpuv6e"}
_COMMON_RUNTIME = "tpu-ubuntu2204-base"


def list_zones(region: str) -> tuple[str, ...]:
    """Return the zones of a region.

    Example:
        >>> list_zones("us-east1")
        ('us-east1-b', 'us-east1-c', 'us-east1-d')
    """
    if not re.fullmatch(r"[a-z]+-[a-z]+\d+", region):
        raise UsageError(f"`{region}` is not a region of Google Cloud", hint="choose an offer with a region")
    return tuple(f"{region}-{letter}" for letter in _OTHER_ZONES.get(region, "abc"))


def parse_region(zone: str) -> str:
    """Return the region of a zone.

    Example:
        >>> parse_region("us-east1-b")
        'us-east1'
    """
    return zone.rpartition("-")[0]


def machine_type(instance_type: str) -> tuple[str, tuple[str, int] | None]:
    """Return the machine type of a catalog name, and its attached accelerators.

    Example:
        >>> machine_type("n1-standard-8+2xT4")
        ('n1-standard-8', ('nvidia-tesla-t4', 2))
        >>> machine_type("a2-highgpu-1g")
        ('a2-highgpu-1g', None)
    """
    base, plus, attached = instance_type.partition("+")
    if not plus:
        return base, None
    count, _, name = attached.partition("x")
    if name not in _ATTACHED or not count.isdecimal():
        raise UsageError(
            f"`{attached}` cannot be attached to {base}: unknown accelerator name",
            hint="choose another offer",
        )
    return base, (_ATTACHED[name], int(count))


def accelerator_type(candidate: LaunchCandidate) -> str:
    """Return the API's name of a TPU slice: the catalog's, without `tpu-`."""
    return candidate.instance_type.removeprefix("tpu-")


def runtime_version(slice_name: str) -> str:
    """Return the runtime version of a TPU slice.

    Example:
        >>> runtime_version("v6e-8")
        'v2-alpha-tpuv6e'
    """
    return _RUNTIMES.get(slice_name.partition("-")[0], _COMMON_RUNTIME)
