"""Removing what was made for an attempt and is no machine, after its machine and its record are gone."""

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
    """Remove an owner's leftovers at a provider and return them.

    Args:
        upkeep: The ledger, the adapters, and whose things may be removed.
        provider: Where.
        regions: None: wherever the account can have them.
        failures: Takes the errors of places that do not answer, and of things that cannot be removed.
        of: Run and attempt; None: all.

    Nothing is removed unless every place has answered: a thing whose machine cannot be seen may be in use. The
    leftovers are listed first, then the machines, then the ledger is read: what a launch makes meanwhile is
    either not listed, or on record.
    """
    adapter, complete = context.adapter(provider), True
    with (
        failures.kept(f"{provider} leftovers"),
        explain_errors(provider, what="for leftovers", otherwise=_LATER),
    ):
        found, failed = adapter.leftovers(regions)
        listing = adapter.machines(regions)
        for place, fault in {**failed, **listing.failed}.items():
            complete = False
            failures.errors[f"{provider} {place}"] = GpuplanError(
                f"{provider} was asked for leftovers in {place} and answered {fault}",
                hint=f"{describe_retry(fault)} the same command; {_LATER}",
            )
        in_use = {(one.run, one.attempt, one.owner) for one in listing.machines} | context.open_attempts()
        removed = []
        for one in found if complete else ():
            is_wanted = of in {None, (one.run, one.attempt)} and one.owner == context.acting
            if is_wanted and (one.run, one.attempt, one.owner) not in in_use:
                with failures.kept(f"{provider} {one.id}"):
                    _remove(context, provider, one)
                    removed.append(one)
        return removed
    return []


_LATER = "the next `gpuplan reap` looks again"


def _remove(context: LaunchContext, provider: str, left: Leftover) -> None:
    """Remove one thing; that it is gone already is as good."""
    log = context.ledger.open_run(safe_name(left.run) or safe_name(left.id))
    with log.held(), explain_errors(provider, what=f"to remove the {left.kind} {left.id}", otherwise=_LATER):
        ender = context.ender(log, provider, owner=context.acting)
        for call in left.undo:
            ender.send_unless_absent(call, {}, number=left.attempt)
        ender.sender.notify("removed", f"{left.kind} {left.id}", number=left.attempt)
        if not log.history().plans:
            log.record("finished", why="removed by its tags")
