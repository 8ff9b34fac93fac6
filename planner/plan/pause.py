"""A pause of the collector of cycles, while thousands of objects are made that all stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_paused"]


@contextmanager
def collector_paused() -> Iterator[None]:
    """Make objects without looking for cycles among them: there are none, and looking takes its time.

    What was made counts as old afterwards (that is what ``freeze`` and ``unfreeze`` come to, at no cost), so that
    the next allocation does not look through all of it either. Where somebody froze objects, they stay frozen.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if gc.get_freeze_count() == 0:
                gc.freeze()
                gc.unfreeze()
            gc.enable()
