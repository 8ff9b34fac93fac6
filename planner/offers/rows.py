"""Typed rows of the catalog: frozen, no extra keys, money is Decimal, each number has a source and a date.

Rows are plain dataclasses, so that those that were read and checked before (see ``kept``) need no pydantic, whose
import takes longer than ranking all offers; what is read from a file is checked by it (``Row.read``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from ..frozen import Frozen

__all__ = [
    "CPU", "Accelerator", "Checked", "Confidence", "Host", "HostSeries", "MachineLinks", "NotebookPlan",
    "NotebookRuntime", "Offer", "PartialDate", "Provider", "Purchase", "Row", "Status", "Topology", "UnitPrice",
    "UnitRate", "VcpuIs",
]  # fmt: skip

CPU = "CPU"  # the accelerator of a machine that has none; which CPU it is follows from the instance type

Purchase = Literal["on_demand", "spot"]
Status = Literal["active", "legacy", "retired", "historical"]
Confidence = Literal["high", "medium", "low"]
VcpuIs = Literal["hyperthread", "core"]
Topology = Literal["cube mesh", "switch", "pcie", "ici"]


class Checked:
    """What is checked of a value when its row is read, in the words of pydantic's core schemas."""

    def __init__(self, **constraints: float | str) -> None:
        self.constraints = constraints

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        return {**handler(source), **self.constraints}


class RegularExpression:
    """A text that is one."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(_regular_expression, handler(source))


def _regular_expression(text: str) -> str:
    """Return the text when it is a regular expression; ValueError otherwise."""
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return text


# A year, a month or a day: sources are dated as exactly as they were published, and no better.
PartialDate = Annotated[str, Checked(pattern=r"^\d{4}(-\d{2}(-\d{2})?|-\d{4})?$")]
Positive = Annotated[float, Checked(gt=0)]
Pattern = Annotated[str, RegularExpression()]


class Row(Frozen):
    """Base of all rows: what is read from a file is checked by pydantic."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid"}

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """Return the row of what was read, each value as its field's type; pydantic's ValidationError else."""
        checked: Self = _reader_of(cast("Any", cls)).validate_python(values)
        return checked

    @classmethod
    def trusted(cls, names: tuple[str, ...], values: tuple[Any, ...]) -> Self:
        """Return the row of values that are known to be right: nothing is checked, nothing converted.

        Args:
            names: All fields.
            values: In the same order.
        """
        made = object.__new__(cls)
        vars(made).update(zip(names, values, strict=True))
        return made


@cache
def _reader_of(model: Any) -> Any:
    """Return what checks the rows of a type; made once, when the first one is read."""
    from pydantic import TypeAdapter

    return TypeAdapter(model)


class Accelerator(Row):
    """One GPU die, TPU chip or CPU host to train on. Peaks are dense. None means unknown, never 0."""

    name: str
    vendor: str
    kind: Literal["gpu", "tpu", "npu", "cpu"]
    architecture: str
    year: int | None = None
    compute_capability: str | None = None
    sms_or_cores: int | None = None
    cuda_cores: int | None = None
    tensor_cores: int | None = None
    base_mhz: Positive | None = None  # what the vendor promises at full load, within the power limit
    boost_mhz: Positive | None = None
    memory_gib: Positive | None = None
    usable_gib: Positive | None = None
    memory_type: str | None = None
    memory_gb_per_s: Positive | None = None
    l2_mib: Positive | None = None
    fp64_tflop_per_s: Positive | None = None
    fp64_tensor_tflop_per_s: Positive | None = None
    fp32_tflop_per_s: Positive | None = None
    tf32_tensor_tflop_per_s: Positive | None = None
    fp16_tflop_per_s: Positive | None = None
    fp16_tensor_tflop_per_s: Positive | None = None
    bf16_tensor_tflop_per_s: Positive | None = None
    fp8_tensor_tflop_per_s: Positive | None = None
    int8_tensor_top_per_s: Positive | None = None
    pcie_generation: str | None = None
    pcie_gb_per_s_per_direction: Positive | None = None
    link_gb_per_s_total: Positive | None = None  # NVLink or equal, both directions, all links of a device
    ici_gbit_per_s_per_direction: Positive | None = None  # TPU interconnect
    tdp_w: Positive | None = None
    aliases: tuple[str, ...] = ()
    source: str
    read_on: date
    confidence: Confidence
    note: str = ""


