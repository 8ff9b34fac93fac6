"""Watchdog of a local run: `python -m …watchdog CAP_S FOLDER`, which starts the supervisor.

It kills every process below itself when the supervisor has ended, and at the deadline, if supervisor and script
hang. On Linux, a process in a session of its own, or whose parent has ended, stays below it. If the watchdog is
killed, the supervisor ends the script.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from .checkpoint import read_json, write_json
from .runner import PR_SET_PDEATHSIG, set_process

PR_SET_CHILD_SUBREAPER = 36
TICK_S = 0.05


class Process(NamedTuple):
    """A process, also when its id belongs to another one by now."""

    pid: int
    start: str  # Linux: boot and clock ticks since then; elsewhere a date


def main(cap_s: float, folder: Path) -> None:
    """Start the supervisor, wait for its end or the deadline, and kill what is left."""
    own = Process(os.getpid(), read_processes(os.getpid())[os.getpid()][1])
    signal.signal(signal.SIGTERM, lambda *_: None)  # for the supervisor; SIG_IGN would be inherited
    signal.signal(signal.SIGALRM, lambda *_: kill_below(own))
    signal.setitimer(signal.ITIMER_REAL, cap_s, 1.0)
    set_process(PR_SET_CHILD_SUBREAPER, 1)
    (folder / "armed-watchdog").touch()
    supervisor = subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.supervise", str(folder)],
        start_new_session=True,
        close_fds=False,  # it inherits the lock `alive`
        preexec_fn=partial(set_process, PR_SET_PDEATHSIG, signal.SIGTERM),  # noqa: PLW1509 - there is one thread
    )
    started = {pid: start for pid, (_, start) in read_processes(supervisor.pid).items()}
    write_json(folder / "processes", [own, *started.items()])  # atomic: read by `stop`
    while os.wait()[0] != supervisor.pid:
        pass  # an orphan
    if sys.platform != "linux":  # where orphans are not below this process
        with contextlib.suppress(ProcessLookupError):
            os.killpg(supervisor.pid, signal.SIGKILL)
    while kill_below(own):
        time.sleep(TICK_S)


def send_signal(process: Process, number: int) -> bool:
    """Send a signal to a process unless it has ended, whoever has its id now; return whether it was sent."""
    try:
        handle: int | None = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # not Linux, Linux before 5.3, or ended
        handle = None
    try:
        if read_processes(process.pid).get(process.pid, (0, ""))[1] != process.start:
            return False
        if handle is None:
            os.kill(process.pid, number)
        else:
            signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        if handle is not None:
            os.close(handle)
    return True


def kill_below(root: Process) -> bool:
    """Kill the processes that descend from one; return whether there were any."""
    processes = read_processes()
    found = [root] if processes.get(root.pid, (0, ""))[1] == root.start else []
    for parent in found:  # grows
        found += [Process(pid, start) for pid, (above, start) in processes.items() if above == parent.pid]
    return any([send_signal(one, signal.SIGKILL) for one in found[1:]])  # noqa: C419 - all of them


def read_recorded(folder: Path) -> list[Process]:
    """Return the watchdog and the supervisor of a machine; empty before they are recorded."""
    return [Process(*one) for one in read_json(folder / "processes", [])]


def read_processes(pid: int | None = None) -> dict[int, tuple[int, str]]:
    """Return parent and start of one process or of all that have not ended, by id."""
    if sys.platform != "linux":
        which = ["-ax"] if pid is None else ["-p", str(pid)]
        command = ["ps", *which, "-o", "pid=,ppid=,stat=,lstart="]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        rows = [line.split(None, 3) for line in done.stdout.splitlines()]
        return {int(one): (int(parent), start) for one, parent, state, start in rows if "Z" not in state}
    boot, found = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(), {}
    for place in Path("/proc").glob("[0-9]*" if pid is None else str(pid)):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended
            state, parent, *fields = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if state not in "ZX":
                found[int(place.name)] = (int(parent), f"{boot} {fields[17]}")  # field 22 in proc_pid_stat(5)
    return found


if __name__ == "__main__":
    main(float(sys.argv[1]), Path(sys.argv[2]))
