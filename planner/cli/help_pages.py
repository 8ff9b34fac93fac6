"""Help in groups: the flags of a command by panel, and the commands by what one wants to do."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from typer.core import TyperCommand, TyperGroup

from ..plan.estimate_request import OUTPUT, PANELS

ARGUMENTS, OPTIONS = "Arguments", "Options"
MOST_IN_ONE = 15  # flags of a command that are listed without panels
LONGEST = 200  # of what a command does, which is never cut [characters]
WIDEST = 28  # of the first column [characters]


def split_examples(documentation: str, *, below: bool) -> tuple[str, str | None]:
    """Return the help of a command, its examples as paragraphs, and what stands below its options.

    Args:
        documentation: Docstring of the command.
        below: Whether its examples stand below the options.
    """
    text, word, lines = inspect.cleandoc(documentation).partition("Examples:\n")
    if not word or text.endswith("\b\n"):
        return re.sub(r"(?<!\n)\nExample: ", "\n\nExample: ", f"{text}{word}{lines}"), None
    examples = f"{word}{lines}".replace("\n", "\n\n")
    return (text, examples) if below else (text + examples, None)


class PanelCommand(TyperCommand):
    """Command whose help lists many flags by panel."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, and the flags of each panel."""
        parameters = self.get_params(ctx)
        are_named = any(getattr(one, "rich_help_panel", None) for one in parameters)
        has_panels = are_named and len(parameters) > MOST_IN_ONE
        panels: dict[str, list[tuple[str, str]]] = {name: [] for name in (ARGUMENTS, OPTIONS, *PANELS)}
        for parameter in parameters:
            panel = getattr(parameter, "rich_help_panel", None) if has_panels else None
            if parameter.param_type_name == "argument":
                panel = ARGUMENTS
            elif has_panels and parameter.name == "help":
                panel = OUTPUT
            record = parameter.get_help_record(ctx)
            if record is not None:
                panels[panel or OPTIONS].append(record)
        widths = [len(first) for rows in panels.values() for first, _ in rows]
        width = max((one for one in widths if one <= WIDEST), default=0)
        for name, rows in panels.items():
            if rows:
                with formatter.section(name):
                    formatter.write_dl([(first.ljust(width), text) for first, text in rows], col_max=width)


class CommandGroup(TyperGroup):
    """Program whose help lists the commands by group, also those whose modules are not loaded."""

    groups: ClassVar[Mapping[str, Mapping[str, str]]] = {}  # -> command -> what it does

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of each group, one a line; those of a command below the program in one group."""
        if ctx.parent is not None:
            with formatter.section("Commands"):
                rows = [(name, one.get_short_help_str(LONGEST)) for name, one in self.commands.items()]
                formatter.write_dl(rows)
            return
        width = max(len(name) for commands in self.groups.values() for name in commands)
        for group, commands in self.groups.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])
