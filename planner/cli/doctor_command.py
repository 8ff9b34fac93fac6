"""`gpuplan doctor`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ..records import Flag
from ..render.output import emit_result
from ..render.progress import status
from ..settings import get_today
from .flags import AsJson
from .messages import format_command, suggest_next


def doctor(
    quick: Annotated[bool, Flag("Skip loading the backends to list their devices.")] = False, json_: AsJson = False
) -> None:
    """Show versions, devices, extras, credentials (found or not), the age of prices, and folders.

    For a bug report: no secret is read out, paths begin at your folder, and nothing is sent anywhere.
    Ends with code 1 when gpuplan cannot work here.

    \b
    Examples:
      gpuplan doctor
      gpuplan doctor --quick --json > doctor.json
    """
    from ..doctor.report import SCHEMA, examine_installation
    from ..render.doctor import DOCTOR_COLUMNS, build_doctor_rows

    with status("checking this installation"):
        report = examine_installation(environ=os.environ, today=get_today(), ask_devices=not quick)
    emit_result(SCHEMA, report, DOCTOR_COLUMNS, build_doctor_rows(report), as_json=json_)
    if any(finding["level"] == "error" for finding in report["findings"]):
        raise typer.Exit(1)
    suggest_next(format_command("estimate", "ResNet50", samples=50_000, epochs=10), as_json=json_)
