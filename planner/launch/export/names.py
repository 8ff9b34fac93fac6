"""Names of accelerators in SkyPilot, which differ by cloud, dstack and Colab. One without a name is not exported.

Sources of the columns of `names.csv`:

* `skypilot`, `lambda`: github.com/skypilot-org/skypilot-catalog, commit 001ca549,
  `catalogs/v8/common/accelerators.csv`; Google's machine types of each name: skypilot,
  `sky/catalog/gcp_catalog.py`, `_ACC_INSTANCE_TYPE_DICTS`
* `runpod`: skypilot, commit 02b01447, `sky/provision/runpod/utils.py`, `GPU_NAME_MAP`
* `vast`: the vendor's name without blanks and without the form of the card, as skypilot, commit 0fb0b222,
  `sky/catalog/data_fetchers/fetch_vast.py` writes it
* `dstack`: github.com/dstackai/gpuhunt, commit 0272c27a, KNOWN_NVIDIA_GPUS, and for NVL its provider `runpod`;
  memory after a colon where it distinguishes
* `colab`: kind and type of a runtime in the metadata of notebooks; a CPU has neither
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from ...errors import NoAnswerError

ENGINES = {"dstack": "dstack", "colab": "Colab"}  # others are columns of SkyPilot
MARKETS = ("lambda", "runpod", "vast")  # with names of their own in SkyPilot


@cache
def load_names(column: str) -> Mapping[str, str]:
    """Return the names of a column of `names.csv` by accelerator."""
    text = files("gpuplan.launch.export").joinpath("names.csv").read_text(encoding="utf-8")
    return {row["accelerator"]: row[column] for row in csv.DictReader(text.splitlines()) if row[column]}


def find_engine_name(accelerator: str, column: str) -> str:
    """Return the name of an accelerator in an engine, or raise NoAnswerError.

    Example:
        >>> find_engine_name("A100-80GB", "dstack")
        'A100:80GB'
    """
    names = load_names(column)
    if accelerator not in names:
        raise NoAnswerError(
            f"no known name of {accelerator} in {ENGINES.get(column, 'SkyPilot')}",
            hint="choose an offer with another accelerator: `--rank N`",
        )
    return names[accelerator]


def describe_shared_name(accelerator: str, column: str) -> tuple[str, ...]:
    """Return a note if an engine has the same name for other accelerators, which it may start instead, or nothing.

    Example:
        >>> describe_shared_name("A100-80GB", "dstack")
        ("dstack's name `A100:80GB` also means A100-80GB-PCIe: check what it offers before you confirm",)
        >>> describe_shared_name("T4", "dstack")
        ()
    """
    names, engine = load_names(column), ENGINES.get(column, "SkyPilot")
    name = names.get(accelerator)
    others = sorted(one for one in names if names[one] == name and one != accelerator)
    if not others:
        return ()
    return (f"{engine}'s name `{name}` also means {', '.join(others)}: check what it offers before you confirm",)


def list_dstack_regions(region: str, tier: str) -> list[str]:
    """Return the regions to rent in: the offer's, or those of its tier; empty for all.

    Example:
        >>> list_dstack_regions("us-east-1", ""), len(list_dstack_regions("any", "secure"))
        (['us-east-1'], 48)
    """
    if region != "any":
        return [region]
    tiers = tomllib.loads(files(__package__).joinpath("runpod.toml").read_text(encoding="utf-8"))
    return list(tiers.get(tier, ()))


def find_skypilot_name(provider: str, instance_type: str, accelerator: str) -> str:
    """Return SkyPilot's name of an accelerator in a cloud, or raise NoAnswerError.

    Example:
        >>> find_skypilot_name("runpod", "NVIDIA A100-SXM4-80GB", "A100-80GB")
        'A100-80GB-SXM'
        >>> find_skypilot_name("gcp", "a3-megagpu-8g", "H100-SXM")
        'H100-MEGA'
    """
    if provider == "gcp" and instance_type.startswith("a3-megagpu"):
        return "H100-MEGA"
    return find_engine_name(accelerator, provider if provider in MARKETS else "skypilot")
