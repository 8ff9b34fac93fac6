"""Time of a step on the devices of an offer: replicas of the model, shards of it, or tensor parallelism."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..predict.multi_device.divided_step import add_replicas, scale_to_divided_devices
from ..predict.multi_device.interconnect import build_host_spec
from ..predict.multi_device.sharded_step import scale_to_sharded_devices
from ..predict.multi_device.sharding import Sharding
from ..predict.step_time import NoPrediction, StepTime
from .execution.run_length import count_replicas
from .execution.sharded_memory import build_traffic
from .script_layout import count_mesh_devices

if TYPE_CHECKING:
    from ..offers.rows import Accelerator, Offer
    from ..predict.step_time import StepPredictor
    from ..workload.collective import Collective
    from ..workload.model import Workload
    from .select import OfferContext

PLAN_COPIES = "`--shard none` plans a copy of the model on each device"


def predict_step_on_devices(
    selected: OfferContext,
    accelerator: Accelerator,
    predictor: StepPredictor,
    *,
    whole: Workload,
    each: Workload,
    sharding: Sharding,
) -> StepTime | NoPrediction:
    """Return the step on an offer's devices.

    Args:
        selected: Offer with its links.
        accelerator: Each of its devices.
        predictor: Predictor of step times.
        whole: The model at the batch of one device or replica.
        each: The work of one device.
        sharding: What the devices hold in parts.
    """
    offer, machine = selected.offer, build_host_spec(selected.links)
    if sharding == Sharding.NONE:
        return predictor.step_time(
            each, accelerator, devices=offer.devices, machine=machine, hosts=offer.hosts
        )
    collectives = _list_collectives(each, sharding, selected.offer) if sharding.divides_products else ()
    if isinstance(collectives, NoPrediction):
        return collectives
    single = predictor.step_time(each, accelerator)
    if isinstance(single, NoPrediction):
        return single
    if sharding.divides_products:
        return scale_to_divided_devices(
            single,
            sharding=sharding,
            collectives=collectives,
            accelerator=accelerator,
            devices=offer.devices,
            machine=machine,
            hosts=offer.hosts,
        )
    return scale_to_sharded_devices(
        single,
        traffic=build_traffic(whole, sharding),
        accelerator=accelerator,
        devices=count_replicas(offer.devices),
        machine=machine,
        hosts=offer.hosts,
    )


def _list_collectives(
    each: Workload, sharding: Sharding, offer: Offer
) -> tuple[Collective, ...] | NoPrediction:
    """Return the collectives of a step whose products devices share, or why it cannot run on an offer."""
    divided = each.divided
    if divided is None:
        return NoPrediction(f"no variable of the model can be divided as `{sharding}`", hint=PLAN_COPIES)
    if divided.is_ambiguous:
        return NoPrediction(
            "the layout divides variables along the axis of the samples, and says nothing of activations: XLA may "
            "gather the batch instead, with more work and memory than is shown",
            hint="give outputs of layers a layout (`layout_map['.*/output'] = ('batch',)`)",
        )
    wanted, found = divided.layout.devices, count_mesh_devices(offer)
    if found != offer.devices:
        return NoPrediction(
            f"a layout over the cores of {offer.accelerator} chips is not modelled", hint=PLAN_COPIES
        )
    if found % wanted or (sharding == Sharding.SCRIPT and wanted != found):
        who = "the script lays its model out" if sharding == Sharding.SCRIPT else f"`{sharding}` divides it"
        return NoPrediction(f"{who} over {wanted} devices, not {found:g}", hint=PLAN_COPIES)
    gradient_bytes = divided.layout.each.parameters if each.mode == "train" else 0
    return add_replicas(divided, gradient_bytes, copies=round(found / wanted))
