"""Typed rows of the catalog. Frozen, extra keys forbidden, money is Decimal, every number has source and date."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

__all__ = ["Accelerator", "Confidence", "Offer", "PartialDate", "Purchase", "Row", "Status"]

Purchase = Literal["on_demand", "spot"]
Status = Literal["active", "legacy", "retired", "historical"]
Confidence = Literal["high", "medium", "low"]
# A year, a month or a day: sources are dated as exactly as they were published, and no better.
PartialDate = Annotated[str, StringConstraints(pattern=r"^\d{4}(-\d{2}(-\d{2})?|-\d{4})?$")]
Positive = Annotated[float, Field(gt=0)]


class Row(BaseModel):
    """Base of all rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Accelerator(Row):
    """One GPU die, TPU chip or CPU host as a training device. Peaks are dense. None means unknown, never 0."""

    name: str
    vendor: str
    kind: Literal["gpu", "tpu", "npu", "cpu"]
    architecture: str
    year: int
    compute_capability: str | None = None
    sms_or_cores: int | None = None
    cuda_cores: int | None = None
    tensor_cores: int | None = None
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
    ``CPU`` and 1 device. ``usd_per_hour`` is None when no price is published. ``estimated`` marks a price that
    was derived (on demand times one minus the published savings), not read.
    """

    provider: str
    instance_type: str
    accelerator: str
    devices: Positive
    vcpus: Positive | None
    memory_gib: Positive | None
    region: str
    purchase: Purchase
    usd_per_hour: Annotated[Decimal, Field(ge=0)] | None
    price_as_of: PartialDate | None
    price_source: str | None
    estimated: bool = False
    complete: bool = True  # False: a part of a machine (a GPU add-on without its host)
    status: Status
    note: str = ""
