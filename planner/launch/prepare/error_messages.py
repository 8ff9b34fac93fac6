"""A fault as the user meets it: who refused what, what may still cost money, and the way on.

Within ``launch`` a fault is a ``CloudError``: the cloud's own words, and what they mean for the next call. None of
them may leave it as such, for they name neither the run nor what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...errors import CredentialsError, GpuplanError
from ..core.cloud_adapter import Adapter, CloudMachine, Listing
from ..core.errors import RETRIED, CloudError, ErrorKind
from ..core.history import AttemptHistory

__all__ = ["Failures", "build_access_error", "describe_retry", "ending", "explain_errors", "list_machines"]

_LEDGER = "`gpuplan ps` shows what the ledger knows"


class Failures:
    """Errors of parts that must not keep the others from being done.

    A part is a provider (`aws`), a place of one (`aws us-east-1`), a run or a machine.
    """

    def __init__(self) -> None:
        self.errors: dict[str, GpuplanError] = {}

    @contextmanager
    def kept(self, part: str) -> Iterator[None]:
        """Keep the error of a part for later; when the same part is done after all, forget it."""
        try:
            yield
        except GpuplanError as error:
            self.errors[part] = error
        else:
            self.errors.pop(part, None)

    def raise_any(self) -> None:
        """Raise what was kept, as one error; the exit code says so when credentials are among it."""
        if not self.errors:
            return
        first, *others = self.errors.values()
        if not others:
            raise first
        codes = {error.exit_code for error in self.errors.values()}
        kind = CredentialsError if CredentialsError.exit_code in codes else GpuplanError
        raise kind("; ".join(map(str, self.errors.values())), hint=first.hint) from first


@contextmanager
def explain_errors(provider: str, *, what: str, otherwise: str) -> Iterator[None]:
    """Turn a fault into an error that says what a provider was asked for.

    Args:
        provider: Who is asked, and answered with a fault.
        what: Ends the sentence "… was asked" (`for its machines`).
        otherwise: What the user can do without an answer.
    """
    try:
        yield
    except CloudError as fault:
        message = f"{provider} was asked {what} and answered {fault}"
        raise _error_of(fault)(
            message, hint=f"{describe_retry(fault)} the same command; {otherwise}"
        ) from fault


def list_machines(
    adapter: Adapter, regions: Sequence[str] | None, failures: Failures
) -> tuple[CloudMachine, ...]:
    """Return what a provider shows under our tags.

    Args:
        adapter: Of the provider.
        regions: Where; None: wherever the account can have machines.
        failures: Takes the error of each place that does not answer, or of the provider as a whole.
    """
    with (
        failures.kept(adapter.provider),
        explain_errors(adapter.provider, what="for its machines", otherwise=_LEDGER),
    ):
        listing = adapter.machines(regions)
        if not listing.answered and _locked_out_of(listing):
            raise next(iter(listing.failed.values()))
        for place, fault in listing.failed.items():
            failures.errors[f"{adapter.provider} {place}"] = GpuplanError(
                f"{adapter.provider} was asked for its machines in {place} and answered {fault}",
                hint=f"{describe_retry(fault)} the same command; {_LEDGER}",
            )
        return listing.machines
    return ()


def _locked_out_of(listing: Listing) -> bool:
    """Whether every place refused the credentials."""
    return bool(listing.failed) and all(
        fault.kind is ErrorKind.CREDENTIALS for fault in listing.failed.values()
    )


@contextmanager
def ending(past: AttemptHistory) -> Iterator[None]:
    """Turn a fault that came while an attempt was ended into an error that says what may still exist."""
    try:
        yield
    except CloudError as fault:
        raise build_access_error(past, fault) from fault


def build_access_error(past: AttemptHistory, fault: CloudError) -> GpuplanError:
    """Return the error of a provider that does not let us: what exists, and the way out without us."""
    request, attempt = past.plan.request, past.attempt
    exists = "nothing was made"
    if past.may_have_machine:
        named = past.machine_id or "a machine that may exist"
        exists = f"{named} ends by itself after {attempt.candidate.cap_s} s; by hand: {attempt.stop_by_hand}"
    elif any(call.makes == "resource" and call.step in past.intended for call in attempt.calls):
        exists = "there is no machine; things made for one may be left"
    return _error_of(fault)(
        f"{request.provider} answered {fault}; {exists}",
        hint=f"{describe_retry(fault)} the same command, or `gpuplan stop {request.run}`",
    )


def describe_retry(fault: CloudError) -> str:
    """Return what comes before the same command can do better.

    Example:
        >>> describe_retry(CloudError(ErrorKind.THROTTLED, "RequestLimitExceeded", "slow down"))
        'wait a minute, then'
    """
    first = f"{fault.way_out}; otherwise " if fault.way_out else ""
    if fault.kind is ErrorKind.CREDENTIALS:
        return f"{first}renew the credentials, or have the right given that it names, then"
    return f"{first}wait a minute, then" if fault.kind in RETRIED else f"{first}see to what it says, then"


def _error_of(fault: CloudError) -> type[GpuplanError]:
    """Return the kind of error, which is the exit code."""
    return CredentialsError if fault.kind is ErrorKind.CREDENTIALS else GpuplanError
