"""What would make a training faster on the machine that is taken, with numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from factories import (
    FakePredictor,
    estimate_workload,
    make_accelerator,
    make_offer,
    make_product,
    make_selection,
    make_workload,
)
from gpuplan.plan.estimate import Estimate
from gpuplan.plan.improvements import Improvement, convert_to_mixed_precision
from gpuplan.plan.question import Question
from gpuplan.predict.step_time import NoPrediction, StepTime
from gpuplan.units import Interval
from gpuplan.workload.model import Workload

T4 = make_accelerator("T4")


class FakeMixedPredictor(FakePredictor):
    """Takes 1 s a step of 32 samples, a quarter less in 16 bits, and 3.6 s for four times the batch."""

    def step_time(self, workload: Workload, accelerator: Any, **_: object) -> StepTime | NoPrediction:
        """Return the time of one step."""
        mid = {"float32": 1.0, "mixed_float16": 0.75}[workload.precision] * {32: 1.0, 128: 3.6}[
            workload.batch_size
        ]
        return StepTime(time_s=Interval(low=mid, mid=mid, high=mid), basis="modelled", limiter="compute")


def ask(workload: Workload, predictor: FakePredictor, *offers: Any, **question: Any) -> Estimate:
    """Return the estimate on offers of T4s."""
    selection = make_selection(*((offer, T4) for offer in offers or (make_offer(),)))
    return estimate_workload(workload, selection=selection, predictor=predictor, question=Question(**question))


def test_changes_worth_15_percent_are_named() -> None:
    """1 / 0.75 = 1.33 times in 16 bits; four times the batch in 3.6 times the time is 1.11 times: not worth it."""
    found = ask(make_workload(), FakeMixedPredictor()).decision.improvements

    assert [one.change for one in found] == ["mixed_float16"]
    assert abs(found[0].speedup - 4.0 / 3.0) < 1e-9
    assert found[0].describe() == "mixed_float16: 1.3x"


def test_a_larger_batch_is_called_another_training() -> None:
    """The predictor takes a second whatever the batch: four times the samples per second."""
    found = ask(make_workload(precision="mixed_float16"), FakePredictor()).decision.improvements

    assert [(one.change, one.speedup, one.another_training) for one in found] == [("batch 128", 4.0, True)]
    assert found[0].describe() == "batch 128: 4.0x, another training"


def test_nothing_is_named_for_inference_or_several_phases() -> None:
    """A prediction has no precision to train in; of several phases it is not known which would gain."""
    frozen = make_workload(fit_call=0)
    several = make_workload(fit_call=1, further=(frozen,))

    for workload in (make_workload(mode="infer"), several):
        assert ask(workload, FakePredictor()).decision.improvements == ()


def test_mixed_precision_halves_the_bytes_of_all_but_the_update() -> None:
    """A product that moves 12 MiB moves 6 in bfloat16; the update of float32 variables stays."""
    product, update = make_product(fused_bytes_read=8.0), make_product(phase="update")
    mixed = convert_to_mixed_precision(make_workload(ops=(product, update)), "bfloat16")

    assert mixed.precision == "mixed_bfloat16"
    assert mixed.ops == (
        replace(product, dtype="bfloat16", bytes_read=2.0**22, bytes_written=2.0**21, fused_bytes_read=4.0),
        update,
    )


def test_distributing_a_script_is_named_where_it_costs_less_in_total() -> None:
    """One device takes 3,600 s of a machine of four at $1.2 an hour, four 900 s: less money and less waiting."""

    class FakeSharingPredictor(FakePredictor):
        """Takes a second a step of 32 samples, and in proportion for the part of one of several devices."""

        def step_time(self, workload: Workload, accelerator: Any, **_: object) -> StepTime | NoPrediction:
            mid = workload.batch_size / 32
            return StepTime(time_s=Interval(low=mid, mid=mid, high=mid), basis="modelled", limiter="compute")

    one, four = make_offer(), make_offer(instance_type="four_T4", devices=4.0, usd_per_hour=Decimal("1.2"))
    script = make_workload(model="train.py", precision="mixed_float16")
    answer = ask(script, FakeSharingPredictor(), one, four)
    row = answer.decision.recommended
    assert row is not None

    assert answer.offers[row].offer == one
    assert answer.decision.improvements == (
        Improvement(change="keras.distribution.DataParallel() on 4× T4 (15 min)", speedup=4.0),
    )
    dear = replace(four, usd_per_hour=Decimal("20.0"))
    assert ask(script, FakeSharingPredictor(), one, dear).decision.improvements == ()
