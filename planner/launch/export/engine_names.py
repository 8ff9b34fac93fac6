"""Accelerator names of the engines; an accelerator without a known name is not exported."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import NoAnswerError

__all__ = ["DSTACK", "SKYPILOT", "find_engine_name"]

_COMMON = {
    "K80": "K80", "P4": "P4", "P40": "P40", "P100-PCIe": "P100", "P100-SXM2": "P100", "V100-16GB": "V100",
    "V100-16GB-PCIe": "V100", "T4": "T4", "A10": "A10", "A10G": "A10G", "A40": "A40", "L4": "L4", "L40": "L40",
    "L40S": "L40S", "H100-PCIe": "H100", "H200": "H200", "B200": "B200", "RTX3090": "RTX3090",
    "RTX4090": "RTX4090", "RTX5090": "RTX5090",
}  # fmt: skip
# github.com/skypilot-org/skypilot-catalog, catalogs/v8: columns AcceleratorName
SKYPILOT = {
    **_COMMON, "M60": "M60", "V100-32GB": "V100-32GB", "A6000": "RTXA6000", "A100-40GB": "A100",
    "A100-40GB-PCIe": "A100", "A100-80GB": "A100-80GB", "A100-80GB-PCIe": "A100-80GB", "H100-SXM": "H100",
    "RTX6000Ada": "RTX6000-Ada",
}  # fmt: skip
# gpuhunt, KNOWN_NVIDIA_GPUS; memory after a colon where it distinguishes
DSTACK = {
    **_COMMON, "V100-16GB": "V100:16GB", "V100-16GB-PCIe": "V100:16GB", "V100-32GB": "V100:32GB",
    "A6000": "A6000", "A100-40GB": "A100:40GB", "A100-40GB-PCIe": "A100:40GB", "A100-80GB": "A100:80GB",
    "A100-80GB-PCIe": "A100:80GB", "H100-SXM": "H100", "RTX6000Ada": "RTX6000Ada",
}  # fmt: skip


def find_engine_name(accelerator: str, names: Mapping[str, str], *, engine: str) -> str:
    """Return the name of an accelerator in an engine.

    Raises:
        NoAnswerError: No name is known.

    Example:
        >>> find_engine_name("A100-80GB", DSTACK, engine="dstack")
        'A100:80GB'
    """
    if accelerator not in names:
        raise NoAnswerError(
            f"no known name of {accelerator} in {engine}",
            hint="choose an offer with another accelerator: `--rank N`",
        )
    return names[accelerator]
