"""Defaults from the distribution of a script, by hand and without a script."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories import make_product, make_workload
from gpuplan.errors import NoAnswerError
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.execution.sharded_memory import build_device_workload, compute_device_memory
from gpuplan.plan.question import Question
from gpuplan.plan.script_layout import count_mesh_devices, follow_script, plan_copies, select_mesh_offers
from gpuplan.plan.select import Filters, select
from gpuplan.predict.multi_device.data_parallel import load_parallel_coefficients
from gpuplan.predict.multi_device.interconnect import Link
from gpuplan.predict.multi_device.laid_out_step import compute_laid_out_link_s
from gpuplan.predict.multi_device.sharding import Sharding
from gpuplan.workload.device_layout import DeviceLayout, VariableBytes
from gpuplan.workload.model import Memory, Workload

WHOLE = VariableBytes(parameters=800, optimizer=1600, state=8)
EACH = VariableBytes(parameters=200, optimizer=400, state=8)
COPIES = DeviceLayout(devices=8, replicas=8, takes_all=False, whole=WHOLE, each=WHOLE)
DIVIDED = DeviceLayout(devices=8, replicas=2, takes_all=False, whole=WHOLE, each=EACH)


def lay_out(layout: DeviceLayout | None, **facts: object) -> Workload:
    return replace(make_workload(**facts), layout=layout, distribution="ModelParallel")


@pytest.mark.parametrize(
    ("layout", "question", "expected"),
    [
        (None, Question(), ("weak", Sharding.NONE)),
        (COPIES, Question(), ("strong", Sharding.NONE)),
        (DIVIDED, Question(), ("strong", Sharding.SCRIPT)),
        (DIVIDED, Question(scaling="weak"), ("weak", Sharding.SCRIPT)),
        (DIVIDED, Question(shard=(Sharding.NONE,)), ("strong", Sharding.NONE)),
        (COPIES, Question(shard=(Sharding.FSDP,)), ("strong", Sharding.FSDP)),
        (DIVIDED, plan_copies(Question()), ("weak", Sharding.NONE)),
    ],
)
def test_the_script_fills_in_what_the_user_left_open(
    layout: DeviceLayout | None, question: Question, expected: tuple[str, Sharding]
) -> None:
    followed = follow_script(question, lay_out(layout))

    assert (followed.scaling, *(followed.shard or ())) == expected


def test_offers_are_those_with_the_devices_of_the_mesh() -> None:
    """A chip of TPU v3 is two devices to JAX: a mesh of eight is one of v3-8, with four chips."""
    everything = select(Filters(include_local=False), catalog=load_catalog())

    left = select_mesh_offers(everything, Filters(), lay_out(DIVIDED)).offers
    assert {count_mesh_devices(one.offer) for one in left} == {8.0}
    assert {one.offer.devices for one in left if one.offer.accelerator == "TPU-v3"} == {4.0}
    for layout, filters in ((DIVIDED, Filters(devices=(4,))), (replace(COPIES, takes_all=True), Filters())):
        assert select_mesh_offers(everything, filters, lay_out(layout)) is everything
    with pytest.raises(NoAnswerError, match="over 7 devices, which none of the selected offers has"):
        select_mesh_offers(everything, Filters(), lay_out(replace(DIVIDED, devices=7)))


def test_a_device_holds_and_updates_its_part_of_the_variables() -> None:
    """A quarter of the weights, of their gradients and of their update; both passes by the share that is given."""
    memory = Memory(
        parameter_bytes=800,
        gradient_bytes=800,
        optimizer_bytes=1600,
        state_bytes=8,
        input_bytes=64,
        activation_bytes=640,
    )
    ops = tuple(make_product(flops=100.0, phase=phase, layer="dense") for phase in ("forward", "update"))
    workload = lay_out(DIVIDED, memory=memory, ops=ops)

    held = compute_device_memory(workload, Sharding.SCRIPT, 8)
    assert (held.weights, held.gradients, held.optimizer, held.state) == (200, 200, 400, 8)
    each = build_device_workload(workload, Sharding.SCRIPT, 8, pass_share=0.3)
    assert [op.flops for op in each.ops] == pytest.approx([30.0, 25.0])
    assert each.memory.fixed_bytes == held.total_bytes


def test_collectives_take_what_they_send_over_the_link_and_are_not_hidden() -> None:
    """Law: nothing sent and no message leaves waiting and start alone; twice the bytes take twice the rest."""
    parallel, link = load_parallel_coefficients()["all_reduce"], Link(kind="nvlink", bytes_per_s=100e9)

    def added_s(sent_bytes: float, messages: float = 0.0) -> float:
        return compute_laid_out_link_s(
            single_s=0.1,
            devices=8,
            sent_bytes=sent_bytes,
            messages=messages,
            link=link,
            inside="nvlink",
            parallel=parallel,
        )

    rate = 100e9 * parallel.shares.links["nvlink"]
    assert added_s(1e9) - added_s(0.0) == pytest.approx(1e9 / rate)
    assert added_s(2e9) - added_s(0.0) == pytest.approx(2 * (added_s(1e9) - added_s(0.0)))
    assert added_s(0.0, messages=10) - added_s(0.0) == pytest.approx(10 * (8.4e-6 + 7 * 3.4e-6))