class Offer(Row):
    """One instance type in one region at one purchase option, with its dated price.

    ``devices`` counts GPUs or TPU chips and may be a fraction (a tenth of an A10); a CPU host has accelerator
    ``CPU`` and 1 device. ``usd_per_hour`` is None when no price is published. ``estimated`` marks a price
    that was derived (on demand times one minus the published savings), not read.
    """

    provider: str
    instance_type: str
    accelerator: str
    devices: Positive
    vcpus: Positive | None
    memory_gib: Positive | None
    region: str
    purchase: Purchase
    usd_per_hour: Annotated[Decimal, Checked(ge=0)] | None
    price_as_of: PartialDate | None
    price_source: str | None
    estimated: bool = False
    complete: bool = True  # False: a part of a machine (a GPU add-on without its host)
    status: Status
    note: str = ""
    hosts: Annotated[int, Checked(ge=1)] = 1  # such machines, rented together: all numbers are of them all

    @property
    def identity(self) -> dict[str, str | float]:
        """What tells an offer from others, in the order of every listing."""
        return {
            "provider": self.provider, "instance_type": self.instance_type, "accelerator": self.accelerator,
            "devices": self.devices, "region": self.region, "purchase": self.purchase,
        }  # fmt: skip


class Provider(Row):
    """Who sells or gives machines. ``region`` is a regular expression over the whole name of a region."""

    name: str
    title: str
    region: Pattern


class Host(Row):
    """One CPU family, per socket. None means unknown."""

    family: str
    vendor: str
    year: int | None = None
    isa: str
    physical_cores_per_socket: Annotated[int, Checked(gt=0)]
    all_core_turbo_ghz: Positive
    fp32_flop_per_cycle_per_core: Positive
    bf16_flop_per_cycle_per_core: Positive | None = None
    matrix_extension: str | None = None
    memory_channels: Annotated[int, Checked(gt=0)] | None = None
    memory_gb_per_s_per_socket: Positive
    clouds: str
    vcpu_is: VcpuIs
    cpu_ids: tuple[Pattern, ...] = ()  # regular expressions over vendor-family-model-stepping
    source: str
    read_on: date
    confidence: Confidence
    note: str = ""


class HostSeries(Row):
    """Which CPU family the instance types of a provider run on; ``vcpu_is`` overrides the family's own."""

    provider: str
    pattern: Pattern  # a regular expression over the whole instance type
    host: str
    vcpu_is: VcpuIs | None = None
    confidence: Confidence
    note: str = ""


class MachineLinks(Row):
    """How the accelerators of some instance types are joined, and how fast such a machine talks to its like."""

    provider: str
    pattern: Pattern  # a regular expression over the whole instance type
    topology: Topology | None = None
    network_gbit_per_s: Positive | None = None  # all ports together, one direction
    source: str
    read_on: date
    confidence: Confidence
    note: str = ""


class NotebookPlan(Row):
    """What one subscribes to at a hosted notebook, and its limits. None means unknown."""

    provider: str
    plan: str
    free: bool
    session_hours_max: Positive | None = None
    idle_minutes_max: Positive | None = None
    background: bool | None = None  # does it run on with the tab closed?
    guaranteed: bool
    usd_per_month: Annotated[Decimal, Checked(gt=0)] | None = None
    units_per_month: Positive | None = None
    source: str
    as_of: PartialDate
    confidence: Confidence
    note: str = ""


class NotebookRuntime(Row):
    """One machine of a hosted notebook, and the plans that may ask for it; limits override the plan's."""

    provider: str
    runtime: str
    plans: tuple[str, ...]
    accelerator: str
    devices: Positive
    vcpus: Positive | None = None
    memory_gib: Positive | None = None
    session_hours_max: Positive | None = None
    weekly_quota_hours: Positive | None = None
    status: Status
    source: str
    as_of: PartialDate
    confidence: Confidence
    note: str = ""


class UnitPrice(Row):
    """What a bundle of compute units costs on a plan."""

    provider: str
    plan: str
    usd: Annotated[Decimal, Checked(gt=0)]
    units: Annotated[Decimal, Checked(gt=0)]
    source: str
    as_of: PartialDate
    confidence: Confidence
    note: str = ""


class UnitRate(Row):
    """How many compute units a runtime burns in an hour, as seen on a date."""

    provider: str
    runtime: str
    units_per_hour: Annotated[Decimal, Checked(gt=0)]
    source: str
    as_of: PartialDate
    confidence: Confidence
    note: str = ""
