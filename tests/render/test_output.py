"""Tables on a terminal, TSV in a pipe, one JSON object."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from datetime import date
from decimal import Decimal

import pytest
from gpuplan.render.output import Column, emit_json, emit_rows, format_json, iter_tsv_lines
from hypothesis import given
from hypothesis import strategies as st

COLUMNS = [
    Column(key="name", header="Name"),
    Column(key="usd", header="USD", format=lambda usd: f"{usd:.2f}", justify="right"),
    Column(key="detail", header="Detail", terminal=False),
]
ROWS = [
    {"name": "a", "usd": Decimal("1.23456"), "detail": "x\ty"},
    {"name": "b" * 200, "usd": None, "detail": True},
]
ON_A_TERMINAL = (
    "from gpuplan.render.output import Column, emit_rows;"
    "emit_rows([Column(key='n', header='Name'), Column(key='u', header='USD', format='{:.1f}'.format),"
    " Column(key='d', header='Detail', terminal=False)],"
    " [{'n': 'n' * 100, 'u': 1.25, 'd': 'x'}, {'n': '[red]b[/red]', 'u': None, 'd': 'x'}], title='T')"
)


def terminal_output(code: str, **environment: str) -> str:
    """Return what a program prints on a terminal that is 80 columns wide."""
    main, child = pty.openpty()
    env = {**os.environ, "COLUMNS": "80", "TERM": "xterm", **environment}
    with subprocess.Popen([sys.executable, "-c", code], stdout=child, env=env) as process:
        os.close(child)
        chunks = []
        while True:
            try:
                chunk = os.read(main, 65536)
            except OSError:  # the terminal is gone with its program
                break
            if not chunk:
                break
            chunks.append(chunk)
    os.close(main)
    assert process.returncode == 0
    return b"".join(chunks).decode()


def test_tsv_has_all_columns_at_full_precision(capsys: pytest.CaptureFixture[str]) -> None:
    """Not a terminal: header, no rounding, empty for unknown, no tab inside a cell."""
    emit_rows(COLUMNS, ROWS, title="not shown")

    assert capsys.readouterr().out == f"name\tusd\tdetail\na\t1.23456\tx y\n{'b' * 200}\t\ttrue\n"


def test_a_terminal_gets_a_table_of_80_columns() -> None:
    """Long cells are folded, unknown is a dash, markup in data stays text, hidden columns stay away."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", terminal_output(ON_A_TERMINAL))
    lines = text.splitlines()

    assert max(len(line) for line in lines) <= 80
    assert "T" in lines[0]
    assert "Detail" not in text
    assert any("[red]b[/red]" in line and "–" in line for line in lines)
    assert any("1.2" in line for line in lines)


def test_no_color_is_honoured() -> None:
    """https://no-color.org: NO_COLOR in the environment leaves no colour; style alone (bold) may stay."""
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", terminal_output(ON_A_TERMINAL, NO_COLOR="1"))


def test_json_is_one_object_with_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    """Money is text, dates are ISO, unknown is null."""
    emit_json("gpuplan.test/1", {"usd": Decimal("1E-7"), "on": date(2026, 8, 3), "none": None, "set": {"b", "a"}})

    document = json.loads(capsys.readouterr().out)
    assert document == {
        "schema": "gpuplan.test/1",
        "usd": "0.0000001",
        "on": "2026-08-03",
        "none": None,
        "set": ["a", "b"],
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_what_has_no_json_form_is_a_bug(value: object) -> None:
    """NaN and unknown types raise instead of printing something that no reader accepts."""
    with pytest.raises((ValueError, TypeError)):
        format_json("gpuplan.test/1", {"x": value})


@pytest.mark.parametrize("as_json", [True, False])
def test_a_reader_that_leaves_is_no_error(as_json: bool) -> None:
    """`| head -1` closes the pipe early: exit 0, nothing on standard error."""
    code = (
        "from gpuplan.render.output import *; rows = [{'n': i} for i in range(200_000)];"
        "n = Column(key='n', header='N');"
        + ("emit_json('x/1', {'rows': rows})" if as_json else "emit_rows([n], rows)")
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().strip() in {"{", "n"}
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


@given(st.lists(st.tuples(st.text(), st.none() | st.floats(allow_nan=False) | st.booleans()), max_size=20))
def test_tsv_always_has_as_many_cells_as_columns(rows: list[tuple[str, object]]) -> None:
    """A law: whatever text a cell has, lines and cells stay aligned."""
    lines = "".join(iter_tsv_lines(["a", "b"], [{"a": a, "b": b} for a, b in rows])).split("\n")

    assert len(lines) == len(rows) + 2
    assert all(line.count("\t") == 1 for line in lines[:-1])


def test_a_reconciled_bill_is_shown_on_a_terminal() -> None:
    """Its prediction is money, which documents keep as text; its actual value is unknown."""
    bill = {
        "part": "whole bill", "unit": "USD", "predicted": {"low": "0.0123456", "mid": "0.02", "high": "0.035"},
        "actual": None, "actual_over_predicted": None, "inside": None,
    }  # fmt: skip
    schema = "gpuplan.reconcile/1"
    result = {"schema": schema, "model": "train.py", "devices": 1.0, "accelerator": "T4", "parts": [bill]}
    text = terminal_output(
        f"from gpuplan.render.profile import emit_reconciled; emit_reconciled({result!r}, as_json=False)"
    )

    assert re.search(r"whole bill +USD +0\.01235 +0\.02 +0\.035 +–", text)
