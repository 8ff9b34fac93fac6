"""Typed catalog rows: frozen, no extra keys, prices as Decimal, every number with source and date.

Values read from a file are converted by the types of the fields. What these conversions do not take, pydantic
validates, and words the error: importing it takes longer than reading the whole catalog.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from itertools import repeat
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, Union, cast, get_args, get_origin, get_type_hints

from ..records import Frozen

CPU = "CPU"  # accelerator name of a machine without one; the instance type determines the CPU

OfferKey = tuple[str, str, str]  # instance type, region and purchase option
Purchase = Literal["on_demand", "spot"]
Status = Literal["active", "legacy", "retired", "historical"]
Availability = Literal["now", "account", "quota", "scarce", "spot", "reserved", "unlisted", "retired"]
CpuArchitecture = Literal["x86_64", "arm64"]
Confidence = Literal["high", "medium", "low"]
VcpuIs = Literal["hyperthread", "core"]
Topology = Literal["cube mesh", "switch", "pcie", "ici"]


class Constraint:
    """Constraints on a field, in the vocabulary of pydantic's core schemas."""

    def __init__(self, **constraints: float | str) -> None:
        self.constraints = constraints

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        return {**handler(source), **self.constraints}

    def check(self, value: Any) -> Any:
        """Return a value that meets the constraints; ValueError otherwise."""
        for name, bound in self.constraints.items():
            if not _MEETS[name](value, bound):
                raise ValueError(f"{value} does not meet {self.constraints}")
        return value


_MEETS: Mapping[str, Callable[[Any, Any], object]] = {
    "gt": operator.gt,
    "ge": operator.ge,
    "le": operator.le,
    "pattern": lambda text, pattern: re.search(pattern, text),
}


class RegularExpression:
    """A string that must be a valid regular expression."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def check(self, text: str) -> str:
        """Return the text if it is a valid regular expression; ValueError otherwise."""
        try:
            re.compile(text)
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from error
        return text


# A year, month or day: dates are as precise as the source publishes them.
PartialDate = Annotated[str, Constraint(pattern=r"^\d{4}(-\d{2}(-\d{2})?|-\d{4})?$")]
Positive = Annotated[float, Constraint(gt=0)]
Pattern = Annotated[str, RegularExpression()]


# What a conversion does not take: pydantic may take it, and says why not otherwise.
UNREAD = (LookupError, TypeError, ValueError, ArithmeticError)


class Row(Frozen):
    """Base class of all rows, with values read from files."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid"}

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """Convert values read from a file and build the row; ValidationError if they do not fit."""
        readers = _build_readers(cast("Any", cls))
        try:
            return cls(**{name: readers[name](value) for name, value in values.items()})
        except UNREAD:
            return cast("Self", _build_validator(cast("Any", cls)).validate_python(values))

    @classmethod
    def read_columns(cls, columns: Mapping[str, Sequence[Any]], rows: int) -> Iterable[Self]:
        """Convert columns of cells, each distinct cell once; an error of `UNREAD` if one does not fit.

        Args:
            columns: Cells by field.
            rows: Cells of a column.
        """
        readers = _build_readers(cast("Any", cls))
        made: dict[str, Iterable[Any]] = {name: repeat(value, rows) for name, value in cls._blank.items()}
        for name, cells in columns.items():
            values = {cell: readers[name](cell) for cell in set(cells)}
            made[name] = map(values.__getitem__, cells)
        return map(cls._trust, zip(*made.values(), strict=True))

    @classmethod
    def _trust(cls, values: tuple[Any, ...]) -> Self:
        made = object.__new__(cls)
        made.__dict__.update(zip(cls._blank, values))  # noqa: B905 - as `read_columns` calls it
        return made


@cache
def _build_validator(model: Any) -> Any:
    """Build the validator of a row type, on first use."""
    from pydantic import TypeAdapter

    return TypeAdapter(model)


@cache
def _build_readers(model: Any) -> Mapping[str, Callable[[Any], Any]]:
    """Build the conversion of every field of a row type."""
    hints = get_type_hints(model, include_extras=True)
    return {one.name: _build_reader(hints[one.name]) for one in fields(model)}


@cache
def find_optional_fields(model: Any) -> frozenset[str]:
    """Return the fields that may be None: an empty cell of a CSV file stands for it."""
    hints = get_type_hints(model)
    return frozenset(one.name for one in fields(model) if NoneType in get_args(hints[one.name]))


