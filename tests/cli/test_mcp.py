"""`gpuplan mcp`, in a conversation with the official client over standard input and output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest

mcp = pytest.importorskip("mcp")
from gpuplan.cli.mcp_server import build_command_line, build_tool  # noqa: E402
from gpuplan.estimate_document import read_offers  # noqa: E402
from gpuplan.plan.estimate_request import EstimateRequest  # noqa: E402
from gpuplan.records import iter_field_parameters  # noqa: E402
from mcp.client.client import Client  # noqa: E402
from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: E402

SCHEMAS = Path(__file__).parents[2] / "schemas"
LOUD = """
import os
print('{"jsonrpc": "2.0", "id": 1, "result": "planted"}', flush=True)
os.write(1, b"not the protocol\\n")
import keras
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(loss="mse")
import numpy as np
model.fit(np.zeros((64, 4)), np.zeros((64, 1)), epochs=3)
"""


def talk(folder: Path, *calls: tuple[str, dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """The server's tools, and its answers to calls; the server starts in a folder, as a client's settings say."""

    async def conversation() -> tuple[list[Any], list[Any]]:
        state = {
            "GPUPLAN_CACHE_DIR": str(folder / "cache"),
            "GPUPLAN_STATE_DIR": str(folder / "state"),
            "GPUPLAN_TODAY": os.environ["GPUPLAN_TODAY"],
        }
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "gpuplan", "mcp"], cwd=folder, env=state
        )
        async with Client(stdio_client(server)) as client:
            tools = (await client.list_tools()).tools
            return tools, [await client.call_tool(name, arguments) for name, arguments in calls]

    return anyio.run(conversation)


@pytest.mark.slow
def test_a_conversation_with_the_official_client(
    tmp_path: Path, saved: str, gpuplan: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tools with the commands' flags, and their very JSON; a script that prints protocol messages is not heard."""
    (tmp_path / "train.py").write_text(LOUD)
    asked = {"model": saved, "provider": ["lambda", "aws"], "epochs": 10}
    tools, (estimate, loud, offers, turn, none, wrong) = talk(
        tmp_path,
        ("estimate", {**asked, "max_offers": 3}),
        ("estimate", {"model": "train.py", "accelerator": ["T4"], "purchase": "on-demand"}),
        ("offers", {"accelerator": ["T4"], "retired": False, "max_offers": 1000}),
        ("breakeven", {"model": saved, "epochs": 10, "runs": 5}),
        ("estimate", {**asked, "budget": 0.000001}),
        ("estimate", {"model": "missing.py"}),
    )
    command = json.loads(
        gpuplan("estimate", saved, "--provider=lambda", "--provider=aws", "--epochs=10", "--json").out
    )

    assert [tool.name for tool in tools] == ["estimate", "offers", "breakeven"]
    assert tools[0].input_schema["required"] == ["model"]
    assert "output" not in tools[0].input_schema["properties"]
    shown = estimate.structured_content
    assert shown.pop("offers_total") == len(command["offers"]) > 3
    assert shown["offers"] == read_offers(command)[:3]
    assert {**command, "offers": [], "devices": [], "price_sources": {}} == {
        **shown,
        "offers": [],
        "devices": [],
        "price_sources": {},
    }
    assert json.loads(estimate.content[0].text)["decision"] == command["decision"]
    assert loud.structured_content["workload"]["epochs"] == 3
    assert {one["accelerator"] for one in offers.structured_content["offers"]} == {"T4"}
    assert offers.structured_content["offers_total"] == len(offers.structured_content["offers"])
    for answer, schema in ((estimate, "estimate"), (offers, "offers"), (turn, "breakeven"), (none, "estimate")):
        assert not answer.is_error
        document = json.loads((SCHEMAS / f"gpuplan.{schema}.json").read_text())
        jsonschema.validate(answer.structured_content, document)
    assert none.structured_content["recommendation"]["within_budget"] is None
    assert wrong.is_error
    assert wrong.content[0].text.startswith("error: no such file")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("launch", {}, "unknown tool `launch`"),
        ("estimate", {"model": "ResNet50", "output": "/etc/passwd"}, "has no argument `output`"),
        ("estimate", {"model": "train.py", "script_env": ["AWS_SECRET_ACCESS_KEY"]}, "no argument `script_env`"),
    ],
)
def test_nothing_but_the_flags_of_the_three_commands(name: str, arguments: dict[str, Any], message: str) -> None:
    """No other command, no file to write, no variable of the user's environment."""
    from gpuplan.errors import UsageError

    with pytest.raises(UsageError, match=message):
        build_command_line(name, arguments)


def test_arguments_are_the_fields_of_a_request() -> None:
    """Each field is a property with its help, a list where it takes several values."""
    properties = build_tool("estimate").input_schema["properties"]
    fields = list(iter_field_parameters(EstimateRequest))

    assert len(fields) > 30
    for one in fields:
        flag = one.annotation.__metadata__[0]
        assert properties[(flag.name or one.name).partition("/")[0]]["description"].rstrip(
            "."
        ) == flag.help.rstrip(".")
    assert (properties["accelerator"]["type"], properties["accelerator"]["items"]) == ("array", {"type": "string"})


@pytest.mark.parametrize(("name", "runs_code"), [("estimate", True), ("offers", False), ("breakeven", True)])
def test_what_runs_a_script_is_marked(name: str, runs_code: bool) -> None:
    """As the client reads it: hints of the protocol (schema of 2025-06-18, ToolAnnotations), and in words."""
    tool = json.loads(build_tool(name).model_dump_json(by_alias=True, exclude_none=True))

    hints = {"readOnlyHint": not runs_code, "destructiveHint": runs_code, "openWorldHint": runs_code}
    assert tool["annotations"] == hints
    assert ("is run up to its fit()" in tool["description"]) == runs_code


def test_values_stay_values() -> None:
    """Text that looks like a flag belongs to its own flag, or to the model."""
    words = build_command_line("estimate", {"model": "-o", "provider": ["--live"], "feed": None})
    assert words == ["estimate", "--json", "--provider=--live", "--", "-o"]


def test_without_the_sdk(gpuplan: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """One line and the way out."""
    monkeypatch.setitem(sys.modules, "mcp", None)
    done = gpuplan("mcp")

    assert (done.code, done.out) == (2, "")
    assert "hint: `pip install 'gpuplan[mcp]'`" in done.err
