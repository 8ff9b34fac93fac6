"""This machine: when it is measured, what the measurement says of other CPUs, and that a guess wins nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest
from factories import (
    FakePredictor,
    estimate_workload,
    make_accelerator,
    make_offer,
    make_product,
    make_selection,
    make_workload,
)
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan import measured_steps as own_machine
from gpuplan.plan.cost_terms import NO_TERMS
from gpuplan.plan.estimate import Estimate
from gpuplan.plan.estimate_workload import estimate_in_context
from gpuplan.plan.measured_steps import add_measurements, load_own_step, measure_own_machine
from gpuplan.plan.question import EstimateContext, Filters, Question, Selection
from gpuplan.predict.from_profile.predictor import ProfiledPredictor, ProfileRow
from gpuplan.predict.predictor import Predictor
from gpuplan.predict.step_time import NoPrediction, StepTime
from gpuplan.profile import this_machine
from gpuplan.profile.this_machine import StepHere, build_row
from gpuplan.records import to_plain
from gpuplan.workload.model import Workload
from gpuplan.workload.options import WorkloadOptions

CATALOG = load_catalog()
CPU = replace(make_accelerator("CPU"), kind="cpu", sms_or_cores=2)
CLOUD_CPU = replace(CPU, sms_or_cores=4)
HERE = make_offer("CPU", provider="local", instance_type="this-machine", usd_per_hour=Decimal(0), vcpus=2.0)
RENTED = make_offer("T4", usd_per_hour=Decimal("0.5"))
T4 = make_accelerator("T4")


@dataclass
class FakeGuesses:
    """A second a step on everything, on CPUs by their datasheet: from 0.6 to 1.7 s."""

    def step_time(self, workload: Workload, accelerator: Any, **_: object) -> StepTime | NoPrediction:
        """Return the step."""
        found = FakePredictor().step_time(workload, accelerator)
        if accelerator.kind != "cpu" or not isinstance(found, StepTime):
            return found
        time_s = replace(found.time_s, low=0.6 * found.time_s.mid, high=1.7 * found.time_s.mid)
        return replace(found, time_s=time_s, basis="datasheet", parts_s={"compute": found.time_s.mid})


def select(*pairs: Any) -> Selection:
    return make_selection(*pairs)


def build_context(selection: Selection, predictor: Any = None) -> EstimateContext:
    return EstimateContext(
        workload=make_workload(),
        options=WorkloadOptions(),
        selection=selection,
        predictor=predictor or FakeGuesses(),
        catalog=CATALOG,
        terms=NO_TERMS,
    )


def answer(context: EstimateContext, question: Question) -> Estimate:
    return estimate_in_context(context, question)


def row(step_s: float, *, workload: Workload | None = None, is_least: bool = False) -> ProfileRow:
    step = StepHere(day="2026-11-28", took_s=5.0, step_s=None if is_least else step_s, low_s=step_s, high_s=step_s)
    found = build_row(replace(step, least_s=step_s if is_least else None), workload or make_workload(), CPU)
    assert found is not None
    return found


def test_a_cpu_by_its_datasheet_wins_only_where_nothing_else_is_asked() -> None:
    """An hour of steps, free here and 0.50 USD there: this machine would win, if its time were known."""
    both = select((HERE, CPU), (RENTED, T4))
    guess = answer(build_context(both), Question())
    alone = answer(build_context(select((HERE, CPU))), Question())
    known = estimate_workload(make_workload(), selection=both, predictor=FakePredictor(), question=Question())

    def taken(one: Estimate) -> str:
        assert one.decision.recommended is not None
        return one.offers[one.decision.recommended].offer.accelerator

    assert [taken(one) for one in (guess, alone, known)] == ["T4", "CPU", "CPU"]
    assert guess.decision.free is None
    said = ["was not timed" in one.decision.sentence for one in (guess, alone, known)]
    assert said == [True, False, False]


@pytest.mark.parametrize(
    ("filters", "usd_per_hour", "is_measured"),
    [
        ({}, "0.5", True),  # 0.6 h of waiting here cost less than an hour there
        ({"providers": ("local",)}, "0.5", True),
        ({"accelerators": ("CPU",)}, "0.5", True),
        ({}, "0", False),  # free and sooner: an hour there against twelve here
        ({"deadline_s": 2159.0}, "0.5", False),  # 0.6 h are 2,160 s
        ({"deadline_s": 2160.0}, "0.5", True),
    ],
)
def test_this_machine_is_measured_where_it_could_be_the_answer(
    monkeypatch: pytest.MonkeyPatch, filters: dict[str, Any], usd_per_hour: str, *, is_measured: bool
) -> None:
    """By hand: the least total of this machine is 0.6 h at a dollar of waiting, or 12 times that."""
    asked = []

    def measure(*given: object, **_: object) -> StepHere:
        asked.append(given)
        return StepHere(day="2026-11-28", took_s=1.0, step_s=2.0, low_s=1.9, high_s=2.1)

    monkeypatch.setattr(this_machine, "measure_step", measure)
    slow = replace(CPU, fp32_tflop_per_s=1 / 12) if usd_per_hour == "0" else CPU
    context = build_context(select((HERE, slow), (replace(RENTED, usd_per_hour=Decimal(usd_per_hour)), T4)))
    limits = {"deadline_s": filters.pop("deadline_s")} if "deadline_s" in filters else {}
    question = Question(filters=Filters(**filters), **limits)
    measure_own_machine(context, answer(context, question), question, model="train.py", argv=())

    assert bool(asked) is is_measured


def test_what_was_measured_replaces_the_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    """MNIST's work on the packaged model: 2 s a step, from 1.9 to 2.1, is the step of this machine."""
    step = StepHere(day="2026-11-28", took_s=1.0, step_s=2.0, low_s=1.9, high_s=2.1)
    monkeypatch.setattr(this_machine, "measure_step", lambda *_, **__: step)
    selection = own_selection()
    context = replace(build_context(selection, Predictor.load()), workload=make_workload(ops=(make_product(),)))
    question = Question(filters=Filters(providers=("local",)))
    found = measure_own_machine(context, answer(context, question), question, model="train.py", argv=())

    assert found is not None
    (one,) = answer(found, question).offers
    assert one.device_estimate.step_time_s is not None
    assert one.device_estimate.step_time_s.mid == pytest.approx(2.0)
    assert one.device_estimate.step_time_s.high == pytest.approx(2.1)
    assert one.device_estimate.shared_json["basis"] == "measured"
    assert "measured: a few steps on this machine, 2026-11-28" in one.device_estimate.notes[0]
    again = answer(found, question)
    assert measure_own_machine(found, again, question, model="train.py", argv=()) is None, "it is known"


