"""Result of the refresh of one provider."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .sanity_checks import Anomaly
from .source import LeftOut, LeftOutReason

_PLAIN = ("provider", "sources", "accepted", "refused", "new", "changed", "same", "gone")


@dataclass(kw_only=True)
class RefreshOutcome:
    """Result of the refresh of one provider.

    Args:
        provider: Refreshed provider.
        sources: Sources that were read.
        accepted, refused: Labels of accepted and rejected parts.
        new, changed, same: Numbers of accepted prices, compared with the previous ones.
        gone: Number of offers that an accepted part no longer lists.
        anomalies: Implausible prices and failures.
        left_out: Items that the sources list and the catalog lacks.
        needs: Requirements of further sources.
    """

    provider: str
    sources: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    new: int = 0
    changed: int = 0
    same: int = 0
    gone: int = 0
    anomalies: list[Anomaly] = field(default_factory=list)
    left_out: set[LeftOut] = field(default_factory=set)
    needs: list[str] = field(default_factory=list)

    @property
    def quarantined(self) -> int:
        """Number of quarantined prices."""
        return sum(1 for anomaly in self.anomalies if not anomaly.rejects_part and anomaly.code != "clock")

    @property
    def names_left_out(self) -> dict[LeftOutReason, list[str]]:
        """Sorted names of omitted items, by reason."""
        found: dict[LeftOutReason, list[str]] = {}
        for entry in sorted(self.left_out, key=lambda entry: (entry.reason, entry.name)):
            found.setdefault(entry.reason, []).append(entry.name)
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the outcome under the keys of the JSON contract."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "quarantined": self.quarantined,
            "findings": [
                {
                    "code": found.code,
                    "what": found.what,
                    "message": found.message,
                    "refuses": found.rejects_part,
                    "sku": found.sku or None,
                    "url": found.url or None,
                }
                for found in self.anomalies
            ],
            "left_out": [
                {"reason": reason, "count": len(names), "names": names}
                for reason, names in self.names_left_out.items()
            ],
            "needs": self.needs,
        }
