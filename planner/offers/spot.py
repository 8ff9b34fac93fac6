"""Preemption statistics of spot machines: observed, published by the provider, or assumed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated, Any, Literal

from ..records import Frozen
from .aliases import get_chip_name
from .catalog_files import CsvForm, R, load_rows, read_csv, read_table, read_text, read_text_table, require_valid
from .rows import Constraint, DatedRow, Offer, Positive, Row

PreemptionBasis = Literal["watched", "provider's bucket", "assumed", "given"]
TRACE_COLUMNS = (
    "provider", "zone", "accelerator", "devices", "from", "to", "days", "availability", "preemptions",
    "mean_up_hours", "median_up_hours", "mean_down_hours", "source",
)  # fmt: skip
INTERRUPTION_COLUMNS = ("provider", "region", "instance_type", "bucket", "as_of", "source")
# Excludes the 2020 traces: two days, almost no preemption. Those of 2022 cover weeks at 10 min intervals.
MIN_PREEMPTIONS = 30


class SpotRule(DatedRow):
    """A provider's published terms for spot machines."""

    provider: str
    notice_s: Positive | None = None
    life_hours_max: Positive | None = None


class BucketReading(Row):
    """Interpretation of a bucket of monthly interruption frequency."""

    bucket: Annotated[int, Constraint(ge=0)]
    monthly_share: str
    up_hours: Positive
    down_hours: Positive


class LifetimeAssumption(Row):
    """Lifetimes assumed without data."""

    up_hours: Positive
    down_hours: Positive
    note: str


class CheckpointCost(Row):
    """Assumed time of a checkpoint and of a restart."""

    fixed_s: Positive
    write_gb_per_s: Positive
    restart_s: Positive


class ZoneTrace(Row):
    """Up and down times observed in one zone; None if no preemption was observed."""

    provider: str
    zone: str
    accelerator: str
    devices: int
    days: float
    availability: float
    preemptions: int
    median_up_hours: float | None
    source: str


class Interruption(Row):
    """The provider's bucket of monthly interruption frequency of an instance type in a region."""

    provider: str
    region: str
    instance_type: str
    bucket: int
    as_of: str


class PreemptionStatistics(Frozen):
    """Lifetime of a spot machine and waiting time for the next one."""

    up_hours: float  # mean lifetime [h]
    median_up_hours: float | None = None  # median lifetime; None for exponentially distributed lifetimes [h]
    down_hours: float  # mean wait until the next machine is available [h]
    life_hours_max: float | None = None  # maximum lifetime; None if there is no limit [h]
    notice_s: float | None = None  # time between notice and termination; None if unknown [s]
    basis: PreemptionBasis  # kind of evidence
    source: str  # source of the figures, as text


@dataclass(frozen=True)
class PreemptionData:
    """All preemption data of the catalog."""

    rules: Mapping[str, SpotRule]
    buckets: Mapping[tuple[str, str, str], int]  # (provider, region, instance type)
    bucket_as_of: str
    readings: Mapping[int, BucketReading]
    traces: tuple[ZoneTrace, ...]
    assumed: LifetimeAssumption
    checkpoint: CheckpointCost
    sources: Mapping[str, str]

    @cached_property
    def watched(self) -> dict[tuple[str, str], list[ZoneTrace]]:
        """Zones with enough preemptions, by provider and accelerator."""
        found: dict[tuple[str, str], list[ZoneTrace]] = {}
        for trace in self.traces:
            if trace.preemptions >= MIN_PREEMPTIONS:
                found.setdefault((trace.provider, get_chip_name(trace.accelerator)), []).append(trace)
        return found


def load_preemption_data(folder: Traversable | None = None) -> PreemptionData:
    """Load the preemption data of a catalog folder, or the packaged data if it has no `spot.toml`."""
    packaged = files("gpuplan.catalog")
    if folder is None or folder == packaged or not (folder / "spot.toml").is_file():
        return _load_packaged()
    return _read(folder)