@pytest.mark.parametrize(
    ("kept", "is_tried"),
    [
        ({"day": "2026-11-27"}, True),
        ({"day": "2026-11-28"}, False),
        ({"day": "2026-11-27", "least_s": 5.0}, False),
    ],
)
def test_a_measurement_in_vain_is_tried_again_another_day(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, kept: dict[str, Any], *, is_tried: bool
) -> None:
    """A step that takes over 5 s is known to; a process that failed on the 27th may do better on the 28th."""
    monkeypatch.setenv("GPUPLAN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(this_machine, "get_day", lambda: "2026-11-28")
    asked = []
    monkeypatch.setattr(this_machine, "measure_step", lambda *given, **_: asked.append(given))
    context = build_context(select((HERE, CPU)))
    keep(context.workload, StepHere(took_s=60.0, **kept))
    question = Question(filters=Filters(providers=("local",)))

    assert measure_own_machine(context, answer(context, question), question, model="train.py", argv=()) is None
    assert bool(asked) is is_tried


def test_a_step_of_a_busy_machine_is_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """3 s while others used half of it, 2 s once it is quiet: the step is 2 s, and the 3 s are named no more."""
    monkeypatch.setenv("GPUPLAN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(this_machine, "measure_others_share", lambda: 0.0)
    quiet = StepHere(day="2026-11-28", took_s=1.0, step_s=2.0, low_s=1.9, high_s=2.1)
    monkeypatch.setattr(this_machine, "measure_step", lambda *_, **__: quiet)
    selection, workload = own_selection(), make_workload(ops=(make_product(),))
    (own,) = selection.offers
    assert own.accelerator is not None
    busy = replace(quiet, step_s=3.0, low_s=2.9, high_s=3.1, others_share=0.5)
    monkeypatch.setattr(this_machine, "load_step", lambda *_: busy)
    known = load_own_step(workload, selection)
    predictor = add_measurements(Predictor.load(), known, CATALOG, selection)
    context = replace(build_context(selection, predictor), workload=workload)
    question = Question(filters=Filters(providers=("local",)))
    (before,) = answer(context, question).offers
    found = measure_own_machine(context, answer(context, question), question, model="train.py", argv=())

    assert "of which others used 50%" in before.device_estimate.notes[0]
    assert found is not None
    (one,) = answer(found, question).offers
    assert one.device_estimate.step_time_s is not None
    assert one.device_estimate.step_time_s.mid == pytest.approx(2.0)
    assert one.device_estimate.step_time_s.high == pytest.approx(2.1)
    assert "others" not in one.device_estimate.notes[0]


def keep(workload: Workload, step: StepHere) -> None:
    """Write what was measured of a step where it is looked for."""
    path = this_machine._find_path(workload, CPU)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(to_plain(step)), encoding="utf-8")


def own_selection() -> Selection:
    from gpuplan.plan.question import select as select_offers

    return select_offers(Filters(providers=("local",)), catalog=CATALOG)


def test_a_step_is_kept_by_work_and_machine(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same step is found again; another batch, precision or number of cores is another step."""
    monkeypatch.setenv("GPUPLAN_CACHE_DIR", str(tmp_path))
    step = StepHere(day="2026-11-28", took_s=1.0, step_s=2.0, low_s=1.9, high_s=2.1)
    workload = make_workload()
    keep(workload, step)

    assert this_machine.load_step(workload, CPU) == step
    assert this_machine.load_step(replace(workload, epochs=1, notes=("x",)), CPU) == step
    others = (replace(workload, batch_size=64), replace(workload, precision="mixed_bfloat16"))
    assert [this_machine.load_step(one, CPU) for one in others] == [None, None]
    assert this_machine.load_step(workload, CLOUD_CPU) is None
    (kept,) = load_own_step(workload, select((HERE, CPU)))
    assert (kept.step_s, kept.accelerator) == (2.0, "CPU")
    assert load_own_step(workload, select((RENTED, T4))) == ()


def test_the_ratio_here_corrects_other_cpus() -> None:
    """4 s were measured where the model says 1: a second elsewhere is 4 s, as is another phase of the model."""
    predictor = ProfiledPredictor(FakeGuesses(), [row(4.0)], own_cpu=CPU, accelerators={})  # type: ignore[arg-type]
    frozen = make_workload(trainable_parameters=1)
    other = predictor.step_time(make_workload(), CLOUD_CPU)
    phase = predictor.step_time(frozen, CPU)
    stranger = predictor.step_time(make_workload(parameters=1), CLOUD_CPU)

    for found in (other, phase):
        assert isinstance(found, StepTime)
        assert (found.time_s.low, found.time_s.mid, found.time_s.high) == pytest.approx((2.4, 4.0, 6.8))
        assert (found.basis, found.note) == ("modelled", "corrected by 4.0x, as measured on this machine")
    assert isinstance(stranger, StepTime)
    assert (stranger.basis, stranger.time_s.mid) == ("datasheet", pytest.approx(1.0))
    gpu = predictor.step_time(make_workload(), T4)
    assert isinstance(gpu, StepTime)
    assert gpu.time_s.mid == pytest.approx(1.0), "a CPU says nothing of GPUs"


def test_a_step_that_was_not_waited_for_is_a_lower_bound() -> None:
    """Over 5 s where the model says 1 (0.6 to 1.7): 5 to 8.5 s, still a guess."""
    rows = [row(5.0, is_least=True)]
    predictor = ProfiledPredictor(FakeGuesses(), rows, own_cpu=CPU, accelerators={})  # type: ignore[arg-type]
    found = predictor.step_time(make_workload(), CPU)
    elsewhere = predictor.step_time(make_workload(), CLOUD_CPU)

    assert isinstance(found, StepTime)
    assert (found.time_s.low, found.time_s.mid, found.time_s.high) == pytest.approx((5.0, 5.0, 8.5))
    assert (found.basis, found.note) == ("datasheet", "a step takes over 5 s on this machine")
    assert isinstance(elsewhere, StepTime)
    assert elsewhere.time_s.mid == pytest.approx(1.0)


def test_measurements_add_up() -> None:
    """A predictor keeps those that it has."""
    selection = select((HERE, CPU))
    one = add_measurements(Predictor.load(), (row(1.0),), CATALOG, selection)
    two = add_measurements(one, (row(2.0),), CATALOG, selection)

    assert isinstance(two, ProfiledPredictor)
    assert [known.step_s for known in two.measurements] == [1.0, 2.0]
    assert add_measurements(one, (), CATALOG, selection) is one
    assert own_machine.PROVIDER == "local"
