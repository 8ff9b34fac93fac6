"""Pairs of multi-device and single-device measurements, for fitting and scoring scaling."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cache
from importlib import resources
from typing import Any, Literal

from gpuplan.offers.rows import Accelerator
from gpuplan.predict.data_parallel import IMAGE_BYTES
from gpuplan.predict.interconnect import Link, find_slowest_link
from gpuplan.predict.measured_run import find_host_spec
from gpuplan.predict.measurements import Measurement
from gpuplan.records import Frozen
from gpuplan.workload.model import Workload

ExchangeForm = Literal["all_reduce", "parameter_server", "one_process"]
EXCHANGE_FORMS: tuple[ExchangeForm, ...] = ("all_reduce", "parameter_server", "one_process")
SERVERS = frozenset({"parameter_server", "distributed_replicated"})
ONE_PROCESS = frozenset({"kvstore", "multi_gpu_model", "replicated"})  # under Keras
SHARDED = frozenset({"fsdp"})
DECODED = frozenset({"pipeline", "generator"})  # DALI decodes on the device
FACTS_FORMAT = "gpuplan.gradients/1"


class ScalingFacts(Frozen):
    """Properties of a workload that scaling depends on; none depends on the batch size.

    Args:
        gradient_bytes: Of all trainable variables, as they are held [bytes].
        backward_share: Of the step's arithmetic, 0..1 [-].
        sample_bytes: One sample of x, y and weights [bytes].
    """

    gradient_bytes: float
    backward_share: float
    sample_bytes: float


def compute_scaling_facts(workload: Workload) -> ScalingFacts:
    """Return the facts of a traced training step."""
    flops = dict.fromkeys(("forward", "backward", "update"), 0.0)
    for op in workload.ops:
        flops[op.phase] += op.flops * op.count
    return ScalingFacts(
        gradient_bytes=float(workload.memory.gradient_bytes),
        backward_share=flops["backward"] / (sum(flops.values()) or 1.0),
        sample_bytes=workload.memory.input_bytes / workload.batch_size,
    )


def _work(m: Measurement) -> tuple[str, str]:
    return m.model, "float32" if m.precision == "tf32" else m.precision


@cache
def _packaged() -> Callable[[Measurement], ScalingFacts | None]:
    return index_scaling_facts(json.loads((resources.files("gpuplan.profiles") / "gradients.json").read_text()))


def index_scaling_facts(data: Mapping[str, Any]) -> Callable[[Measurement], ScalingFacts | None]:
    """Return a look-up of what `scaling_facts_to_json` gave."""
    known = {
        (model, policy): ScalingFacts(gradient_bytes=gradient, backward_share=backward, sample_bytes=sample)
        for model, policy, gradient, backward, sample in data["facts"]
    }
    return lambda measurement: known.get(_work(measurement))


def find_packaged_facts(measurement: Measurement) -> ScalingFacts | None:
    """Return the facts that ship for a published row; None for a model that has none."""
    return _packaged()(measurement)


def scaling_facts_to_json(
    measurements: Iterable[Measurement],
    workload_of: Callable[[Measurement], Workload],
    *,
    known: Callable[[Measurement], ScalingFacts | None] = lambda _: None,
) -> dict[str, Any]:
    """Return the content of `gradients.json`: the known facts, and those of all other models, traced."""
    rows = []
    for work, measurement in sorted({_work(m): m for m in measurements}.items(), key=lambda item: item[0]):
        facts = known(measurement) or compute_scaling_facts(workload_of(measurement))
        rows.append([*work, facts.gradient_bytes, round(facts.backward_share, 4), facts.sample_bytes])
    return {"schema": FACTS_FORMAT, "facts": rows}


class ScalingPair(Frozen):
    """A published step on several devices paired with the published step on one device.

    ``single_s`` is the geometric mean where one circumstance was measured several times. ``form`` and ``method``
    tell how the devices were kept together.
    """

    measurement: Measurement
    single_s: float
    form: ExchangeForm
    method: str
    link: Link
    facts: ScalingFacts
    decoded_samples: float | None
    cpu_cores: int | None

    @property
    def circumstances(self) -> dict[str, Any]:
        """Return the arguments of `parallel.step_on_several_s`, without the constants."""
        return {
            "single_s": self.single_s,
            "devices": self.measurement.devices,
            "gradient_bytes": self.facts.gradient_bytes,
            "link": self.link,
            "method": self.method,
            "backward_share": self.facts.backward_share,
            "accumulation": 1 if self.measurement.exchange == "pass" else self.measurement.accumulation or 1,
            "decoded_samples": self.decoded_samples,
            "cpu_cores": self.cpu_cores,
        }


class UnpairedMeasurement(Frozen):
    """A measurement on several devices that scaling cannot be judged on, and why."""

    measurement: Measurement
    reason: str


def classify_exchange(measurement: Measurement) -> ExchangeForm:
    """Return the form of gradient exchange: all-reduce, parameter server, or one process that splits the batch."""
    if measurement.distribution in SERVERS:
        return "parameter_server"
    split = measurement.distribution in ONE_PROCESS and measurement.stack == "keras"
    return "one_process" if split else "all_reduce"


def name_method(measurement: Measurement) -> str:
    """Return the name under which the constants of a row are fitted.

    `in_graph` is one TensorFlow graph (or another framework's own program) with its all-reduces inside,
    `mirrored` TensorFlow's MirroredStrategy under plain Keras.
    """
    if classify_exchange(measurement) != "all_reduce":
        return measurement.distribution
    if measurement.distribution in ("ddp", "horovod"):
        return measurement.distribution
    return "mirrored" if measurement.stack == "keras" else "in_graph"


def _same_work(m: Measurement) -> tuple[Any, ...]:
    return (
        m.collection,
        m.model,
        m.batch_size,
        m.accelerator,
        m.precision,
        m.compiled,
        m.stack,
        m.framework,
        m.feed,
        m.layout,
        m.work,
        m.recompute,
        m.attention,
    )


def _page(measurement: Measurement) -> str:
    """Return a citation without its numbers: runs of one campaign differ in their device counts only."""
    return re.sub(r"\d+", "#", measurement.source.split(" (")[0])


def _beside(measurement: Measurement, candidates: Sequence[Measurement]) -> list[Measurement]:
    """Return the steps on one device measured under the most similar conditions."""

    def likeness(single: Measurement) -> tuple[bool, bool, float]:
        alike = SequenceMatcher(None, _page(measurement), _page(single)).ratio()
        return single.host == measurement.host, single.accumulation == measurement.accumulation, alike

    best = max(map(likeness, candidates))
    return [single for single in candidates if likeness(single) == best]


def _beside_s(measurement: Measurement, candidates: Sequence[Measurement]) -> float | None:
    if not candidates:
        return None
    beside = _beside(measurement, candidates)
    return math.exp(sum(math.log(single.step_s) for single in beside) / len(beside))


def pair_measurements(
    measurements: Sequence[Measurement],
    accelerators: Mapping[str, Accelerator],
    *,
    facts: Callable[[Measurement], ScalingFacts | None] = find_packaged_facts,
    single_s_of: Callable[[Measurement], float | None] | None = None,
) -> tuple[list[ScalingPair], list[UnpairedMeasurement]]:
    """Return every training step on several devices with its step on one, and those that have none.

    Args:
        measurements: Rows of any sort; steps on one device are looked for among them.
        accelerators: The catalog's rows by name.
        facts: What a row's model sends; None when unknown.
        single_s_of: A model of the step on one device, taken in place of the published ones: judges both
            together, end to end [s].
    """
    singles: dict[tuple[Any, ...], list[Measurement]] = {}
    trainings = [m for m in measurements if m.mode == "train"]
    for m in trainings:
        if m.devices == 1:
            singles.setdefault(_same_work(m), []).append(m)
    pairs: list[ScalingPair] = []
    unpaired: list[UnpairedMeasurement] = []
    for m in trainings:
        if m.devices > 1:
            single_s = single_s_of(m) if single_s_of else _beside_s(m, singles.get(_same_work(m), []))
            pair = _pair(m, single_s, accelerators[m.accelerator], facts)
            (pairs if isinstance(pair, ScalingPair) else unpaired).append(pair)
    return pairs, unpaired


def _pair(
    m: Measurement,
    single_s: float | None,
    accelerator: Accelerator,
    facts: Callable[[Measurement], ScalingFacts | None],
) -> ScalingPair | UnpairedMeasurement:
    if m.distribution in SHARDED:
        return UnpairedMeasurement(measurement=m, reason="shards its weights; no step on one device was published")
    if m.hosts is None:
        return UnpairedMeasurement(measurement=m, reason="the number of machines was not published")
    if single_s is None:
        return UnpairedMeasurement(
            measurement=m, reason="no step on one device with this batch was published beside it"
        )
    known = facts(m)
    if known is None:
        return UnpairedMeasurement(measurement=m, reason="the size of its gradients is not known")
    machine = find_host_spec(m)
    link = find_slowest_link(accelerator, devices=m.devices, machine=machine, hosts=m.hosts)
    if link is None:
        return UnpairedMeasurement(measurement=m, reason="a link between its devices is not known")
    decodes = m.feed in DECODED and known.sample_bytes >= IMAGE_BYTES
    return ScalingPair(
        measurement=m,
        form=classify_exchange(m),
        method=name_method(m),
        link=link,
        facts=known,
        single_s=single_s,
        decoded_samples=float(m.batch_size) if decodes else None,
        cpu_cores=machine.cpu_cores * m.hosts if machine.cpu_cores else None,
    )