def _build_reader(hint: Any) -> Callable[[Any], Any]:
    """Build the conversion to a type: of the values that pydantic takes, at most, and to the same ones."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {choice: choice for choice in parts}.__getitem__
    if origin is None:
        return _READERS[hint]
    read = _build_reader(parts[0])
    if origin is Annotated:
        check = parts[1].check
        return lambda value: check(read(value))
    if origin is tuple:
        return lambda value: tuple(map(read, _require(value, list, tuple)))
    if origin not in (Union, UnionType) or parts[1:] != (NoneType,):
        raise NotImplementedError(f"no conversion to {hint}")
    return lambda value: None if value is None else read(value)


def _require(value: Any, *types: type) -> Any:
    """Return a value of exactly one of the types (a bool is no int); TypeError otherwise."""
    if type(value) not in types:
        raise TypeError(f"{value!r} is none of {types}")
    return value


def _read_number(convert: Callable[[Any], Any], *types: type) -> Callable[[Any], Any]:
    """Build the conversion of numbers of some types and of plain digits to a number."""

    def read(value: Any) -> Any:
        if type(value) is str:
            if _DIGITS.fullmatch(value) is None:
                raise ValueError(f"{value!r} is not written in plain digits")
        elif type(value) not in types:
            raise TypeError(f"{value!r} is none of {types}")
        elif type(value) is Decimal and not value.is_finite():
            raise ValueError(f"{value!r} is not a finite number")
        return convert(value)

    return read


_DIGITS = re.compile(r"\d+(\.\d+)?", re.ASCII)
_READERS: Mapping[type, Callable[[Any], Any]] = {
    str: lambda value: _require(value, str),
    bool: lambda value: {"true": True, "false": False, True: True, False: False}[_require(value, bool, str)],
    int: _read_number(int, int),
    float: _read_number(float, int, float, Decimal),
    Decimal: _read_number(Decimal, int, Decimal),
    date: lambda value: _require(value, date),
    datetime: lambda value: value if type(value) is datetime else datetime.fromisoformat(value),
}


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
    base_mhz: Positive | None = None  # guaranteed by the vendor at full load within the power limit
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
    # Best measured product over the dense peak, in bfloat16 and in float8: of GPUs "maximum achievable matmul" of
    # stas00/ml-engineering@744d01e, compute/accelerator/README.md; of TPUs in training steps.
    matmul_share: Positive | None = None
    fp8_matmul_share: Positive | None = None
    pcie_generation: str | None = None
    pcie_gb_per_s_per_direction: Positive | None = None
    link_gb_per_s_total: Positive | None = None  # NVLink or equivalent, both directions, all links of a device
    bridged: bool = False  # these links join pairs of cards by a bridge, not all of a machine
    dies_per_slot: int = 1  # that share one PCIe slot [-]
    ici_gbit_per_s_per_direction: Positive | None = None  # TPU interconnect
    array_lanes: int | None = None  # side of a TPU's arrays of multiply-adds, if it is not 128 [-]
    # Cores of a chip that are devices of their own, each with a share of the batch and all of the weights; the two
    # cores of a v4 or v5p chip work as one ("megacore": docs.cloud.google.com/tpu/docs/v4) [-].
    cores_per_chip: int = 1
    chips_per_host: int | None = None  # most chips of a host that the Cloud TPU API starts [-]
    slice_cores: int | None = None  # cores that a chip counts in the name of a TPU slice (v3-8) [-]
    smallest_slice: str | None = None  # TPU slice that libtpu compiles for
    google_type: str | None = None  # `acceleratorType` that attaches it to an N1 machine
    google_quota: str | None = None  # metric of its regional quota
    google_runtime: str | None = None  # of TPUs for JAX and PyTorch, if it is not the usual one
    tdp_w: Positive | None = None
    aliases: tuple[str, ...] = ()
    source: str
    read_on: date
    confidence: Confidence
    note: str = ""


class Offer(Row):
    """One instance type in one region at one purchase option, with its dated price.

    ``devices`` counts GPUs or TPU chips and may be a fraction (a tenth of an A10); a CPU host has accelerator
    ``CPU`` and 1 device. ``usd_per_hour`` is None if no price is published. ``estimated`` marks a price
    derived from the on-demand price and the published spot discount.
    """

    provider: str
    instance_type: str
    accelerator: str
    devices: Positive
    vcpus: Positive | None
    memory_gib: Positive | None
    region: str
    purchase: Purchase
    usd_per_hour: Annotated[Decimal, Constraint(ge=0)] | None
    price_as_of: PartialDate | None
    price_source: str | None
    estimated: bool = False
    complete: bool = True  # False: part of a machine (a GPU without its host)
    status: Status
    note: str = ""
    hosts: Annotated[int, Constraint(ge=1)] = 1  # machines rented together; all numbers are totals

    @property
    def key(self) -> OfferKey:
        """Instance type, region and purchase option: unique within a provider."""
        return (self.instance_type, self.region, self.purchase)

    @property
    def identity(self) -> dict[str, str | float]:
        """The fields that identify an offer, in the order of every listing."""
        return {
            "provider": self.provider,
            "instance_type": self.instance_type,
            "accelerator": self.accelerator,
            "devices": self.devices,
            "region": self.region,
            "purchase": self.purchase,
        }


class Provider(Row):
    """A provider of machines. ``region`` and ``instance_type`` are regular expressions for whole names."""

    name: str
    title: str
    region: Pattern
    instance_type: Pattern | None = None


class CpuFamily(Row):
    """A CPU family, per socket. None means unknown."""

    family: str
    vendor: str
    year: int | None = None
    isa: str
    physical_cores_per_socket: Annotated[int, Constraint(gt=0)]
    all_core_turbo_ghz: Positive
    fp32_flop_per_cycle_per_core: Positive
    bf16_flop_per_cycle_per_core: Positive | None = None
    matrix_extension: str | None = None
    memory_channels: Annotated[int, Constraint(gt=0)] | None = None
    memory_gb_per_s_per_socket: Positive
    clouds: str
    vcpu_is: VcpuIs
    cpu_ids: tuple[Pattern, ...] = ()  # regular expressions over vendor-family-model-stepping
    source: str
    read_on: date
    confidence: Confidence
    note: str = ""


class CpuSeries(Row):
    """CPU family of a provider's instance types; ``vcpu_is`` overrides that of the family."""

    provider: str
    pattern: Pattern  # a regular expression over the whole instance type
    host: str
    vcpu_is: VcpuIs | None = None
    confidence: Confidence
    note: str = ""


