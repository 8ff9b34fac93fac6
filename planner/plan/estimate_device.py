"""Estimate of one workload on the devices of an offer: time of a step, memory, and what makes it fit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from ..predict.breakdown import compute_peak_time_s
from ..predict.collectives import add_replicas, list_mesh_exchanges, scale_to_devices
from ..predict.interconnect import build_host_spec
from ..predict.keras_defaults import describe_failing_lstm, select_executed_workload
from ..predict.sharding import Sharding
from ..predict.step_time import NoPrediction, StepTime, join_notes, repeat_step
from ..predict.xla_recomputation import compute_recomputed_bytes, describe_jax_pool
from ..records import Frozen
from ..workload.accumulation import build_accumulation_pass
from .device_estimate import (
    DeviceEstimate,
    RunLength,
    ScalingMode,
    combine_phases,
    compute_run_length,
    count_replicas,
)
from .memory import (
    FRAMEWORK_RESERVE_BYTES,
    TIGHT_FROM,
    UNSHARDED,
    MemoryVerdict,
    available_bytes,
    build_device_workload,
    compute_batch_bytes,
    count_groups,
    divide_update,
    find_remedies,
    find_sharding_remedy,
    list_divisors,
    list_exchanges,
    list_memory_parts,
    memory_verdict,
    stated_verdict,
)

if TYPE_CHECKING:
    from ..predict.step_time import StepPredictor
    from ..workload.model import Collective, Workload
    from ..workload.ops import Op
    from .question import OfferContext


Result = TypeVar("Result")


class IdentityCache(Generic[Result]):
    """Cache keyed by the identity of an object and a key; equal requests return the same result object."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, Hashable], tuple[object, Result]] = {}

    def get(self, source: object, key: Hashable, build: Callable[[], Result]) -> Result:
        """Return the result for an object, of which a reference is kept, and all other inputs, computed once."""
        place = (id(source), key)
        if place not in self._known:
            self._known[place] = (source, build())
        return self._known[place][1]


Resize = Callable[[int], "Workload"]


