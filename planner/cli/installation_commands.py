"""`gpuplan doctor` and `mcp`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from ..errors import UsageError
from ..records import Flag
from ..render.output import emit_result
from ..render.progress import say, status
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


def mcp() -> None:
    """Serve `estimate`, `offers` and `breakeven` to an assistant by the Model Context Protocol.

    Speaks the protocol on standard input and output until its input ends. A client starts it.
    The tools take the flags of the commands and return their JSON. A script given as MODEL is run as in
    `gpuplan estimate`, with your rights. Needs `pip install 'gpuplan[mcp]'`.

    Example: claude mcp add gpuplan -- gpuplan mcp
    Example: codex mcp add gpuplan -- gpuplan mcp
    """
    try:
        import anyio
        import mcp  # noqa: F401
    except ImportError:
        raise UsageError(
            "the SDK of the Model Context Protocol is not installed", hint="`pip install 'gpuplan[mcp]'`"
        ) from None
    from .mcp_server import serve

    if sys.stdin.isatty():
        say("waiting for a client on standard input; Ctrl-C ends it")
    anyio.run(serve)
