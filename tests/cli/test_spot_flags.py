"""Assumptions on spot machines, on every command that prices them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from gpuplan.estimate_document import read_offers

Run = Callable[..., "object"]
KNOWN = (
    "--assume", "spot_life_h=2", "--assume", "spot_checkpoint_every_s=600", "--assume", "spot_checkpoint_s=30",
    "--assume", "spot_restart_s=300",
)  # fmt: skip
V100 = ("--provider", "aws", "--accelerator", "V100-16GB", "--devices", "1")


def test_estimate_takes_what_is_known(gpuplan: Run, saved: str) -> None:
    """Lives, checkpoints and restarts are those that were stated, and the answer says that they were given."""
    done = gpuplan(
        "estimate", saved, "--epochs", "50000", *V100, "--purchase", "spot", *KNOWN, "--json", "--breakdown"
    )
    document = json.loads(done.out)

    assert document["options"]["spot"] == {
        "life_s": 7200.0,
        "checkpoint_every_s": 600.0,
        "checkpoint_s": 30.0,
        "restart_s": 300.0,
    }
    assert read_offers(document)
    for offer in read_offers(document):
        spot = offer["spot"]
        assert (spot["hours_to_preemption"], spot["basis"], spot["source"]) == (
            2.0,
            "given",
            "--assume spot_life_h",
        )
        assert (spot["checkpoint_s"], spot["restart_s"]) == (30.0, 300.0)
        assert 590.0 < spot["checkpoint_interval_s"] <= 600.0  # equal segments, none longer


def test_shorter_lives_cost_more(gpuplan: Run, saved: str) -> None:
    """Law: with a shorter lifetime, the same machine is never cheaper or faster."""

    def cost(life_h: float) -> list[float]:
        done = gpuplan(
            "estimate",
            saved,
            "--epochs",
            "5000",
            *V100,
            "--purchase",
            "spot",
            "--assume",
            f"spot_life_h={life_h}",
            "--json",
        )
        rows = sorted(read_offers(json.loads(done.out)), key=lambda row: (row["instance_type"], row["region"]))
        return [float(row["cost_usd"]["mid"]) for row in rows]

    short, long = cost(0.5), cost(20)
    assert short
    assert all(a > b for a, b in zip(short, long, strict=True))


def test_breakeven_and_sweep_know_them_too(gpuplan: Run, saved: str) -> None:
    """The same assumptions reach the other commands: three minutes of life cost more than a week."""
    dollars = {}
    for life_h in ("0.05", "168"):
        done = gpuplan(
            "breakeven",
            saved,
            "--epochs",
            "5000",
            "--against",
            "aws:p3.2xlarge:spot",
            "--assume",
            f"spot_life_h={life_h}",
            "--json",
        )
        (way,) = json.loads(done.out)["ways"]
        dollars[life_h] = float(way["total_usd"])
    swept = gpuplan(
        "sweep",
        saved,
        "--epochs",
        "5000",
        "--batch-sizes",
        "128",
        "--precisions",
        "float32",
        *V100,
        "--purchase",
        "spot",
        *KNOWN,
        "--json",
    )

    assert dollars["0.05"] > dollars["168"]
    assert swept.code == 0
    assert json.loads(swept.out)["points"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--assume", "spot_life_h=5h"), "`--assume spot_life_h=5h`: `5h` is not a number"),
        (("--assume", "spot_checkpoint_every_s=0"), "`--assume spot_checkpoint_every_s=0` must be above zero"),
    ],
)
def test_what_is_no_time_is_told(gpuplan: Run, saved: str, flags: tuple[str, str], message: str) -> None:
    """One line with the flag, exit code 2."""
    done = gpuplan("estimate", saved, *flags)

    assert done.code == 2
    assert message in done.err
