"""`--own`: a machine that one has; `--measured`: a step time that one knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import gpuplan as package
import pytest
from gpuplan.errors import UsageError
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.own_machine import parse_step_times

Run = Callable[..., Any]


def ask(gpuplan: Run, *words: str) -> dict[str, Any]:
    """Return the document of an estimate."""
    done = gpuplan("estimate", *words, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


@pytest.mark.parametrize(
    ("flags", "devices", "usd_per_hour"),
    [
        ((), 1, "0.085"),  # a board of 350 W and 150 W around it, at $0.17 per kWh
        (("--devices", "2", "--assume", "usd_per_kwh=0.34"), 2, "0.289"),  # (700 + 150) W at $0.34
        (("--assume", "power_w=1000"), 1, "0.17"),
    ],
)
def test_an_own_machine_costs_its_electricity(
    gpuplan: Run, saved: str, flags: tuple[str, ...], devices: float, usd_per_hour: str
) -> None:
    """One offer, which is taken; its price is worked out by hand."""
    document = ask(gpuplan, saved, "--own", "rtx 3090", *flags)
    (offer,) = document["offers"]

    assert (offer["provider"], offer["accelerator"], offer["devices"]) == ("own", "RTX3090", devices)
    assert Decimal(offer["usd_per_hour"]) == Decimal(usd_per_hour)
    assert document["decision"]["recommended"]["offer"] == 0
    assert document["decision"]["sentence"].startswith(f"Take your {'2x' if devices == 2 else ''}RTX3090: ")


def test_an_own_machine_among_others(gpuplan: Run, saved: str) -> None:
    """Named accelerators or providers come beside it."""
    by_chip = ask(gpuplan, saved, "--own", "RTX3090", "--accelerator", "L4")["offers"]
    by_provider = ask(gpuplan, saved, "--own", "RTX3090", "--provider", "lambda")["offers"]

    assert {one["accelerator"] for one in by_chip} == {"RTX3090", "L4"}
    assert "own" in {one["provider"] for one in by_chip}
    assert {one["provider"] for one in by_provider} == {"own", "lambda"}


def test_an_own_machine_of_unknown_power(gpuplan: Run, saved: str) -> None:
    """No datasheet states the power of a TPU v5e; the hint can be typed."""
    done = gpuplan("estimate", saved, "--own", "TPU-v5e")

    assert (done.code, done.out) == (2, "")
    assert "the power of TPU-v5e is not known" in done.err
    assert ask(gpuplan, saved, "--own", "TPU-v5e", "--assume", "power_w=450")["offers"]


def test_a_stated_step_time_is_measured_and_corrects_the_others(gpuplan: Run, saved: str) -> None:
    """Twice the time of the model on a T4: measured there within a tenth, and an L4 is slower, at most twice."""
    chips = ("--accelerator", "T4", "--accelerator", "L4", "--devices", "1")
    plain = {one["accelerator"]: one for one in ask(gpuplan, saved, *chips)["offers"]}
    step_s = 2 * plain["T4"]["step_time_s"]["mid"]
    stated = {
        one["accelerator"]: one for one in ask(gpuplan, saved, *chips, "--measured", f"T4={step_s:.9f}s")["offers"]
    }

    assert stated["T4"]["basis"] == "measured"
    expected = {"low": 0.9 * step_s, "mid": step_s, "high": 1.1 * step_s}
    assert stated["T4"]["step_time_s"] == pytest.approx(expected, rel=1e-6)
    assert stated["L4"]["basis"] == "modelled"
    ratio = stated["L4"]["step_time_s"]["mid"] / plain["L4"]["step_time_s"]["mid"]
    assert 1.1 < ratio < 2.0


def test_step_times_in_python(saved: str) -> None:
    """A mapping in seconds is the same as the flag."""
    found = package.estimate(saved, accelerators=["T4"], devices=[1], measured={"T4": 0.12})

    assert {one.device_estimate.step_time_s.mid for one in found.offers} == {0.12}


def test_step_times_are_parsed() -> None:
    """By hand: an alias of the name, milliseconds and seconds."""
    names = load_catalog().names

    assert parse_step_times(["tesla t4=120ms", "L4=.5s"], names) == {"T4": 0.12, "L4": 0.5}


@pytest.mark.parametrize("text", ["T4", "T4=120", "T4=fast", "=120ms", "T4=0ms", "Z9=120ms"])
def test_wrong_step_times(text: str) -> None:
    """Errors with a way out."""
    with pytest.raises(UsageError) as caught:
        parse_step_times([text], load_catalog().names)
    assert caught.value.hint
