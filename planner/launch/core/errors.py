"""What can go wrong at a cloud, in the words that all of them share. An adapter sorts; the engine decides."""

from __future__ import annotations

from enum import StrEnum

from ...errors import CredentialsError, GpuplanError

__all__ = ["RETRIED", "CloudError", "ErrorKind"]


class ErrorKind(StrEnum):
    """What a refusal means for what comes next.

    CAPACITY: None to be had here now; nothing was made. The next candidate is tried.
    QUOTA: The account may not; nothing was made. Candidates of the same scope are skipped.
    CREDENTIALS: Missing, expired, wrong or not allowed. Everything stops; what exists is named.
    INVALID: The request is wrong, whenever and wherever it is sent. Everything stops.
    THROTTLED: Too many requests; this one was not looked at. Sent again after a while.
    TRANSIENT: Not now, and surely not done (a dependency is still busy). Sent again after a while.
    UNKNOWN: Nobody can say whether it was done: no answer, half an answer, an internal error. The same token
        is sent again, then the machine is looked for by its tags; nothing else is created before that is settled.
    SPENT_TOKEN: The token belongs to a machine that has ended. A new attempt takes a new one.
    EXISTS: Something of that name is there already. The call's own ``find`` says what it is.
    ABSENT: What was to be read or removed is not there (or not visible yet).
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
    """A call did not bring what it should.

    Args:
        kind: What that means for what comes next.
        code: The cloud's own name of the error.
        message: The cloud's own words, in one line.
        scope: How far a quota reaches: `region`, or `account`.
        way_out: What the user can do about it, as the refused call says (`Call.way_out`).
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
