"""Server of the Model Context Protocol: each tool runs one command in a process of its own.

So a tool takes the flags of its command and returns its JSON, what a script prints stays off the protocol's
output, and nothing of a call remains in the server.
"""

from __future__ import annotations

import json
import sys
from subprocess import DEVNULL
from typing import Any

import anyio
import typer
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from pydantic import TypeAdapter

from .._version import __version__
from ..errors import UsageError
from ..estimate_document import merge_device
from .app import app_for

TOOLS = ("estimate", "offers", "breakeven")
# Flags of files and screens, of the user's accounts and of the user's environment are not an assistant's.
WITHHELD = {"output", "json", "all", "explain"}
SHOWN = "max_offers"  # a complete answer has thousands
MOST_SHOWN = 12
RUNS_CODE = " A script or function given as `model` is run up to its fit(), with the user's rights."
ANSWERED = (0, 3)  # exit codes of an answer; 3: the answer is no
SHOWN_SCHEMA = {
    "type": "integer",
    "minimum": 1,
    "default": MOST_SHOWN,
    "description": "Length of offers[], best first; offers_total counts all. Positions refer to the whole list.",
}


async def serve() -> None:
    """Serve the tools on standard input and output until the input ends."""
    server = Server("gpuplan", version=__version__, on_list_tools=_list_tools, on_call_tool=_call_tool)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def _list_tools(_: Any, __: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[build_tool(name) for name in TOOLS])


async def _call_tool(_: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
    """Run the tool's command; errors that a caller can fix are results with the command's own words."""
    arguments = dict(asked.arguments or {})
    shown = arguments.pop(SHOWN, MOST_SHOWN)
    try:
        if not isinstance(shown, int) or shown < 1:
            raise UsageError(f"`{SHOWN}`: {shown!r} is not a number of offers", hint=f"give e.g. {MOST_SHOWN}")
        words = build_command_line(asked.name, arguments)
    except UsageError as error:
        return _answer(f"error: {error}\n\nhint: {error.hint}", failed=True)
    command = [sys.executable, "-P", "-m", "gpuplan", *words]  # -P: no module of the current folder is loaded
    done = await anyio.run_process(command, stdin=DEVNULL, check=False)
    if done.returncode not in ANSWERED or not done.stdout:
        return _answer(done.stderr.decode(errors="replace"), failed=True)
    document = json.loads(done.stdout)
    if "offers" in document:
        every = document["offers"]
        whole = [merge_device(document, one) for one in every[:shown]]
        shared = {key: type(document[key])() for key in ("devices", "price_sources") if key in document}
        document |= {"offers": whole, "offers_total": len(every), **shared}
    return _answer(json.dumps(document), document=document)


def _answer(text: str, *, failed: bool = False, document: dict[str, Any] | None = None) -> types.CallToolResult:
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
    return types.CallToolResult(content=content, structured_content=document, is_error=failed)


def build_tool(name: str) -> types.Tool:
    """Return the tool of a command, its arguments made from the command's own flags."""
    command = _get_command(name)
    parameters = _list_parameters(command)
    properties = {
        key: {
            **TypeAdapter(one.type_descriptor.annotation).json_schema(),
            "description": one.help.replace("; repeatable", ""),
            **({} if one.default is None else {"default": one.default}),
        }
        for key, one in parameters.items()
    }
    if name != "breakeven":
        properties[SHOWN] = SHOWN_SCHEMA
    schema = {
        "type": "object",
        "properties": properties,
        "required": [key for key, one in parameters.items() if one.required],
        "additionalProperties": False,
    }
    runs_code = "model" in parameters  # a script may do anything, with the user's rights
    return types.Tool(
        name=name,
        description=command.help.partition("\n\n")[0] + (RUNS_CODE if runs_code else ""),
        input_schema=schema,
        annotations=types.ToolAnnotations(
            read_only_hint=not runs_code, destructive_hint=runs_code, open_world_hint=runs_code
        ),
    )


def build_command_line(name: str, arguments: dict[str, Any]) -> list[str]:
    """Return the words of a command for a tool's arguments; UsageError for an unknown tool or argument.

    Example:
        >>> build_command_line("estimate", {"model": "--help", "devices": [1, 8], "script_arguments": ["-x"]})
        ['estimate', '--json', '--devices=1', '--devices=8', '--', '--help', '-x']
    """
    if name not in TOOLS:
        raise UsageError(f"unknown tool `{name}`", hint=f"the tools are {', '.join(TOOLS)}")
    parameters = _list_parameters(_get_command(name))
    flags: list[str] = []
    for key, value in arguments.items():
        if key not in parameters:
            raise UsageError(f"`{name}` has no argument `{key}`", hint=f"it has {', '.join(parameters)}")
        if parameters[key].param_type_name == "option":
            flags += _build_flags(parameters[key], value)
    model = [str(arguments["model"])] if "model" in arguments else []
    rest = [*model, *map(str, arguments.get("script_arguments") or ())]
    return [name, "--json", *flags, *(["--", *rest] if rest else [])]


def _build_flags(parameter: Any, value: Any) -> list[str]:
    """Return the flags of an argument: its words, or one for each of its values."""
    if value is None:
        return []
    if parameter.is_flag:
        names: list[str] = parameter.opts if value else parameter.secondary_opts
        return names[:1]
    values = value if isinstance(value, list) else [value]
    return [f"{parameter.opts[0]}={one}" for one in values]


def _get_command(name: str) -> Any:
    return typer.main.get_command(app_for([name])).commands[name]  # type: ignore[attr-defined]


def _list_parameters(command: Any) -> dict[str, Any]:
    """Return the parameters of a command that a tool has, by the names of their flags."""
    named = {one.opts[0].lstrip("-").replace("-", "_"): one for one in command.params}
    return {name: one for name, one in named.items() if name not in WITHHELD}