class FitWays(Frozen):
    """The step of a model in smaller passes, with recomputed activations or without; traced on first use."""

    resized: Resize  # as the user runs it, at another batch size
    recomputed: Resize | None  # with layers that recompute their activations; None if they do so already
    # The model with the shapes of one of a number of devices that share its products, and its ways; None for not
    # to be tried
    divided: Callable[[int], tuple[Workload, FitWays]] | None = None
    _passes: IdentityCache[Workload] = field(default_factory=IdentityCache)

    def find_step(
        self, whole: Workload, *, recompute: bool, fits: Callable[[Workload], bool]
    ) -> tuple[Workload, int] | None:
        """Return the pass and the number of them, the fewest that fit on the device; None if none does."""
        resize = self.recomputed if recompute else self.resized
        if resize is None:
            return None
        one_pass, *several = list_divisors(whole.batch_size)
        if recompute and fits(found := self._build_pass(whole, one_pass, resize)):
            return found, one_pass
        if not several or not fits(self._build_pass(whole, several[-1], resize)):
            return None  # smaller passes take no more memory: the others need no trace
        built = ((self._build_pass(whole, passes, resize), passes) for passes in several)
        return next((pair for pair in built if fits(pair[0])), None)

    def _build_pass(self, whole: Workload, passes: int, resize: Resize) -> Workload:
        """Return one pass of a step, cached per step."""

        def build() -> Workload:
            smaller = resize(whole.batch_size // passes).get_phase(whole.fit_call)
            return build_accumulation_pass(smaller, passes)

        return self._passes.get(whole, (passes, id(resize)), build)


PLAN_COPIES = "`--shard none` plans a copy of the model on each device"


def predict_step_on_devices(
    selected: OfferContext, predictor: StepPredictor, *, whole: Workload, each: Workload, sharding: Sharding
) -> StepTime | NoPrediction:
    """Return the step on an offer's devices: `each` is the work of one, `whole` the model at a replica's batch."""
    offer, machine, hosts = selected.offer, build_host_spec(selected.links), selected.offer.hosts
    accelerator = selected.accelerator
    if accelerator is None:
        return NoPrediction(f"the catalog does not describe `{offer.accelerator}`")
    if accelerator.kind == "tpu" and whole.backend != "jax" and "TPUStrategy" not in whole.distribution:
        return NoPrediction("a TPU runs JAX, and TensorFlow scripts with a TPUStrategy")
    if sharding == Sharding.NONE:
        return predictor.step_time(each, accelerator, devices=offer.devices, machine=machine, hosts=hosts)
    devices: float = count_replicas(offer.devices)
    if sharding.divides_products:
        collectives, devices = _list_collectives(each, sharding, selected), offer.devices
        if isinstance(collectives, NoPrediction):
            return collectives
        exchanges = list_mesh_exchanges(collectives, host_devices=devices / hosts)
    else:
        exchanges = list_exchanges(whole, sharding, devices)
    single = predictor.step_time(each, accelerator)
    if isinstance(single, NoPrediction):
        return single
    return scale_to_devices(
        single, exchanges, accelerator, devices=devices, sharding=sharding, machine=machine, hosts=hosts
    )


def _list_collectives(
    each: Workload, sharding: Sharding, selected: OfferContext
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
    wanted, found = divided.layout.devices, selected.mesh_devices
    if found != selected.offer.devices:
        return NoPrediction(
            f"a layout over the cores of {selected.offer.accelerator} chips is not modelled", hint=PLAN_COPIES
        )
    if found % wanted or (sharding == Sharding.SCRIPT and wanted != found):
        who = "the script lays its model out" if sharding == Sharding.SCRIPT else f"`{sharding}` divides it"
        return NoPrediction(f"{who} over {wanted} devices, not {found:g}", hint=PLAN_COPIES)
    gradient_bytes = divided.layout.each.parameters if each.mode == "train" else 0
    return add_replicas(divided, gradient_bytes, copies=round(found / wanted))


# Devices that share products: up to those of one server, which were eight (Narayanan et al., 2021, "Efficient
# Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", arXiv:2104.04473, section 3.2) [-].
MOST_SHARING = 8


class DeviceEstimator:
    """Estimates a workload on the devices of offers, independent of their prices.

    Strong scaling needs the workload at other batch sizes (`resized`). Of the shardings, the first that fits is
    taken; `ways` are for steps that fit under none of them.
    """

    def __init__(
        self,
        predictor: StepPredictor,
        *,
        scaling: ScalingMode = "strong",
        resized: Callable[[int], Workload] | None = None,
        shardings: Sequence[Sharding] = UNSHARDED,
        ways: FitWays | None = None,
    ) -> None:
        self._predictor, self._scaling, self._resized = predictor, scaling, resized
        self._shardings, self._ways = shardings, ways
        self._workloads: IdentityCache[Workload] = IdentityCache()  # shared by all accelerators
        self._updates: IdentityCache[tuple[Op, ...]] = IdentityCache()  # and by all shardings
        self._sharing: dict[int, DeviceEstimator] = {}

    def estimate(self, workload: Workload, selected: OfferContext) -> DeviceEstimate:
        """Estimate a workload on an offer."""
        devices = count_replicas(selected.offer.devices)
        shardings = self._shardings if devices > 1 else UNSHARDED
        tried = [self._estimate_phases(workload, selected, sharding) for sharding in shardings]
        best = choose_least_sharding([one for one in tried if one is not None])
        if self._ways is None or best.memory.verdict in (None, "fits"):
            return best
        for recompute in (False, True):
            fitting = [
                (found.step_time_s.mid, found)
                for sharding in shardings
                if (found := self._estimate_phases(workload, selected, sharding, recompute=recompute))
                and found.step_time_s is not None
            ]
            if fitting:
                return min(fitting, key=lambda pair: pair[0])[1]
        return self._estimate_divided(workload, selected) or best

    def _estimate_divided(self, workload: Workload, selected: OfferContext) -> DeviceEstimate | None:
        """Estimate tensor parallelism over the devices of a machine; None if the step still does not fit."""
        devices = _choose_sharing_devices(count_replicas(selected.offer.devices) // selected.offer.hosts)
        available = _device_bytes(selected)
        if self._ways is None or self._ways.divided is None or devices < 2 or available is None:
            return None
        variables = workload.memory.compute_fixed_bytes(compiled=workload.compiled)
        if variables / devices + FRAMEWORK_RESERVE_BYTES > TIGHT_FROM * available:
            return None  # without a trace: not even its variables fit
        divided, ways = self._ways.divided(devices)
        if devices not in self._sharing:
            self._sharing[devices] = DeviceEstimator(
                self._predictor,
                scaling=self._scaling,
                resized=ways.resized,
                shardings=(Sharding(kind="tensor", ways=devices),),
                ways=ways,
            )
        found = self._sharing[devices].estimate(divided, selected)
        return found if found.memory.verdict == "fits" and found.step_time_s is not None else None

    def _estimate_phases(
        self, workload: Workload, selected: OfferContext, sharding: Sharding, *, recompute: bool | None = None
    ) -> DeviceEstimate | None:
        """Estimate all phases unchanged, or in passes that fit; None if no pass fits."""
        found = []
        for one in workload.phases:
            phase = self._estimate_phase(one, selected, sharding, recompute=recompute)
            if phase is None:
                return None
            found.append(phase)
        return combine_phases(found, longest=workload.longest_phase)

    def _estimate_phase(
        self, workload: Workload, selected: OfferContext, sharding: Sharding, *, recompute: bool | None
    ) -> DeviceEstimate | None:
        from ..offers.compat import load_compatibility

        matrix = load_compatibility()
        accelerator, devices = selected.accelerator, count_replicas(selected.offer.devices)
        run, part = self._split(workload, selected.offer.devices, sharding)
        fitted = self._fit(part or workload, selected, sharding, recompute=recompute)
        if fitted is None:
            return None
        whole, passes = fitted
        each = self._get_device_workload(whole, sharding, devices=devices)
        step: StepTime | NoPrediction = NoPrediction(
            f"a batch of {whole.batch_size} cannot be divided among {run.replicas} devices",
            hint="name a batch that they can share: `--batch-size`, or fewer `--devices`",
        )
        if part is not None or accelerator is None:
            step = predict_step_on_devices(selected, self._predictor, whole=whole, each=each, sharding=sharding)
        peak_time_s, compatibility, runs = None, "", None
        if accelerator is not None:
            peak_time_s = compute_peak_time_s(each, accelerator, share=min(1, selected.offer.devices))
            whole, each = (select_executed_workload(one, accelerator) for one in (whole, each))
            notes = describe_failing_lstm(whole, accelerator), matrix.note(accelerator, workload.precision)
            compatibility, runs = join_notes(*notes), matrix.runs_keras(accelerator)
        memory = _check_memory(each, selected, step)
        step = step if isinstance(step, NoPrediction) else repeat_step(step, passes)
        sharded = find_sharding_remedy(whole, memory, sharding=sharding, devices=devices)
        return DeviceEstimate(
            run=run,
            step_time=step,
            memory=memory,
            remedies=find_remedies(each, memory, sharded=sharded),
            compatibility=compatibility,
            runs=runs,
            sharding=sharding,
            replicas=_count_copies(workload, sharding, selected.offer.devices),
            pass_batch_size=whole.batch_size if passes > 1 else None,
            accumulation_steps=whole.gradient_accumulation_steps,
            recomputed=bool(recompute),
            tokens_per_sample=workload.tokens_per_sample,
            peak_time_s=None if peak_time_s is None else passes * peak_time_s,
            memory_parts=list_memory_parts(whole, each, sharding, devices, memory.recomputed_bytes)
            if sharding != Sharding.NONE
            else None,
        )

    def _split(self, workload: Workload, devices: float, sharding: Sharding) -> tuple[RunLength, Workload | None]:
        """Return the run on the devices of an offer and the workload of each; None for more than samples."""
        copies = _count_copies(workload, sharding, devices)
        sharers = "replicas" if sharding.divides_products else "devices"
        run = compute_run_length(workload, copies, self._scaling, sharers=sharers)
        if self._scaling == "weak" or run.replicas == 1:
            return run, workload
        if run.replicas > workload.batch_size:
            return run, None
        if self._resized is None:
            raise ValueError("strong scaling needs the workload at smaller batch sizes")
        return run, self._resized(-(-workload.batch_size // run.replicas)).get_phase(workload.fit_call)

    def _get_device_workload(self, workload: Workload, sharding: Sharding, *, devices: int) -> Workload:
        """Return the work of one device, cached per workload."""

        def divide(ops: tuple[Op, ...], share: float) -> tuple[Op, ...]:
            return self._updates.get(ops, share, partial(divide_update, ops, share))

        build = partial(build_device_workload, workload, sharding, devices, divide=divide)
        return self._workloads.get(workload, (sharding, devices), build)

    def _fit(
        self, whole: Workload, selected: OfferContext, sharding: Sharding, *, recompute: bool | None
    ) -> tuple[Workload, int] | None:
        """Return the step of one device unchanged, or a pass that fits, and their number; None if no pass fits."""
        if recompute is None or self._ways is None:
            return whole, 1
        accelerator, devices = selected.accelerator, count_replicas(selected.offer.devices)

        def fits(one: Workload) -> bool:
            each = self._get_device_workload(one, sharding, devices=devices)
            executed = each if accelerator is None else select_executed_workload(each, accelerator)
            return _check_memory(executed, selected).verdict == "fits"  # with a margin

        return self._ways.find_step(whole, recompute=recompute, fits=fits)


def choose_least_sharding(tried: Sequence[DeviceEstimate]) -> DeviceEstimate:
    """Return the first estimate that fits, with a margin if one does; without any, the one of least memory.

    They are in order of increasing sharding. If all that fit need XLA's recomputation, the one of least memory.
    Predicted times do not decide, since they differ by less than their errors.
    """

    def rank(one: DeviceEstimate) -> tuple[bool, int]:
        memory = one.memory
        return memory.verdict == "tight", memory.needed_bytes if memory.recomputed_bytes else 0

    fitting = [one for one in tried if one.memory.fits is not False]
    return min(fitting, key=rank) if fitting else min(tried, key=lambda one: one.memory.needed_bytes)


def _choose_sharing_devices(devices: int) -> int:
    """Return the tensor-parallel devices of a machine: all, or the largest divisor of up to eight of more [-]."""
    return next(number for number in range(min(devices, MOST_SHARING), 0, -1) if devices % number == 0)


def _count_copies(workload: Workload, sharding: Sharding, devices: float) -> float:
    """Return the parts into which a batch is divided on the devices of an offer [-]."""
    divided = workload.divided
    if divided is None or not sharding.divides_products:
        return devices
    return divided.layout.replicas * count_groups(sharding, devices)


def _check_memory(
    each: Workload, selected: OfferContext, step: StepTime | NoPrediction | None = None
) -> MemoryVerdict:
    """Check the memory of one device, by the accelerator's compiler where it compiled the step."""
    accelerator = selected.accelerator
    memory = memory_verdict(
        fixed_bytes=each.memory.compute_fixed_bytes(compiled=each.compiled),
        batch_bytes=compute_batch_bytes(each),
        batch_size=each.batch_size,
        available_bytes=_device_bytes(selected),
        recomputed_bytes=0 if accelerator is None else compute_recomputed_bytes(each, accelerator),
    )
    if isinstance(step, StepTime) and step.memory is not None:
        return stated_verdict(memory, step.memory)
    if accelerator is None or not memory.fits:
        return memory
    step_bytes = memory.needed_bytes - FRAMEWORK_RESERVE_BYTES
    setting = describe_jax_pool(each, accelerator, step_bytes=step_bytes)
    return replace(memory, setting=setting) if setting else memory


def _device_bytes(selected: OfferContext) -> int | None:
    """Return the usable memory of one device; for a CPU host, that of the host [bytes]."""
    offer, accelerator = selected.offer, selected.accelerator
    if accelerator is None:
        return None
    if accelerator.kind == "cpu":
        return available_bytes(memory_gib=offer.memory_gib, usable_gib=None)
    return available_bytes(
        memory_gib=accelerator.memory_gib, usable_gib=accelerator.usable_gib, share=offer.devices
    )
