"""Flags that say where a command's answer goes, and in which form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ..frozen import Frozen


class OutputFlags(Frozen):
    """Output besides a table on standard output."""

    output: Annotated[Path | None, typer.Option("--output", "-o", help="Also write the JSON here.")] = None
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False

    def require_writable(self) -> None:
        """Raise UsageError before the work starts if the file is not writable."""
        from ..render.output import require_writable

        if self.output is not None:
            require_writable(self.output, flag="-o")

    def write(self, build: Callable[[], dict[str, Any]]) -> None:
        """Write a document with its schema to the file, if one is given; it is built only then."""
        from ..render.output import format_json, write_text

        if self.output is not None:
            document = build()
            write_text(self.output, format_json(document.pop("schema"), document))
