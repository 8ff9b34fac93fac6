"""A second pair of eyes on this computer: `python -m …watchdog FOLDER GROUP SECONDS`.

Waits until nothing of the attempt is alive any more, or its time is over; then ends its process group. It
depends on neither supervisor nor script: both may hang or be killed.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from pathlib import Path
from types import FrameType

__all__ = ["main"]


def main(folder: Path, group: int, cap_s: float) -> None:
    """Wait for the lock that everything alive holds; end the group when that takes too long."""

    def end(number: int, frame: FrameType | None) -> None:
        os.killpg(group, signal.SIGKILL)  # the lock is still held, so the group is still theirs

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, cap_s, 1.0)
    (folder / "armed-watchdog").touch()
    handle = os.open(folder / "alive", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
