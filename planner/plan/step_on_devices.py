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
    from ..offers.rows import Accelerator
    from ..predict.multi_device.sharded_step import ShardedTraffic
    from ..predict.step_time import StepPredictor
    from ..workload.model import Workload
    from .execution.scaling_mode import DeviceShare
    from .select import OfferContext

PLAN_COPIES = "`--shard none` plans a copy of the model on each device"


def predict_step_on_devices(
    share: DeviceShare,
    selected: OfferContext,
    accelerator: Accelerator,
    predictor: StepPredictor,
    *,
    whole: Workload,
    each: Workload,
    sharding: Sharding,
) -> StepTime | NoPrediction:
    """Return the step on an offer's devices; no prediction for a batch of fewer samples than devices.

    Args:
        share: Run, and the workload of one part of the batch.
        selected: Offer with its links.
        accelerator: Each of its devices.
        predictor: Predictor of step times.
        whole: The model at the batch of one device or replica.
        each: The work of one device.
        sharding: What the devices hold in parts.
    """
    if share.workload is None:
        replicas = share.run.replicas
        return NoPrediction(f"a batch of {whole.batch_size} cannot be divided among {replicas} devices")
    if sharding == Sharding.NONE:
        return _predict_copies(each, selected, accelerator, predictor)
    if sharding.divides_products:
        return _predict_divided(each, sharding, selected, accelerator, predictor)
    return _predict_sharded(each, build_traffic(whole, sharding), selected, accelerator, predictor)


def _predict_copies(
    each: Workload, selected: OfferContext, accelerator: Accelerator, predictor: StepPredictor
) -> StepTime | NoPrediction:
    """Return the step on devices that each hold the whole model."""
    offer, machine = selected.offer, build_host_spec(selected.links)
    return predictor.step_time(each, accelerator, devices=offer.devices, machine=machine, hosts=offer.hosts)


def _predict_sharded(
    each: Workload,
    traffic: ShardedTraffic,
    selected: OfferContext,
    accelerator: Accelerator,
    predictor: StepPredictor,
) -> StepTime | NoPrediction:
    """Return the step on devices that each hold a shard of the model."""
    single, offer = predictor.step_time(each, accelerator), selected.offer
    if isinstance(single, NoPrediction):
        return single
    return scale_to_sharded_devices(
        single,
        traffic=traffic,
        accelerator=accelerator,
        devices=count_replicas(offer.devices),
        machine=build_host_spec(selected.links),
        hosts=offer.hosts,
    )


def _predict_divided(
    each: Workload,
    sharding: Sharding,
    selected: OfferContext,
    accelerator: Accelerator,
    predictor: StepPredictor,
) -> StepTime | NoPrediction:
    """Return the step under tensor parallelism; no prediction for a number of devices that it does not divide."""
    offer, divided = selected.offer, each.divided
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
            f"a layout over the cores of {accelerator.name} chips is not modelled", hint=PLAN_COPIES
        )
    if found % wanted or (sharding == Sharding.SCRIPT and wanted != found):
        who = "the script lays its model out" if sharding == Sharding.SCRIPT else f"`{sharding}` divides it"
        return NoPrediction(f"{who} over {wanted} devices, not {found:g}", hint=PLAN_COPIES)
    single = predictor.step_time(each, accelerator)
    if isinstance(single, NoPrediction):
        return single
    gradient_bytes = divided.layout.each.parameters if each.mode == "train" else 0
    return scale_to_divided_devices(
        single,
        sharding=sharding,
        collectives=add_replicas(divided, gradient_bytes, copies=round(found / wanted)),
        accelerator=accelerator,
        devices=offer.devices,
        machine=build_host_spec(selected.links),
        hosts=offer.hosts,
    )
