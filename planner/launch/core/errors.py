"""Errors of cloud APIs, classified alike for all providers. Adapters classify, the engine decides."""

from __future__ import annotations

from enum import StrEnum

from ...errors import CredentialsError, GpuplanError

__all__ = ["RETRIED", "CloudError", "ErrorKind"]


class ErrorKind(StrEnum):
    """Kind of a refusal, which decides the next action.

    CAPACITY: No capacity here at the moment; nothing was made. The next candidate is tried.
    QUOTA: The account's quota is exceeded; nothing was made. Candidates of the same scope are skipped.
    CREDENTIALS: Missing, expired, invalid or insufficient. The launch stops and names what exists.
    INVALID: The request is invalid everywhere and at any time. The launch stops.
    THROTTLED: Too many requests; this one was not processed. Retried after a wait.
    TRANSIENT: Certainly not done (a dependency is busy). Retried after a wait.
    UNKNOWN: Possibly done: no answer, a partial answer, an internal error. Retried with the same token, then the
        machine is looked up by its tags; nothing else is created before that is settled.
    SPENT_TOKEN: The token belongs to a machine that has ended. A new attempt uses a new one.
    EXISTS: The name is in use. The call's ``find`` reads what exists.
    ABSENT: The thing to read or remove does not exist (or is not visible yet).
    """

    CAPACITY = "capacity"
    QUOTA = "quota"
    CREDENTIALS = "credentials"
    INVALID = "invalid"
    THROTTLED = "throttled"
    TRANSIENT = "transient"
    UNKNOWN = "unknown outcome"
    SPENT_TOKEN = "spent token"
    EXISTS = "exists"
    ABSENT = "absent"


RETRIED = frozenset({ErrorKind.THROTTLED, ErrorKind.TRANSIENT, ErrorKind.UNKNOWN})


class CloudError(GpuplanError):
    """An API call failed.

    Args:
        kind: Kind of the error.
        code: The cloud's error code.
        message: The cloud's message, in one line.
        scope: Scope of a quota: `region` or `account`.
        way_out: Advice for the user (`Call.way_out`).
    """

    def __init__(
        self, kind: ErrorKind, code: str, message: str, *, scope: str = "region", way_out: str = ""
    ) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.kind = kind
        if kind is ErrorKind.CREDENTIALS:
            self.exit_code = CredentialsError.exit_code
        self.code = code
        self.scope = scope
        self.way_out = way_out
