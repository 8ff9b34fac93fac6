"""What a console says of a machine whose `pip` refuses, and what a launcher makes of it."""

from __future__ import annotations

from gpuplan.launch.core.error_messages import Failures
from gpuplan.launch.service import Launcher

REPORT = (
    '{"attempt": 1, "status": "failed_before_training", "stage": "packages", "exit_code": 1, '
    '"log": "ERROR: \\u001b[31mNo matching distribution\\n"}'
)
CONSOLE = (
    f"[    0.0] Linux\n{'x' * 70_000}\n"
    'gpuplan: {"attempt": 1, "status": "running", "stage": "boot"}\n'
    f"[   35.1] cloud-init[7]: gpuplan: {REPORT}\n"
    'gpuplan: {"attempt": 1, "status": "do[   36.0] reboot: Power down\nne"}\n'
)
SAID = "run `r1` failed before training, while installing packages (exit code 1)"


def check_failure_is_read(launcher: Launcher, provider: str) -> None:
    """`ps`, `launch --wait` and the ledger have the machine's last whole report, without control characters."""
    (line,) = launcher.find_failed_runs(launcher.ledger.histories(Failures()), [provider], Failures())
    assert line.startswith(f"{SAID}: name packages that fit")
    report = launcher.watch("r1")
    assert report is not None
    assert report.log == "ERROR: [31mNo matching distribution\n"
    assert [record.event for record in launcher.ledger.peek("r1").records].count("reported") == 1
