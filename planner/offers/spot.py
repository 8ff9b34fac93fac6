"""How spot machines are taken back: what was watched, what the provider says, what is assumed."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated, Literal

from ..frozen import Frozen
from .files import read_table, read_text_table, valid_rows, valid_table
from .kept import kept_rows
from .rows import Checked, Confidence, Offer, PartialDate, Row

__all__ = ["Hazard", "HazardBasis", "SpotFacts", "Trace", "hazard_of", "load_spot_facts"]

Positive = Annotated[float, Checked(gt=0)]
HazardBasis = Literal["watched", "provider's bucket", "assumed", "given"]
# The zone traces of 2022 probed every ten minutes for weeks; those of 2020 cover two days and saw almost nothing.
LEAST_PREEMPTIONS = 30


class SpotRule(Row):
    """What a provider promises about its spot machines."""

    provider: str
    notice_s: Positive | None = None
    life_hours_max: Positive | None = None
    source: str
    as_of: PartialDate
    confidence: Confidence
    note: str = ""


class BucketReading(Row):
    """How a bucket of monthly interruption is read."""

    bucket: Annotated[int, Checked(ge=0)]
    monthly_share: str
    up_hours: Positive
    down_hours: Positive


class Assumption(Row):
    """What is taken where nothing is known."""

    up_hours: Positive
    down_hours: Positive
    note: str


class CheckpointCost(Row):
    """What a checkpoint and a restart are taken to cost."""

    fixed_s: Positive
    write_gb_per_s: Positive
    restart_s: Positive


class Trace(Frozen):
    """Up and down times that were watched in one zone; None where a zone saw none."""

    provider: str
    zone: str
    accelerator: str
    devices: int
    days: float
    availability: float
    preemptions: int
    median_up_hours: float | None
    source: str


class Hazard(Frozen):
    """How long a spot machine lives, and how long the next one is waited for.

    Args:
        up_hours: Mean life [h].
        median_up_hours: Median life; None: lives have no memory (exponential) [h].
        down_hours: Mean time until the next machine can be had [h].
        life_hours_max: No life is longer; None: no such rule [h].
        notice_s: Warning before the end; None: unknown [s].
        basis: How it is known.
        source: Where it was read, in words.
    """

    up_hours: float
    median_up_hours: float | None = None
    down_hours: float
    life_hours_max: float | None = None
    notice_s: float | None = None
    basis: HazardBasis
    source: str


@dataclass(frozen=True)
class SpotFacts:
    """Everything that the catalog knows of interruptions."""

    rules: Mapping[str, SpotRule]
    buckets: Mapping[tuple[str, str, str], int]  # (provider, region, instance type)
    bucket_as_of: str
    readings: Mapping[int, BucketReading]
    traces: tuple[Trace, ...]
    assumed: Assumption
    checkpoint: CheckpointCost
    sources: Mapping[str, str]

    @cached_property
    def watched(self) -> dict[tuple[str, str], list[Trace]]:
        """Zones that saw enough, by provider and accelerator."""
        found: dict[tuple[str, str], list[Trace]] = {}
        for trace in self.traces:
            if trace.preemptions >= LEAST_PREEMPTIONS:
                found.setdefault((trace.provider, trace.accelerator), []).append(trace)
        return found


def load_spot_facts(folder: Traversable | None = None) -> SpotFacts:
    """Return what the catalog says of interruptions; a folder without `spot.toml` takes the packaged one."""
    packaged = files("gpuplan.catalog")
    if folder is None or folder == packaged or not (folder / "spot.toml").is_file():
        return _packaged()
    return _read(folder)


@cache
def _packaged() -> SpotFacts:
    return _read(files("gpuplan.catalog"))


def _read(home: Traversable) -> SpotFacts:
    table = read_table(home, "spot.toml")
    (assumed,) = valid_rows(table, "assumed", Assumption)
    (checkpoint,) = kept_rows(
        CheckpointCost, table.text, make=lambda: [CheckpointCost.read(table.data["checkpoint"])]
    )
    buckets = _lines(home / "spot_interruption.csv")
    return SpotFacts(
        rules={rule.provider: rule for rule in valid_rows(table, "rule", SpotRule)},
        buckets={(r["provider"], r["region"], r["instance_type"]): int(r["bucket"]) for r in buckets},
        bucket_as_of=max((row["as_of"] for row in buckets), default=""),
        readings={reading.bucket: reading for reading in valid_rows(table, "bucket", BucketReading)},
        traces=tuple(_trace(row) for row in _lines(home / "spot_traces.csv")),
        assumed=assumed,
        checkpoint=checkpoint,
        sources=valid_table(table, "sources", read_text_table),
    )


def _lines(file: Traversable) -> list[dict[str, str]]:
    header, *lines = csv.reader(io.StringIO(file.read_text(encoding="utf-8"), newline=""))
    return [dict(zip(header, cells, strict=True)) for cells in lines]


def _trace(row: Mapping[str, str]) -> Trace:
    return Trace(
        provider=row["provider"], zone=row["zone"], accelerator=row["accelerator"],
        devices=int(row["devices"]), days=float(row["days"]), availability=float(row["availability"]),
        preemptions=int(row["preemptions"]), source=row["source"],
        median_up_hours=float(row["median_up_hours"]) if row["median_up_hours"] else None,
    )  # fmt: skip


def hazard_of(offer: Offer, facts: SpotFacts) -> Hazard:
    """Return how long an offer's machine is expected to live.

    Args:
        offer: At spot prices.
        facts: What the catalog knows.
    """
    rule = facts.rules.get(offer.provider)
    promised = {
        "life_hours_max": rule.life_hours_max if rule else None,
        "notice_s": rule.notice_s if rule else None,
    }
    watched = _watched(offer, facts)
    if watched is not None:
        up, median, down, source = watched
        return Hazard(
            up_hours=up, median_up_hours=median, down_hours=down, basis="watched", source=source, **promised
        )
    bucket = facts.buckets.get((offer.provider, offer.region, offer.instance_type))
    if bucket is not None:
        read = facts.readings[bucket]
        source = f"Spot Advisor {facts.bucket_as_of}: {read.monthly_share} interrupted in a month"
        return Hazard(
            up_hours=read.up_hours, down_hours=read.down_hours, basis="provider's bucket", source=source,
            **promised,
        )  # fmt: skip
    assumed = facts.assumed
    return Hazard(
        up_hours=assumed.up_hours, down_hours=assumed.down_hours, basis="assumed", source=assumed.note,
        **promised,
    )  # fmt: skip


def _watched(offer: Offer, facts: SpotFacts) -> tuple[float, float, float, str] | None:
    """Return mean and median life, mean wait and their source, of the watched size nearest to an offer's.

    Zones are pooled: up hours over preemptions. The median is that of the zones' medians, each counted as often
    as it was preempted.
    """
    chip = offer.accelerator.split("-", maxsplit=1)[0]
    alike = facts.watched.get((offer.provider, chip))
    if alike is None:
        return None
    sizes = {trace.devices for trace in alike}
    size = min(sizes, key=lambda devices: (abs(math.log(devices / offer.devices)), -devices))
    zones = [trace for trace in alike if trace.devices == size]
    preemptions = sum(zone.preemptions for zone in zones)
    up = sum(24.0 * zone.days * zone.availability for zone in zones) / preemptions
    down = sum(24.0 * zone.days * (1.0 - zone.availability) for zone in zones) / preemptions
    read = facts.sources[zones[0].source]
    source = f"{len(zones)} zone traces of {size} x {chip} ({preemptions} preemptions), {read}"
    return up, _median_hours(zones), down, source


def _median_hours(zones: Iterable[Trace]) -> float:
    """Return the median of the zones' median lives, each counted as often as it was preempted [h]."""
    counted = sorted((zone.median_up_hours, zone.preemptions) for zone in zones if zone.median_up_hours)
    left = sum(count for _, count in counted) // 2
    for median, count in counted:
        if left < count:
            return median
        left -= count
    raise ValueError("no zone was watched")
