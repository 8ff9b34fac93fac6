"""User-facing errors from cloud errors: who refused what, what may still cost money, what to do next.

A ``CloudError`` has the cloud's message and kind, but neither run nor advice, so it never leaves ``launch``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...errors import CredentialsError, GpuplanError
from .api_call import RETRIED, CloudError, ErrorKind
from .cloud_adapter import Adapter, CloudMachine, RunOutcome
from .history import AttemptHistory
from .request import LaunchRequest

_RECORDS = "ledger"
_LEDGER = "`gpuplan ps` shows the machines on record"


class Failures:
    """Errors collected while other parts are processed.

    A part is a provider (`aws`), a place of one (`aws us-east-1`), a run, a machine, or a record (`ledger RUN`).
    """

    def __init__(self) -> None:
        self.errors: dict[str, GpuplanError] = {}

    @contextmanager
    def collect(self, part: str) -> Iterator[None]:
        """Collect the error of a part; success of the same part removes an earlier error."""
        try:
            yield
        except GpuplanError as error:
            self.errors[part] = error
        else:
            self.errors.pop(part, None)

    def add(self, provider: str, place: str, fault: CloudError, *, what: str, otherwise: str) -> None:
        """Add the error of a place; arguments as for `explain_errors`."""
        self.errors[f"{provider} {place}"] = GpuplanError(
            f"{provider} was asked {what} in {place} and answered {fault}",
            hint=f"{describe_retry(fault)} the command; {otherwise}",
        )

    def to_json(self) -> dict[str, list[dict[str, str | None]]]:
        """Return the providers that did not answer and the records that cannot be read."""
        parts = [(*part.partition(" ")[::2], str(error)) for part, error in self.errors.items()]
        silent = [{"provider": name, "place": place or None, "error": error} for name, place, error in parts]
        return {
            "silent": [one for one in silent if one["provider"] != _RECORDS],
            "damaged": [{"run": run or None, "error": error} for name, run, error in parts if name == _RECORDS],
        }

    def raise_any(self) -> None:
        """Raise the collected errors as one; a CredentialsError if one is among them."""
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
    """Convert a CloudError into "PROVIDER was asked WHAT and answered …", with an alternative for the user."""
    try:
        yield
    except CloudError as fault:
        message = f"{provider} was asked {what} and answered {fault}"
        raise choose_error(fault)(message, hint=f"{describe_retry(fault)} the command; {otherwise}") from fault


def list_machines(adapter: Adapter, regions: Sequence[str] | None, failures: Failures) -> tuple[CloudMachine, ...]:
    """List a provider's machines with our tags; `failures` collects what does not answer, a place or the provider.

    None stands for all regions that the account can use.
    """
    with (
        failures.collect(adapter.provider),
        explain_errors(adapter.provider, what="for its machines", otherwise=_LEDGER),
    ):
        listing = adapter.machines(regions)
        faults = list(listing.failed.values())
        if faults and not listing.answered and all(one.kind is ErrorKind.CREDENTIALS for one in faults):
            raise faults[0]
        for place, fault in listing.failed.items():
            failures.add(adapter.provider, place, fault, what="for its machines", otherwise=_LEDGER)
        return listing.machines
    return ()


def read_outcome(adapter: Adapter, request: LaunchRequest) -> RunOutcome | None:
    """Return the result of an ended run; None without one; GpuplanError when it cannot be read."""
    what = f"for the result of run `{request.run}`"
    with explain_errors(request.provider, what=what, otherwise="the result is in its bucket"):
        try:
            return adapter.outcome(request)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())
            message = f"the result of run `{request.run}` cannot be read: {reason}"
            raise GpuplanError(message, hint="remove its file; the run counts as one without a result") from error


@contextmanager
def explain_teardown_errors(past: AttemptHistory) -> Iterator[None]:
    """Convert a CloudError during a teardown into an error that names what may still exist."""
    try:
        yield
    except CloudError as fault:
        raise build_access_error(past, fault) from fault


def build_access_error(past: AttemptHistory, fault: CloudError) -> GpuplanError:
    """Return the error of a provider that refuses access: what exists, and how to end it by hand."""
    return choose_error(fault)(
        f"{past.provider} answered {fault}; {describe_existing(past)}",
        hint=f"{describe_retry(fault)} the command, or `gpuplan stop {past.run}`",
    )


def describe_existing(past: AttemptHistory) -> str:
    """Describe what an attempt may have made, and how it ends."""
    attempt = past.attempt
    if past.may_have_machine:
        named, by_hand = past.machine_id or "a machine that may exist", f"by hand: {attempt.stop_by_hand}"
        if any(call.arms and call.step in past.kept for call in attempt.calls):
            return f"{named} ends by itself after {attempt.candidate.cap_s} s; {by_hand}"
        return f"nothing outside {named} is known to end it; {by_hand}"
    if any(call.makes == "resource" and call.step in past.intended for call in attempt.calls):
        return "there is no machine; other resources may be left"
    return "nothing was made"


def describe_retry(fault: CloudError) -> str:
    """Return the advice to follow before the command is repeated.

    Example:
        >>> describe_retry(CloudError(ErrorKind.THROTTLED, "RequestLimitExceeded", "slow down"))
        'wait a minute, then repeat'
    """
    first = f"{fault.way_out}; otherwise " if fault.way_out else ""
    if fault.kind is ErrorKind.CREDENTIALS:
        return f"{first}renew the credentials, or get the named permission, then repeat"
    return f"{first}{'wait a minute' if fault.kind in RETRIED else 'fix the cause'}, then repeat"


def choose_error(fault: CloudError) -> type[GpuplanError]:
    """Return the class of the error, which sets the exit code."""
    return CredentialsError if fault.kind is ErrorKind.CREDENTIALS else GpuplanError
