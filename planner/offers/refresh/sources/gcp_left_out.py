"""Accelerators and machine series in Google's price list that no machine of the catalog has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ....errors import UsageError
from ...aliases import AcceleratorNames
from ..instance_types import InstanceSpecs
from ..source import LeftOut
from .gcp_prices import CORE, GoogleSku, find_priced_parts, is_in_scope, parse_part

ACCELERATOR_GROUPS = ("GPU", "TPU")  # resource groups
# Machine series with accelerators: https://cloud.google.com/compute/docs/accelerator-optimized-machines
ACCELERATOR_SERIES = re.compile(r"[ag][2-9]\w*[- ]")


def find_left_out(skus: Iterable[GoogleSku], specs: InstanceSpecs) -> Iterator[LeftOut]:
    """Yield the priced accelerators and machine series that no machine of the catalog has.

    Google does not price machine types, so new sizes of a known series are not found.
    """
    used = {part for name, spec in specs.known.items() for part in find_priced_parts(name, spec) or ()}
    for sku in filter(is_in_scope, skus):
        part = parse_part(sku.description)
        name = _name_part(sku.description)
        if part is None:
            if sku.resource_group in ACCELERATOR_GROUPS:
                is_known = _is_known(name, specs.names)
                yield LeftOut(reason="unknown machine" if is_known else "unknown accelerator", name=name)
        elif part not in used and part.endswith(f" {CORE}"):
            has_accelerator = ACCELERATOR_SERIES.match(part)
            yield LeftOut(reason="unknown machine" if has_accelerator else "no accelerator", name=name)
        elif part not in used and part.startswith(("gpu ", "slice ", "tpu ")):
            yield LeftOut(reason="unknown machine", name=name)


def _is_known(name: str, names: AcceleratorNames) -> bool:
    """Return whether the catalog knows an accelerator under Google's name."""
    try:
        return bool(names.resolve(name.removesuffix(" GPU")))
    except UsageError:
        return False


def _name_part(description: str) -> str:
    """Return Google's name of a part, without its region and purchase option.

    Example:
        >>> _name_part("Nvidia L40 GPU attached to Spot Preemptible VMs running in Iowa")
        'Nvidia L40 GPU'
        >>> _name_part("Spot Preemptible A9 Instance Core running in Iowa"), _name_part("TPU7x in Iowa")
        ('A9 Instance', 'TPU7x')
    """
    return re.sub(r"^(Spot )?(Preemptible )?|( Core)? (attached to|running in|in) .*", "", description)
