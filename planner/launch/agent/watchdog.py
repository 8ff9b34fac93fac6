"""Watchdog of a local run: `python -m …watchdog FOLDER GROUP SECONDS`.

It waits until no process of the attempt lives, or kills the process group at the deadline, independent of
supervisor and script, which may hang or be killed.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from pathlib import Path
from types import FrameType


def main(folder: Path, group: int, cap_s: float) -> None:
    """Wait for the lock that all processes hold; kill the group at the deadline."""

    def end(number: int, frame: FrameType | None) -> None:
        os.killpg(group, signal.SIGKILL)  # the lock is held, so the group id is not reused

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, cap_s, 1.0)
    (folder / "armed-watchdog").touch()
    handle = os.open(folder / "alive", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
