"""What a user says of machines that can be taken back, as it was typed."""

from __future__ import annotations

from ..units import SECONDS_PER_HOUR
from .limits import duration_s_of
from .spot_outlook import SpotTerms

__all__ = ["spot_terms_of"]


def spot_terms_of(
    *, spot_life: str | None, checkpoint_every: str | None, checkpoint_time: str | None,
    restart_time: str | None,
) -> SpotTerms:  # fmt: skip
    """Return durations like `5h` or `90s` as terms; None: as the catalog has it.

    Args:
        spot_life: Mean life of a machine.
        checkpoint_every: Work between two checkpoints.
        checkpoint_time: What one of them takes.
        restart_time: From the start of a new machine until it works on.

    Raises:
        UsageError: No duration, or one that is not above zero.
    """

    def time_s(text: str | None, flag: str) -> float | None:
        return None if text is None else duration_s_of(text, flag=flag)

    life_s = time_s(spot_life, "--spot-life")
    return SpotTerms(
        up_hours=None if life_s is None else life_s / SECONDS_PER_HOUR,
        interval_s=time_s(checkpoint_every, "--checkpoint-every"),
        save_s=time_s(checkpoint_time, "--checkpoint-time"),
        restart_s=time_s(restart_time, "--restart-time"),
    )
