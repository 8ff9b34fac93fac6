"""What exports of a bare machine share: the script that runs on it, and its end from inside."""

from __future__ import annotations

from ..prepare.shell import quote
from .task import ExportTask, build_fetch_commands, build_install_commands, build_run_command

HOME = "/opt/gpuplan"
POWER_OFF = "shutdown -h now"
MACHINE_LIMITS = (
    "the machine is not in gpuplan's ledger: `gpuplan ps` and `gpuplan reap` do not list it",
    "no checkpoints: files that the script does not save elsewhere are lost with the machine",
)


def build_power_off_timer(task: ExportTask, *, later_s: int = 0) -> str:
    """Return the command that powers a machine off when its cap is over, counted from now.

    Args:
        task: The task.
        later_s: Time by which it follows the cap, where the cloud's own cap removes more [s].
    """
    return f"shutdown -h +{max(1, (task.offer.cap_s + later_s) // 60)}"


def build_machine_script(task: ExportTask, *, timer: str, end: str = POWER_OFF) -> str:
    """Return the script of a machine: the timer first, then the code, its packages and the run, and the end.

    Args:
        task: The task; its code comes from git.
        timer: Command that sets the machine's own timer, before anything can fail.
        end: Command that ends the machine, also after a failure.
    """
    lines = [
        "#!/bin/bash",
        timer,
        "set -euo pipefail",
        f"trap {quote(end)} EXIT",
        f"mkdir -p {HOME} && cd {HOME}",
        f"exec > >(tee -a {HOME}/log.txt) 2>&1",
        "python3 -m venv --system-site-packages venv && . venv/bin/activate",
        *build_fetch_commands(task),
        *build_install_commands(task),
        build_run_command(task),
    ]
    return "\n".join(lines) + "\n"


def describe_script_end(task: ExportTask) -> tuple[str, str]:
    """Return the descriptions of the stops within the machine."""
    return (
        f"the script is stopped {task.offer.cap_s} s after its start (`timeout`)",
        "the machine ends itself after the script, also after a failure, and at the latest "
        f"{task.offer.cap_s} s after the start of its start-up script (a timer, set first)",
    )
