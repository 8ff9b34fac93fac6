"""Names of accelerators in SkyPilot, which differ by cloud, and dstack. One without a known name is not exported.

Sources of SkyPilot's, in github.com/skypilot-org:

* names by cloud: skypilot-catalog, commit 001ca549, `catalogs/v8/common/accelerators.csv`
* RunPod: skypilot, commit 02b01447, `sky/provision/runpod/utils.py`, `GPU_NAME_MAP`
* Vast: the vendor's name without blanks and without the form of the card, as skypilot, commit 0fb0b222,
  `sky/catalog/data_fetchers/fetch_vast.py` writes it
* Google: the machine types of each name in `sky/catalog/gcp_catalog.py`, `_ACC_INSTANCE_TYPE_DICTS`
"""

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
_NAMES = {
    **COMMON_NAMES, "M60": "M60", "V100-32GB": "V100-32GB", "A100-40GB": "A100", "A100-40GB-PCIe": "A100",
    "A100-80GB": "A100-80GB", "A100-80GB-PCIe": "A100-80GB", "H100-SXM": "H100", "RTXPRO6000": "RTXPRO6000",
}  # fmt: skip
_LAMBDA = {**_NAMES, "A6000": "A6000", "GH200": "GH200", "QuadroRTX6000": "RTX6000"}
_RUNPOD = {
    "MI300X": "MI300X", "A30": "A30", "A40": "A40", "A5000": "RTXA5000", "A6000": "RTXA6000",
    "A100-80GB-PCIe": "A100-80GB", "A100-80GB": "A100-80GB-SXM", "B200": "B200", "H100-PCIe": "H100",
    "H100-SXM": "H100-SXM", "H100-NVL": "H100-NVL", "H200": "H200-SXM", "L4": "L4", "L40": "L40", "L40S": "L40S",
    "RTX3090": "RTX3090", "RTX4090": "RTX4090", "RTX5090": "RTX5090", "RTX6000Ada": "RTX6000-Ada",
    "RTXPRO6000": "RTXPRO6000", "V100-16GB": "V100-16GB-SXM2", "V100-16GB-PCIe": "V100-16GB-PCIe",
    "V100-32GB": "V100-32GB-SXM2",
}  # fmt: skip
_VAST = {
    "P40": "TeslaP40", "P100-PCIe": "P100", "V100-16GB": "V100", "V100-32GB": "V100", "T4": "T4", "A40": "A40",
    "A5000": "RTXA5000", "A6000": "RTXA6000", "A100-40GB": "A100", "A100-40GB-PCIe": "A100", "A100-80GB": "A100",
    "A100-80GB-PCIe": "A100", "H100-SXM": "H100", "H100-PCIe": "H100", "H100-NVL": "H100", "H200": "H200",
    "H200-NVL": "H200", "B200": "B200", "B300": "B300", "L4": "L4", "L40": "L40", "L40S": "L40S",
    "RTX3090": "RTX3090", "RTX4090": "RTX4090", "RTX5090": "RTX5090", "RTX6000Ada": "RTX6000-Ada",
    "RTXPRO6000": "RTXPRO6000S",
}  # fmt: skip
_BY_PROVIDER: Mapping[str, Mapping[str, str]] = {"lambda": _LAMBDA, "runpod": _RUNPOD, "vast": _VAST}


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
    return (f"{engine}'s name `{name}` also means {', '.join(others)}: check what it offers before you confirm",)


def find_skypilot_name(provider: str, instance_type: str, accelerator: str) -> str:
    """Return SkyPilot's name of an accelerator in a cloud.

    Raises:
        NoAnswerError: No name is known.

    Example:
        >>> find_skypilot_name("aws", "p4de.24xlarge", "A100-80GB")
        'A100-80GB'
        >>> find_skypilot_name("runpod", "NVIDIA A100-SXM4-80GB", "A100-80GB")
        'A100-80GB-SXM'
        >>> find_skypilot_name("gcp", "a3-megagpu-8g", "H100-SXM")
        'H100-MEGA'
    """
    if provider == "gcp" and instance_type.startswith("a3-megagpu"):
        return "H100-MEGA"
    return find_engine_name(accelerator, _BY_PROVIDER.get(provider, _NAMES), engine="SkyPilot")


def describe_ambiguity(provider: str, accelerator: str) -> tuple[str, ...]:
    """Return a note if SkyPilot has one name for several accelerators of a marketplace, or nothing."""
    return describe_shared_name(accelerator, _VAST, engine="SkyPilot") if provider == "vast" else ()
