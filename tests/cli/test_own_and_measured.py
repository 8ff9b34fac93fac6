"""`--own`: a machine that one has; `--measured`: a step time that one knows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import gpuplan as package
import pytest
from gpuplan.errors import UsageError
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.estimate_model import estimate_model
from gpuplan.plan.estimate_request import EstimateRequest
from gpuplan.plan.measured_steps import format_step_time, parse_step_times
from gpuplan.plan.request import resolve_request

Run = Callable[..., Any]
EXAMPLES = Path(__file__).parents[2] / "examples"


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

    found = parse_step_times(["tesla t4=120ms", "L4=.5s"], names)
    assert [one[1:] for one in found] == [("T4", 0.12, 0.012, None, None), ("L4", 0.5, 0.05, None, None)]


@pytest.mark.parametrize("text", ["T4", "T4=120", "T4=fast", "=120ms", "T4=0ms", "Z9=120ms"])
def test_wrong_step_times(text: str) -> None:
    """Errors with a way out."""
    with pytest.raises(UsageError) as caught:
        parse_step_times([text], load_catalog().names)
    assert caught.value.hint


def test_the_line_of_a_profile_is_parsed() -> None:
    """By hand: 41.2 ms and 0.4 ms at batch 128, and a digest."""
    (found,) = parse_step_times(["T4=41.2+-0.4ms@128:3f9a1c"], load_catalog().names)

    assert (found.accelerator, found.batch_size, found.work) == ("T4", 128, "3f9a1c")
    assert (found.step_s, found.error_s) == pytest.approx((0.0412, 0.0004))


def write_profile(saved: str, **facts: Any) -> dict[str, Any]:
    """Return a profile of a saved workload on a T4: 41.2 ms, between 40.8 and 41.6."""
    fit = {"median_s": 0.0412, "low_s": 0.0408, "high_s": 0.0416}
    workload = json.loads(Path(saved).read_text(encoding="utf-8"))
    row = {"status": "measured", "fit": fit, "workload": 0, "batch_size": workload["batch_size"]}
    return {"accelerator": "T4", "devices": 1, "rows": [row], "workloads": [workload], **facts}


def test_a_profile_prints_what_an_estimate_takes(gpuplan: Run, saved: str) -> None:
    """The measured step within 3 %, as of the profile itself; at twice the batch it takes longer."""
    line = format_step_time(write_profile(saved))
    assert line.startswith("T4=41.2+-0.4ms@128:")
    chips = ("--accelerator", "T4", "--devices", "1", "--measured", line)
    (same, *_), script = ask(gpuplan, saved, *chips)["offers"], str(EXAMPLES / "mnist_cnn.py")
    (larger, *_) = ask(gpuplan, script, "--batch-size", "256", *chips)["offers"]

    expected = {"low": 0.97 * 0.0412, "mid": 0.0412, "high": 1.03 * 0.0412}
    assert same["step_time_s"] == pytest.approx(expected, rel=1e-5)
    assert {same["basis"], larger["basis"]} == {"measured"}
    assert 0.0412 < larger["step_time_s"]["mid"] <= 0.0824 * 1.001


def test_the_line_of_another_model_is_refused(gpuplan: Run, saved: str) -> None:
    """In half precision it is another work."""
    line = format_step_time(write_profile(saved))
    script = str(EXAMPLES / "mnist_cnn.py")
    done = gpuplan("estimate", script, "--precision", "mixed_float16", "--measured", line)

    assert (done.code, done.out) == (2, "")
    assert "is of another model, precision or mode" in done.err
    assert f"gpuplan profile {script} --on colab" in done.err


def test_a_step_that_waits_for_its_input_counts_without_the_wait(saved: str) -> None:
    """As for a profile: 20 ms of computing in a step of 41.2 ms."""
    profile = write_profile(saved)
    profile["rows"][0] |= {"limit": "input", "step": {"median_s": 0.02}}

    assert format_step_time(profile).startswith("T4=20+-0ms@128:")


@pytest.mark.parametrize("facts", [{"accelerator": "CPU"}, {"accelerator": None}, {"devices": 2}, {"rows": []}])
def test_no_line_of_what_others_cannot_use(saved: str, facts: dict[str, Any]) -> None:
    """A CPU corrects CPUs only; a step of several devices is not one device's."""
    assert format_step_time(write_profile(saved, **facts)) == ""


def describe(saved: str, **asked: Any) -> tuple[str, dict[str, float]]:
    """Return what a measurement would make of an estimate, and the ratio of the ends of each step."""
    request = EstimateRequest(devices=[1], purchase="on-demand", **asked)
    found = estimate_model(saved, resolve_request(request), shown=True)
    steps = {one.offer.accelerator: one.device_estimate.step_time_s for one in found.offers}
    return found.decision.measuring, {name: step.high / step.low for name, step in steps.items()}


def test_the_screen_says_what_a_measurement_would_give(saved: str) -> None:
    """The numbers are those of the estimate as it is, and of one with the modelled time of the T4 as measured."""
    chips, long = ["T4", "L4"], {"epochs": 5000, "accelerators": ["L4"]}
    plain = package.estimate(saved, accelerators=chips, devices=[1])
    t4 = next(one for one in plain.offers if one.offer.accelerator == "T4").device_estimate.step_time_s
    said, before = describe(saved, **long)
    unsaid, after = describe(saved, **long, measured=[f"T4={t4.mid:.9f}s"])

    shown = [int(text) for text in re.findall(r"±(\d+) %", said)]
    expected = [100 * (before["L4"] ** 0.5 - 1), 100 * (after["L4"] ** 0.5 - 1)]
    assert shown == pytest.approx(expected, abs=0.51)
    assert before["L4"] > 1.5
    assert said.endswith(f"`gpuplan profile {EXAMPLES / 'mnist_cnn.py'} --on colab`.")
    assert unsaid == ""


def test_a_short_run_is_not_worth_a_measurement(saved: str) -> None:
    """Nor is a CPU, of which a T4 says nothing."""
    assert describe(saved, epochs=1, accelerators=["L4"])[0] == ""
    assert describe(saved, epochs=5000, accelerators=["CPU"], providers=["aws"])[0] == ""
