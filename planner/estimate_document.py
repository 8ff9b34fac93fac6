"""Document of an estimate (`gpuplan.estimate/1`), in which what offers share stands once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from typing import Any

from .records import round_floats
from .units import Interval

# Members that an offer has itself, although all offers of the same devices share them.
OWN_KEYS = (
    "step_time_s", "train_time_s", "memory_bytes", "memory_fits", "largest_batch_size", "basis", "limiter",
)  # fmt: skip
# Members that are left out of an offer where they say no more than this.
UNSAID: Mapping[str, Any] = {
    "hosts": 1,
    "estimated": False,
    "complete": True,
    "quota": None,
    "unbilled": [],
    "usd_per_million_tokens": None,
    "serving": None,
    "energy_kwh": None,
    "co2_kg": None,
    "sessions": 1,
    "notes": [],
}


class SharedFacts:
    """Facts that stand once in a document."""

    def __init__(self) -> None:
        self.devices: list[dict[str, Any]] = []  # entries of `devices[]`
        self.price_sources: dict[str, str] = {}  # sources of prices by a short key
        self._places: dict[int, tuple[int, object]] = {}  # by id, with the object, so that the id stays its own
        self._by_text: dict[str, int] = {}
        self._keys: dict[str, str] = {}
        self._rounded: dict[int, tuple[Interval, dict[str, float]]] = {}

    def round(self, interval: Interval) -> dict[str, float]:
        """Return an interval as JSON, rounded; once for the many offers that share it."""
        if id(interval) not in self._rounded:
            self._rounded[id(interval)] = interval, round_floats(interval.to_json())
        return self._rounded[id(interval)][1]

    def place_devices(self, shared: dict[str, Any], *, accelerator: str, devices: float) -> int:
        """Return the position in `devices[]` of what offers of the same devices share."""
        if id(shared) not in self._places:
            entry = {"accelerator": accelerator, "devices": devices, **shared}
            place = self._by_text.setdefault(json.dumps(entry), len(self.devices))
            if place == len(self.devices):
                self.devices.append(entry)
            self._places[id(shared)] = place, shared
        return self._places[id(shared)][0]

    def name_source(self, source: str | None, *, provider: str) -> str | None:
        """Return the key of a source: the provider whose price is the first from it, numbered if it has several.

        Example:
            >>> facts = SharedFacts()
            >>> [facts.name_source(source, provider="aws") for source in ("a list", "another", "a list", None)]
            ['aws', 'aws-2', 'aws', None]
        """
        if source is not None and source not in self._keys:
            names = (provider if number == 1 else f"{provider}-{number}" for number in count(1))
            key = self._keys[source] = next(name for name in names if name not in self.price_sources)
            self.price_sources[key] = source
        return source and self._keys[source]


def leave_out_unsaid(offer: dict[str, Any]) -> dict[str, Any]:
    """Take the members that say nothing out of an entry of `offers[]`."""
    for key, unsaid in UNSAID.items():
        if key in offer and offer[key] == unsaid:
            del offer[key]
    return offer


def merge_device(document: Mapping[str, Any], offer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an entry of `offers[]` with what stands once in the document.

    Entries of documents that earlier versions wrote are whole already.

    Example:
        >>> document = {"devices": [{"steps": 9, "notes": ["a"]}], "price_sources": {"aws": "its list"}}
        >>> whole = merge_device(document, {"device": 0, "price_source": "aws", "notes": ["b"]})
        >>> whole["steps"], whole["notes"], whole["price_source"], whole["hosts"]
        (9, ['a', 'b'], 'its list', 1)
    """
    if "device" not in offer:
        return offer
    shared, source = document["devices"][offer["device"]], offer["price_source"]
    merged = {**UNSAID, **shared, **offer}
    del merged["device"]
    merged["price_source"] = source and document["price_sources"][source]
    merged["notes"] = [*shared["notes"], *offer.get("notes", ())]
    return merged


def read_offers(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return all offers of a document, each with what stands once in it."""
    return [merge_device(document, offer) for offer in document["offers"]]
