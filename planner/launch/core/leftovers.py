"""Removal of resources other than machines whose attempt is over."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import GpuplanError
from ..prepare.error_messages import Failures, describe_retry, explain_errors
from .cloud_adapter import Leftover
from .context import LaunchContext
from .resource_names import safe_name

__all__ = ["remove_leftovers"]


def remove_leftovers(
    context: LaunchContext,
    provider: str,
    *,
    regions: Sequence[str] | None,
    failures: Failures,
    of: tuple[str, int] | None = None,
) -> list[Leftover]:
    """Remove an owner's leftover resources at a provider and return them.

    Args:
        context: Ledger, adapters and owner.
        provider: Provider to query.
        regions: Regions to query; None: all that the account can use.
        failures: Collects errors of places that do not answer and of resources that cannot be removed.
        of: Run and attempt; None: all.

    Nothing is removed unless every place has answered: a resource whose machine cannot be seen may be in use.
    Resources are listed first, then machines, then the ledger is read: what a concurrent launch makes is either
    not listed or on record.
    """
    adapter, complete = context.adapter(provider), True
    with (
        failures.collect(f"{provider} leftovers"),
        explain_errors(provider, what="for leftovers", otherwise=_LATER),
    ):
        found, failed = adapter.leftovers(regions)
        listing = adapter.machines(regions)
        for place, fault in {**failed, **listing.failed}.items():
            complete = False
            failures.errors[f"{provider} {place}"] = GpuplanError(
                f"{provider} was asked for leftovers in {place} and answered {fault}",
                hint=f"{describe_retry(fault)} the command; {_LATER}",
            )
        in_use = {(one.run, one.attempt, one.owner) for one in listing.machines} | context.open_attempts()
        removed = []
        for one in found if complete else ():
            is_wanted = of in {None, (one.run, one.attempt)} and one.owner == context.acting
            if is_wanted and (one.run, one.attempt, one.owner) not in in_use:
                with failures.collect(f"{provider} {one.id}"):
                    _remove(context, provider, one)
                    removed.append(one)
        return removed
    return []


_LATER = "the next `gpuplan reap` tries again"


def _remove(context: LaunchContext, provider: str, left: Leftover) -> None:
    """Remove one resource; a missing one counts as removed."""
    log = context.ledger.open_run(safe_name(left.run) or safe_name(left.id))
    with log.held(), explain_errors(provider, what=f"to remove the {left.kind} {left.id}", otherwise=_LATER):
        teardown = context.teardown(log, provider, owner=context.acting)
        for call in left.undo:
            teardown.send_unless_absent(call, {}, number=left.attempt)
        teardown.runner.notify("removed", f"{left.kind} {left.id}", number=left.attempt)
        if not log.history().plans:
            log.record("finished", why="removed by its tags")
