"""Names of accelerators in other engines. An accelerator without a known name is not exported."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import NoAnswerError

COMMON_NAMES = {
    "K80": "K80", "P4": "P4", "P40": "P40", "P100-PCIe": "P100", "P100-SXM2": "P100", "V100-16GB": "V100",
    "V100-16GB-PCIe": "V100", "T4": "T4", "A10": "A10", "A10G": "A10G", "A40": "A40", "L4": "L4", "L40": "L40",
    "L40S": "L40S", "H100-PCIe": "H100", "H200": "H200", "B200": "B200", "RTX3090": "RTX3090",
    "RTX4090": "RTX4090", "RTX5090": "RTX5090",
}  # fmt: skip
# github.com/dstackai/gpuhunt: KNOWN_NVIDIA_GPUS, and for NVL src/gpuhunt/providers/runpod.py, commit 0272c27a;
# memory after a colon where it distinguishes
DSTACK = {
    **COMMON_NAMES, "V100-16GB": "V100:16GB", "V100-16GB-PCIe": "V100:16GB", "V100-32GB": "V100:32GB",
    "A6000": "A6000", "A100-40GB": "A100:40GB", "A100-40GB-PCIe": "A100:40GB", "A100-80GB": "A100:80GB",
    "A100-80GB-PCIe": "A100:80GB", "H100-SXM": "H100", "H100-NVL": "H100NVL", "H200-NVL": "H200NVL",
    "RTX6000Ada": "RTX6000Ada",
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


def describe_shared_name(accelerator: str, names: Mapping[str, str], *, engine: str) -> tuple[str, ...]:
    """Return a note if an engine has the same name for other accelerators, which it may start instead, or nothing.

    Example:
        >>> describe_shared_name("A100-80GB", DSTACK, engine="dstack")
        ("dstack's name `A100:80GB` also means A100-80GB-PCIe: check what it offers before you confirm",)
        >>> describe_shared_name("T4", DSTACK, engine="dstack")
        ()
    """
    name = names.get(accelerator)
    others = sorted(one for one in names if names[one] == name and one != accelerator)
    if not others:
        return ()
    return (
        f"{engine}'s name `{name}` also means {', '.join(others)}: check what it offers before you confirm",
    )