class MachineLinks(Row):
    """Interconnect of the accelerators in an instance type, and its network bandwidth."""

    provider: str
    pattern: Pattern  # a regular expression over the whole instance type
    topology: Topology | None = None
    network_gbit_per_s: Positive | None = None  # all ports together, one direction
    source: str
    read_on: date
    confidence: Confidence
    note: str = ""


class Image(Row):
    """An image that machines are launched with."""

    provider: str
    name: str
    os: str
    python: Annotated[str, Constraint(pattern=r"^3\.\d+$")]
    driver: Literal["open", "proprietary", "GRID", "ROCm"]
    branch: Annotated[int, Constraint(gt=0)]  # oldest branch of the driver
    cpu: CpuArchitecture
    serves: tuple[str, ...]  # architectures of accelerators
    min_disk_gb: Annotated[int, Constraint(gt=0)] | None = None
    source: str
    read_on: date
    note: str = ""


class MachineNeed(Row):
    """What instance types need of an image besides their accelerator's architecture."""

    provider: str
    pattern: Pattern  # a regular expression over the whole instance type
    cpu: CpuArchitecture = "x86_64"
    driver: Literal["GRID", "ROCm"] | None = None
    source: str
    read_on: date


class Wheel(Row):
    """What a package with GPU libraries needs of an image."""

    name: str
    branch: Annotated[int, Constraint(gt=0)]  # oldest branch of the driver
    serves: tuple[str, ...]
    source: str
    read_on: date


class DatedRow(Row):
    """Base class of rows with the source of their figures and its date."""

    source: str
    as_of: PartialDate
    confidence: Confidence
    note: str = ""


class AvailabilityRule(DatedRow):
    """Whether some offers can be had; names are regular expressions for whole names."""

    provider: Pattern = ".*"
    instance_type: Pattern = ".*"
    accelerator: Pattern = ".*"
    purchase: Purchase | None = None
    regions: tuple[str, ...] = ()  # empty: all
    state: Availability
    needs: str = ""

    def matches(self, offer: Offer) -> bool:
        """Return whether the rule is about an offer, in some region."""
        return self.purchase in (None, offer.purchase) and all(
            re.fullmatch(getattr(self, name), getattr(offer, name))
            for name in ("provider", "instance_type", "accelerator")
        )


class NotebookPlan(DatedRow):
    """A subscription plan of a hosted notebook and its limits. None means unknown."""

    provider: str
    plan: str
    free: bool
    session_hours_max: Positive | None = None
    idle_minutes_max: Positive | None = None
    background: bool | None = None  # continues with the browser tab closed
    guaranteed: bool
    usd_per_month: Annotated[Decimal, Constraint(gt=0)] | None = None
    units_per_month: Positive | None = None


class NotebookRuntime(DatedRow):
    """A machine type of a hosted notebook and the plans that may use it; its limits override the plan's."""

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


class UnitPrice(DatedRow):
    """Price of a bundle of compute units on a plan."""

    provider: str
    plan: str
    usd: Annotated[Decimal, Constraint(gt=0)]
    units: Annotated[Decimal, Constraint(gt=0)]


class UnitRate(DatedRow):
    """Compute units used per hour by a runtime, as observed on a date."""

    provider: str
    runtime: str
    units_per_hour: Annotated[Decimal, Constraint(gt=0)]
