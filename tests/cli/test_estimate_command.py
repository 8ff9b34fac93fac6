"""`gpuplan estimate` on a real traced script, a real catalog and the real predictor."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from gpuplan.estimate_document import read_offers

Run = Callable[..., "object"]


def test_json_of_the_whole_catalog_keeps_the_contract(gpuplan: Run, saved: str) -> None:
    """Every offer of the schema; every bill adds up; each recommendation is an offer; under 3 MB without bills."""
    done = gpuplan("estimate", saved, "--json", "--breakdown")
    document = json.loads(done.out)
    schema = json.loads(files("gpuplan.schemas").joinpath("gpuplan.estimate.json").read_text())

    assert done.code == 0
    jsonschema.validate(document, schema)
    assert len(document["offers"]) > 3000
    for offer in document["offers"]:
        if offer["cost_usd"] is not None:
            assert sum(Decimal(line["usd"]) for line in offer["bill"]) == Decimal(offer["cost_usd"]["mid"])
    assert len(gpuplan("estimate", saved, "--json").out.encode()) < 3_000_000
    cheapest = document["recommendation"]["cheapest"]
    assert document["offers"][cheapest["offer"]]["instance_type"] == cheapest["instance_type"]


def test_filters_narrow_the_offers(gpuplan: Run, saved: str) -> None:
    """Only what was asked for, in any spelling of the accelerator."""
    done = gpuplan(
        "estimate",
        saved,
        "--json",
        "--accelerator",
        "nvidia t4",
        "--provider",
        "aws",
        "--region",
        "us-east-1",
        "--purchase",
        "on-demand",
        "--devices",
        "1",
    )
    offers = json.loads(done.out)["offers"]

    assert {(o["provider"], o["accelerator"], o["region"], o["purchase"], o["devices"]) for o in offers} == {
        ("aws", "T4", "us-east-1", "on_demand", 1.0)
    }
    assert "g4dn.xlarge" in {o["instance_type"] for o in offers}


def test_this_machine_is_an_offer_at_no_charge(gpuplan: Run, saved: str) -> None:
    """`--provider local` answers for the machine at hand."""
    (offer,) = json.loads(gpuplan("estimate", saved, "--json", "--provider", "local").out)["offers"]

    assert Decimal(offer["cost_usd"]["mid"]) == 0
    assert offer["train_time_s"]["mid"] > 0


def test_retired_offers_are_answered_where_they_are_named(gpuplan: Run, saved: str) -> None:
    """Without a filter only what can be rented; K80, which nobody rents out any more, where it is named."""
    default = json.loads(gpuplan("estimate", saved, "--json").out)["offers"]
    named = json.loads(gpuplan("estimate", saved, "--json", "--accelerator", "K80").out)["offers"]

    assert {o["status"] for o in default} == {"active", "legacy"}
    assert {o["accelerator"] for o in named} == {"K80"}
    assert {o["status"] for o in named} <= {"retired", "historical"}


def test_twice_the_epochs_are_twice_the_steps(gpuplan: Run, saved: str) -> None:
    """Law, end to end, on one offer."""
    steps = []
    for epochs in ("3", "6"):
        done = gpuplan("estimate", saved, "--json", "--samples", "999", "--epochs", epochs, "--provider", "vast")
        steps.append(read_offers(json.loads(done.out))[0]["steps"])

    assert steps[1] == 2 * steps[0]


def test_a_pipe_gets_tsv(gpuplan: Run, saved: str) -> None:
    """Standard output is data, cheapest first; standard error is silent."""
    done = gpuplan("estimate", saved, "--provider", "aws", "--accelerator", "T4")
    header, *rows = [line.split("\t") for line in done.out.splitlines()]
    costs = [float(row[header.index("cost_usd_mid")]) for row in rows]

    assert (done.code, done.err) == (0, "")
    assert costs == sorted(costs)


def test_the_plan_file_is_the_json(gpuplan: Run, saved: str, tmp_path: Path) -> None:
    """`-o plan.json` keeps what `--json` prints, with the permissions of an ordinary file."""
    plan = tmp_path / "plan.json"
    done = gpuplan("estimate", saved, "--json", "--provider", "lambda", "-o", str(plan))

    assert plan.read_text() == done.out
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]
    assert stat.S_IMODE(plan.stat().st_mode) & stat.S_IRUSR


def test_the_plan_files_folder_is_checked_first(gpuplan: Run, tmp_path: Path) -> None:
    """A path that cannot be written is found before the model is even looked at."""
    done = gpuplan("estimate", "missing.py", "-o", str(tmp_path / "none" / "plan.json"))

    assert done.code == 2
    assert "there is no folder" in done.err


def test_a_deadline_that_nothing_meets_is_code_3(gpuplan: Run, saved: str) -> None:
    """The rows are still printed, and the nearest offer is named."""
    done = gpuplan("estimate", saved, "--provider", "lambda", "--deadline", "1s")

    assert done.code == 3
    assert done.out.startswith("provider\t")
    assert "No: nothing is likely to keep a deadline of" in done.err


def test_a_budget_that_nothing_keeps_is_code_3(gpuplan: Run, saved: str) -> None:
    """A micro-dollar buys nothing; the cheapest offer is named."""
    done = gpuplan("estimate", saved, "--provider", "lambda", "--budget", "0.000001")

    assert done.code == 3
    assert "The cheapest is " in done.err


def test_deadline_and_budget_are_kept(gpuplan: Run, saved: str) -> None:
    """An offer recommended within a limit meets it at the upper bound of its interval."""
    done = gpuplan("estimate", saved, "--json", "--deadline", "2d", "--budget", "500")
    document = json.loads(done.out)
    chosen = document["recommendation"]

    assert done.code == 0
    assert document["offers"][chosen["within_deadline"]["offer"]]["train_time_s"]["high"] <= 2 * 86_400
    assert Decimal(document["offers"][chosen["within_budget"]["offer"]]["cost_usd"]["high"]) <= 500


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--accelerator", "A1O0"], (2, "unknown accelerator `A1O0`", "did you mean `A10`")),
        (["--provider", "awz"], (2, "unknown provider `awz`", "did you mean `aws`")),
        (["--region", "us-esat-1"], (2, "unknown region `us-esat-1`", "`us-east-1`")),
        (["--precision", "float33"], (2, "unknown precision `float33`", "did you mean `float32`")),
        (["--batch-size", "0"], (2, "--batch-size must be a whole number of at least 1", "--batch-size 1")),
        (["--epochs", "1", "--steps", "1"], (2, "`--epochs` and `--steps` both set", "give only one of them")),
        (["--deadline", "soon"], (2, "`--deadline soon` is not a duration", "`--deadline 12h`")),
        (["--budget", "0"], (2, "--budget must be above zero", "--budget 20")),
        (["--devices", "0"], (2, "--devices must be above zero", "--devices 1")),
        (["--devices", "77"], (3, "no offer matches `--devices 77", "remove or widen")),
        (["-o", "/"], (2, "is a folder", "give a file name")),
    ],
)
def test_bad_flags(gpuplan: Run, saved: str, flags: list[str], expected: tuple[int, str, str]) -> None:
    """One line on what and where, one on the way out, the right exit code, no data."""
    code, message, hint = expected
    done = gpuplan("estimate", saved, *flags)

    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("error: ")
    assert message in done.err.splitlines()[0]
    assert hint in done.err.split("\nhint: ")[1]


def test_settings_files_count_where_no_flag_does(
    gpuplan: Run, saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`gpuplan.toml` narrows the providers; a flag goes before it."""
    (tmp_path / "gpuplan.toml").write_text('providers = ["lambda"]\n')
    monkeypatch.chdir(tmp_path)

    by_file = json.loads(gpuplan("estimate", saved, "--json").out)["offers"]
    by_flag = json.loads(gpuplan("estimate", saved, "--json", "--provider", "vast").out)["offers"]

    assert {o["provider"] for o in by_file} == {"lambda"}
    assert {o["provider"] for o in by_flag} == {"vast"}


def test_a_terminal_gets_a_table(saved: str) -> None:
    """A real pseudo-terminal of 100 columns: table, trust and recommendation; nothing is cut off."""
    pty = pytest.importorskip("pty", reason="no pseudo-terminals on this system")
    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": "100", "LINES": "50", "NO_COLOR": "1", "TERM": "xterm"}
    command = [sys.executable, "-m", "gpuplan", "estimate", saved]
    with subprocess.Popen(command, stdout=slave, stderr=subprocess.PIPE, env=environment) as child:
        os.close(slave)
        chunks = []
        try:
            while chunk := os.read(master, 65_536):
                chunks.append(chunk)
        except OSError:  # the other end closed
            pass
        assert child.stderr is not None
        stderr = child.stderr.read()
    os.close(master)
    text = b"".join(chunks).decode()

    assert (child.returncode, stderr) == (0, b"")
    assert "more offers: --all" in text
    assert "\r\nhere " in text
