"""Errors of reading prices from a provider."""

from __future__ import annotations

from typing import Literal

from ...errors import GpuplanError

FetchErrorKind = Literal[
    "unreachable",
    "throttled",
    "server",
    "credentials",
    "not found",
    "malformed",
    "truncated",
    "disordered",
    "slow",
    "refused",
]
RETRYABLE_KINDS: frozenset[FetchErrorKind] = frozenset(
    {"unreachable", "throttled", "server", "truncated", "malformed", "slow"}
)


class FetchError(GpuplanError):
    """No complete, well-formed response from a provider.

    Args:
        message: One line naming thing and place.
        kind: Kind of failure; some kinds are retried.
        retry_after_s: Wait requested by the provider [s]; None if not given.
        host: Host that could not be reached; empty for other failures.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: FetchErrorKind,
        retry_after_s: float | None = None,
        hint: str | None = None,
        host: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.host = host
        self.kind: FetchErrorKind = kind
        self.retry_after_s = retry_after_s

    @property
    def is_worth_retrying(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in RETRYABLE_KINDS