_load_packaged = cache(lambda: _read(files("gpuplan.catalog")))


def _read(home: Traversable) -> PreemptionData:
    table = read_table(home, "spot.toml")
    (assumed,) = load_rows(table, "assumed", LifetimeAssumption)
    buckets = _read_csv(Interruption, home / "spot_interruption.csv", INTERRUPTION_COLUMNS)
    return PreemptionData(
        rules={rule.provider: rule for rule in load_rows(table, "rule", SpotRule)},
        buckets={(row.provider, row.region, row.instance_type): row.bucket for row in buckets},
        bucket_as_of=max((row.as_of for row in buckets), default=""),
        readings={reading.bucket: reading for reading in load_rows(table, "bucket", BucketReading)},
        traces=_read_csv(ZoneTrace, home / "spot_traces.csv", TRACE_COLUMNS),
        assumed=assumed,
        checkpoint=CheckpointCost.read(table.data["checkpoint"]),
        sources=read_text_table(table, "sources"),
    )


def _read_csv(model: type[R], file: Traversable, columns: Sequence[str]) -> tuple[R, ...]:
    return require_valid(*read_csv(model, read_text(file, file.name), CsvForm(file.name, columns)))


def find_preemption_statistics(offer: Offer, facts: PreemptionData) -> PreemptionStatistics:
    """Return the preemption statistics of a spot offer's machine."""
    rule = facts.rules.get(offer.provider)
    terms: dict[str, Any] = {name: getattr(rule, name, None) for name in ("life_hours_max", "notice_s")}
    watched, given = _find_observed(offer, facts), facts.assumed
    if watched is not None:
        return replace(watched, **terms)
    bucket = facts.buckets.get((offer.provider, offer.region, offer.instance_type))
    if bucket is None:
        terms |= {"basis": "assumed", "source": given.note}
        return PreemptionStatistics(up_hours=given.up_hours, down_hours=given.down_hours, **terms)
    read = facts.readings[bucket]
    source = f"Spot Advisor {facts.bucket_as_of}: {read.monthly_share} interrupted per month"
    terms |= {"basis": "provider's bucket", "source": source}
    return PreemptionStatistics(up_hours=read.up_hours, down_hours=read.down_hours, **terms)


def _find_observed(offer: Offer, facts: PreemptionData) -> PreemptionStatistics | None:
    """Return the statistics of the observed size nearest to an offer's; None without any.

    Zones are pooled: mean lifetime = Σ up hours / Σ preemptions. The median is the median of zone medians
    weighted by preemptions.
    """
    chip = get_chip_name(offer.accelerator)
    traces = facts.watched.get((offer.provider, chip))
    if traces is None:
        return None
    sizes = {trace.devices for trace in traces}
    size = min(sizes, key=lambda devices: (abs(math.log(devices / offer.devices)), -devices))
    zones = [trace for trace in traces if trace.devices == size]
    preemptions = sum(zone.preemptions for zone in zones)
    up = sum(24.0 * zone.days * zone.availability for zone in zones) / preemptions
    down = sum(24.0 * zone.days * (1.0 - zone.availability) for zone in zones) / preemptions
    read = facts.sources[zones[0].source]
    source = f"{len(zones)} zone traces of {size} x {chip} ({preemptions} preemptions), {read}"
    median = _compute_median_hours(zones)
    return PreemptionStatistics(
        up_hours=up, median_up_hours=median, down_hours=down, basis="watched", source=source
    )


def _compute_median_hours(zones: Iterable[ZoneTrace]) -> float:
    """Return the median of the zones' median lifetimes, weighted by preemptions [h]."""
    counted = sorted((zone.median_up_hours, zone.preemptions) for zone in zones if zone.median_up_hours)
    left = sum(count for _, count in counted) // 2
    for median, count in counted:
        if left < count:
            return median
        left -= count
    raise ValueError("no zone was observed")
