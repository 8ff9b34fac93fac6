"""A plan as text and data of a page: table cells, sentences, scripts and links, safe against markup in them."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from ...units import (
    MS_PER_S,
    format_count,
    format_device,
    format_duration,
    format_offer_name,
    format_range,
    format_short,
    format_usd,
)
from ..estimate_screen import format_phases
from ..output import UNKNOWN

Offer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """A column: header, unit, and whether it is sorted numerically."""

    title: str
    unit: str = ""
    numeric: bool = False


COLUMNS = (
    ReportColumn("accelerator"), ReportColumn("provider and machine"), ReportColumn("run", numeric=True),
    ReportColumn("run costs", "$", numeric=True), ReportColumn("region"), ReportColumn("purchase"),
    ReportColumn("price", "$/h", numeric=True), ReportColumn("step", "ms", numeric=True),
    ReportColumn("memory", "%", numeric=True), ReportColumn("limit"), ReportColumn("basis"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportCurrency:
    """Currency of the amounts shown.

    Args:
        code: ISO 4217 code.
        per_usd: Units of the currency per US dollar.
    """

    code: str = "USD"
    per_usd: float = 1.0

    @property
    def symbol(self) -> str:
        """Prefix of an amount: `$` or the currency code."""
        return "$" if self.code == "USD" else f"{self.code} "

    def text(self, usd: Any) -> str:
        """Format dollars in this currency."""
        return f"{self.symbol}{format_usd(float(usd) * self.per_usd)}"

    def estimate(self, cost: Mapping[str, Any]) -> str:
        """Format an amount in dollars with its range."""
        return f"{self.text(cost['mid'])} ({self.between(cost['low'], cost['high'])})"

    def between(self, low: Any, high: Any) -> str:
        """Format a range of dollars in this currency."""
        ends = sorted(float(end) * self.per_usd for end in (low, high))
        return f"{self.symbol}{format_range(*ends)}" if ends[1] > 0 else f"{self.symbol}0"


def select_shown_offers(plan: Mapping[str, Any]) -> list[int]:
    """Return the positions of the offers shown at first: the recommended ones, and the best per accelerator
    and number of devices, on demand, spot and free, in the plan's order.
    """
    seen: dict[tuple[Any, ...], int] = {}
    for index, one in enumerate(plan["offers"]):
        free = one["usd_per_hour"] is not None and float(one["usd_per_hour"]) == 0
        seen.setdefault((one["accelerator"], one["devices"], one["purchase"], free), index)
    chosen = plan["recommendation"]
    named = [one["offer"] for key, one in chosen.items() if key not in ("pareto", "sensitivity") and one]
    picks = [one["offer"] for key, one in plan["decision"].items() if key in _PICK_NAMES and one]
    return sorted({*seen.values(), *named, *picks, *(one["offer"] for one in chosen["pareto"])})


def build_offer_rows(offers: Iterable[tuple[int, Offer]], money: ReportCurrency) -> list[list[Any]]:
    """Build a row for each offer: its position, then text and sort value of every cell."""
    return [[index, *_build_cells(one, money)] for index, one in offers]


def _build_cells(one: Offer, money: ReportCurrency) -> list[list[Any]]:
    price, step, run, cost = one["usd_per_hour"], one["step_time_s"], one["run_time_s"], one["cost_usd"]
    purchase = "free" if price is not None and float(price) == 0 else one["purchase"].replace("_", " ")
    if (one.get("quota") or {}).get("state") == "too_small":
        purchase += ", no quota"
    return [
        [format_device(one["accelerator"], one["devices"])],
        [format_offer_name(one["provider"], one["instance_type"])],
        [_format_run(one), _find_mid(run)],
        [_format_cost(one, money), None if cost is None else float(cost["mid"])],
        [one["region"]],
        [purchase],
        [_format_price(one, money), None if price is None else float(price)],
        [_format_step(step), _find_mid(step)],
        [*_format_memory(one)],
        [one["limiter"] or UNKNOWN],
        [one["basis"] or UNKNOWN],
    ]


def _find_mid(interval: Mapping[str, float] | None) -> float | None:
    return None if interval is None else interval["mid"]


def _format_step(step: Mapping[str, float] | None) -> str:
    return UNKNOWN if step is None else format_range(step["low"] * MS_PER_S, step["high"] * MS_PER_S)


def _format_price(one: Offer, money: ReportCurrency) -> str:
    if one["usd_per_hour"] is None:
        return UNKNOWN
    return f"{'~' if one['estimated'] else ''}{money.text(one['usd_per_hour'])}"


def _format_run(one: Offer) -> str:
    run = one["run_time_s"]
    if one["memory_fits"] is False:
        return "does not fit"
    if run is None:
        return UNKNOWN
    low, mid, high = (format_duration(run[end]) for end in ("low", "mid", "high"))
    return f"{mid} ({low} – {high})"


def _format_cost(one: Offer, money: ReportCurrency) -> str:
    cost = one["cost_usd"]
    if one["memory_fits"] is False:
        largest = one["largest_batch_size"]
        return f"batch ≤ {largest}" if largest else "at no batch"
    if cost is None:
        return UNKNOWN
    return money.text(0) if float(cost["high"]) == 0 else money.estimate(cost)


def _format_memory(one: Offer) -> tuple[str, float | None]:
    needed, available = one["memory_bytes"], one["memory_available_bytes"]
    if needed is None or not available:
        return UNKNOWN, None
    share = 100 * needed / available
    return f"{format_short(share)} %", share


_PICK_NAMES = {"recommended": "Take", "free": "Free", "cheaper": "Cheaper", "faster": "Faster"}


def describe_workload(plan: Mapping[str, Any]) -> list[str]:
    """Describe the workload in short phrases."""
    work = plan["workload"]
    parts = [
        f"batch {work['batch_size']}",
        work["precision"],
        *([f"{work['quantization']} weights"] if work.get("quantization") else []),
        f"{format_count(work['parameters'])} parameters",
        f"{format_count(work['flops_per_step'], 'FLOP')} a step",
        "XLA" if work["compiled"] else "kernel by kernel",
    ]
    if phases := format_phases(plan.get("phases") or ()):
        return [*parts, phases]
    if work["samples"] is not None and work["epochs"] is not None:
        return [*parts, f"{work['samples']:,} samples × {work['epochs']:,} epochs"]
    return [*parts, "run length unknown" if work["steps"] is None else f"{work['steps']:,} steps"]


def build_recommendations(plan: Mapping[str, Any], money: ReportCurrency) -> list[dict[str, str]]:
    """Return all recommendations, merging those with the same offer."""
    titles: dict[int, list[str]] = {}
    for key, title in _PICK_NAMES.items():
        chosen = plan["decision"].get(key)
        if chosen is not None:
            titles.setdefault(chosen["offer"], []).append(title)
    return [_build_recommendation(plan["offers"][index], names, money) for index, names in titles.items()]


def _build_recommendation(one: Mapping[str, Any], titles: list[str], money: ReportCurrency) -> dict[str, str]:
    return {
        "title": ", ".join([titles[0], *(title.lower() for title in titles[1:])]),
        "device": format_device(one["accelerator"], one["devices"]),
        "offer": format_offer_name(one["provider"], one["instance_type"]),
        "where": f"{one['region']}, {one['purchase'].replace('_', ' ')}",
        "takes": _format_time_and_cost(one, money),
        "why": one.get("limiter_why") or "",
    }


def _format_time_and_cost(one: Mapping[str, Any], money: ReportCurrency) -> str:
    """Format time and cost with their ranges."""
    run, cost = one["run_time_s"], one["cost_usd"]
    if run is None:
        step = one["step_time_s"]
        return "" if step is None else f"A step takes {format_duration(step['mid'])}."
    time = f"{format_duration(run['mid'])} ({format_duration(run['low'])} to {format_duration(run['high'])})"
    if cost is None:
        return f"The run takes {time}; its price is unknown."
    if float(cost["high"]) == 0:
        return f"The run takes {time} and is free."
    return f"The run takes {time} and costs {money.estimate(cost)}."


_LAID_OUT = frozenset("\n\t")


@cache
def read_asset(name: str) -> str:
    """Read a file of the report package."""
    return (files("gpuplan.render.report") / "assets" / name).read_text(encoding="utf-8")


def compute_script_hash(text: str) -> str:
    """Return the content security policy hash of a script; only hashed scripts run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def pack_json(value: object) -> str:
    """Encode a value as compressed base64 JSON, deterministically."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=9, mtime=0)).decode()


def escape_invisible(value: Any) -> Any:
    r"""Make invisible and bidirectional control characters in a JSON value visible.

    Example:
        >>> escape_invisible({"name": "a\u202eb"}), escape_invisible(["x\x00"])
        ({'name': 'a⟨U+202E⟩b'}, ['x⟨U+0000⟩'])
    """
    if isinstance(value, str):
        return value if value.isascii() and value.isprintable() else "".join(map(_escape_character, value))
    if isinstance(value, dict):
        return {escape_invisible(key): escape_invisible(one) for key, one in value.items()}
    return [escape_invisible(one) for one in value] if isinstance(value, list) else value


def _escape_character(character: str) -> str:
    """Return a character, or its code point for control and formatting characters."""
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in _LAID_OUT
    return f"⟨U+{ord(character):04X}⟩" if hidden else character


_SITE = r"\b((?:[a-z0-9-]+\.)+(?:com|org|net|io|dev|ai|app|cloud|gov|eu|edu)(?:/[\w./~#?=&%+-]*\w)?)"


def _build_commit_url(found: re.Match[str]) -> str:
    repository, commit, path = found.groups()
    place = f"blob/{commit}/{path}" if path else f"tree/{commit}"
    return f"https://github.com/{repository}/{place}"


# Patterns of sources and their URLs, in order; matched text is removed before the next pattern.
_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"https?://[^\s<>\"'\[\]]+[^\s<>\"'\[\].,;:)]"), lambda found: found.group()),
    (re.compile(r"\b([\w.-]+/[\w.-]+)@([0-9a-f]{7,40})(?:\s+([\w./-]+\.\w+))?"), _build_commit_url),
    (
        re.compile(r"\b([\w.-]+/[\w.-]+) (?:pull request|issue) (\d+)"),
        lambda found: f"https://github.com/{found[1]}/issues/{found[2]}",  # redirects to a pull request
    ),
    (re.compile(r"\barXiv:(\d{4}\.\d{4,5})"), lambda found: f"https://arxiv.org/abs/{found[1]}"),
    (re.compile(_SITE, re.IGNORECASE), lambda found: f"https://{found[1]}"),
)


def find_links_in_source(source: str) -> list[tuple[str, str]]:
    """Return the distinct URLs in a source, each with its site's name.

    Example:
        >>> find_links_in_source("tsaol/aws-gpu@77fcd9fe data/gpu.js (x)")
        [('github.com', 'https://github.com/tsaol/aws-gpu/blob/77fcd9fe/data/gpu.js')]
        >>> find_links_in_source("EBS gp3 (cloudtoolstack.com 2026)"), find_links_in_source("assumed")
        ([('cloudtoolstack.com', 'https://cloudtoolstack.com')], [])
    """
    return [(urlsplit(address).netloc, address) for address in dict.fromkeys(_iter_urls(source))]


def _iter_urls(source: str) -> Iterator[str]:
    """Yield URLs; matched text is removed before the next pattern."""
    for pattern, address in _PATTERNS:
        for found in pattern.finditer(source):
            yield address(found)
        source = pattern.sub(" ", source)
