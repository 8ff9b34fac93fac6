"""The workload of a run: its steps, memory and collectives."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, TypeVar

from ..records import Frozen, from_plain, to_plain
from .ops import PRODUCTS, Mode, Op, OpKind, Phase

CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter"]
PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}  # around the ring of its devices [-]


class Collective(Frozen):
    """A collective of a divided step, over rings of the devices along one or more axes of the mesh."""

    kind: CollectiveKind
    devices: float  # devices of one ring [-]
    stride: int  # distance of neighbours in the order of the mesh: as many rings lie side by side [-]
    message_bytes: float  # the larger of operand and result on one device [bytes]
    count: float  # executions in a step [-]
    phase: Phase  # forward pass, backward pass or update
    replicas: bool  # whether its devices have samples of their own, so that it sums gradients or gathers variables

    @property
    def passes(self) -> int:
        """Passes of the message around the ring [-]."""
        return PASSES[self.kind]

    @property
    def sent_bytes(self) -> float:
        """Data that a device sends in all executions, (N - 1) / N of the message each pass [bytes].

        Patarasuk and Yuan, 2009, doi:10.1016/j.jpdc.2008.09.002, section 3.
        """
        share = (self.devices - 1) / self.devices
        return self.passes * share * self.message_bytes * self.count


FORMAT = "gpuplan.workload/2"
NOT_READ = frozenset({"schema", "layer_calls", "layer_call"})  # the last two were once saved


class Memory(Frozen):
    """Device memory of one step by part [bytes].

    ``activation_bytes`` is the peak of everything live in addition to the other parts, from the liveness of
    the traced step (fused chains store nothing in between); memory traffic is computed with it. The others are
    the same peak in the modes that decide whether a step fits: compiled by XLA (costly functions are kept for the
    backward pass, the gradient of pooling needs a workspace), kernel by kernel, and with recomputation; None for
    workloads traced before they were introduced.
    """

    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    state_bytes: int  # batch-norm statistics, metric and seed variables
    input_bytes: int  # one batch of x, y, sample weights
    activation_bytes: int
    compiled_activation_bytes: int | None = None
    eager_activation_bytes: int | None = None
    recomputed_activation_bytes: int | None = None
    tpu_activation_bytes: int | None = None  # compiled by XLA for a TPU
    waiting_gradient_bytes: int | None = None  # in a step compiled by XLA; None: all

    def activations_bytes(self, *, compiled: bool, recompute: bool = False) -> int:
        """Return the peak memory besides variables, gradients and the batch [bytes], as one XLA program or not.

        `recompute`: the backward pass recomputes everything but matrix products (`keras.RematScope`).
        """
        if recompute and self.recomputed_activation_bytes is not None:
            return self.recomputed_activation_bytes
        known = self.compiled_activation_bytes if compiled else self.eager_activation_bytes
        return self.activation_bytes if known is None else known

    def held_gradient_bytes(self, *, compiled: bool) -> int:
        """Return the gradients that wait for the update of their variables at a time [bytes].

        XLA updates a variable as soon as its gradient is known, unless the optimizer needs all of them first.
        """
        waiting = self.waiting_gradient_bytes
        return self.gradient_bytes if waiting is None or not compiled else min(waiting, self.gradient_bytes)

    def compute_fixed_bytes(self, *, compiled: bool) -> int:
        """Return the part independent of the batch size [bytes]."""
        gradients = self.held_gradient_bytes(compiled=compiled)
        return self.parameter_bytes + gradients + self.optimizer_bytes + self.state_bytes

    @property
    def batch_bytes(self) -> int:
        """Part that grows with the batch size [bytes]."""
        return self.input_bytes + self.activation_bytes

    @property
    def total_bytes(self) -> int:
        """Device memory of a step kernel by kernel, without the framework's own reserve [bytes]."""
        return self.compute_fixed_bytes(compiled=False) + self.batch_bytes


class LayerSizes(Frozen):
    """Sizes of the layers that hold parameters, in the order of the model; a nested model counts by its layers."""

    # trainable and frozen parameters of each layer, without statistics and seeds [bytes]
    parameter_bytes: tuple[int, ...]
    trainable_bytes: tuple[int, ...]  # the trainable ones among them [bytes]

    @property
    def frozen_bytes(self) -> int:
        """Parameters that are not trained: they have no gradient and no optimizer state [bytes]."""
        return sum(self.parameter_bytes) - sum(self.trainable_bytes)


class Unmodelled(Frozen):
    """Unmodelled operations, with their share of the step."""

    name: str
    count: float
    bytes_share: float  # of the bytes of the whole step, 0..1


class AttentionCall(Frozen):
    """Properties of a call of `keras.ops.dot_product_attention` that decide whether a fused kernel takes it."""

    dtype: str  # type of queries, keys and values
    head_size: int  # features of one head [-]
    # queries, keys: lengths of the two sequences [-]
    queries: int
    keys: int
    bias: bool = False  # whether something is added to the scores
    mask: bool = False  # whether a mask is passed; a causal mask requested by `is_causal` is none
    causal: bool = False  # whether `is_causal` is set
    wanted: bool | None = None  # `flash_attention` of the call, or of `keras.config`; None lets Keras decide


class FusedAttention(Frozen):
    """The step with every call of `keras.ops.dot_product_attention` as one kernel a pass."""

    calls: tuple[AttentionCall, ...]
    ops: tuple[Op, ...]  # table of operations of the step
    memory: Memory  # device memory of the step: scores are not stored


class VariableBytes(Frozen):
    """Memory of the variables of a step on one device of a mesh [bytes]."""

    parameters: int  # parameters that are trained, or the device's part of them
    optimizer: int
    state: int  # frozen parameters, statistics, seeds and metrics


class DeviceLayout(Frozen):
    """Devices that a distribution takes, and what each of them holds."""

    devices: int  # devices of its mesh [-]
    replicas: int  # parts into which the mesh divides a batch [-]
    takes_all: bool  # whether the mesh consists of all devices that the script found, however many they are
    # whole, each: variables of the model, and of one device
    whole: VariableBytes
    each: VariableBytes
    keeps_batch: bool = False  # whether the user's code multiplies the batch of a device with their number

    @property
    def is_data_parallel(self) -> bool:
        """Whether every device holds all variables and works on its own part of the batch."""
        return self.replicas == self.devices and self.each == self.whole


class Strategy(Frozen):
    """A strategy of `tf.distribute` whose replicas each hold the whole model."""

    name: str  # name of its class
    devices: int | None  # devices that it states; None for all that it finds [-]
    keeps_batch: bool  # as for `DeviceLayout`


class DividedStep(Frozen):
    """The step as one device runs it that shares the model with others, at the batch of their replica."""

    layout: DeviceLayout  # the devices, and what each of them holds
    ops: tuple[Op, ...]  # table of operations on its parts of variables and activations
    memory: Memory  # device memory of the step: of its activations; variables as a whole
    # the same step with fused attention; None if no call of it can be fused
    fused_attention: FusedAttention | None
    collectives: tuple[Collective, ...]  # collectives with the other devices
    states_activations: bool = False  # whether the user's code states how activations are divided

    @property
    def is_ambiguous(self) -> bool:
        """Whether variables are divided along the axis of the samples, and nothing says which of them to gather.

        XLA's partitioner may then gather the batch, and let every device work on all samples (libtpu 0.0.42, a
        Transformer on four chips: 2.6 times the memory).
        """
        gathered = any(one.replicas and one.kind == "all_gather" for one in self.collectives)
        return gathered and not self.states_activations


Step = TypeVar("Step", "Workload", DividedStep, FusedAttention)  # each with a table and the memory of a step


class ForwardPasses(Frozen):
    """Equal calls of `evaluate()` or `predict()`."""

    kind: Literal["evaluate", "predict"]  # which of the two
    samples: int  # samples of one call [-]
    steps: int  # steps of one call at the batch size of the script [-]
    calls: int = 1  # number of equal calls [-]


class InputRate(Frozen):
    """Throughput of the pipeline that feeds `fit()`, without training, on the machine that traced it."""

    kind: str  # kind of the data: `arrays`, `PyDataset`, `tf.data`, `DataLoader`, `Grain` or `generator`
    samples_per_s: float | None = None  # rate; None for arrays, and where it could not be measured [1/s]
    cores: float = 0.0  # cores that it kept busy [-]
    host_cores: int | None = None  # cores that it could use; None if unknown [-]
    workers: int | None = None  # workers that it states; None for a pipeline without a number of them [-]
    batches: int = 0  # batches that were timed [-]


class Workload(Frozen):
    """A model at a batch size and precision, and the requested run."""

    model: str  # reference as given by the user
    mode: Mode = "train"  # training or inference
    batch_size: int  # samples per device and step [-]
    # Keras dtype policy, or `tf32` (float32 whose products may run in TF32); of a quantized model, that of what is
    # not quantized
    precision: str = "float32"
    # whether the step is one XLA program (Keras 3's default on JAX and TensorFlow), or run kernel by kernel
    compiled: bool = True
    samples: int | None = None  # training samples per epoch; None if unknown [-]
    epochs: int | None = None  # passes over the samples; None when unknown [-]
    steps: int | None = None  # optimizer steps of the run at this batch size on one device; None if unknown [-]
    validation_samples: int | None = None  # samples evaluated after every epoch; None if unknown [-]
    # parameters, trainable_parameters: numbers of parameters as in Keras's `count_params` [-]
    parameters: int
    trainable_parameters: int
    memory: Memory  # device memory of a step, by part
    ops: tuple[Op, ...]  # table of operations of the step
    unmodelled: tuple[Unmodelled, ...] = ()
    notes: tuple[str, ...] = ()  # assumptions, as sentences for the user
    # versions of the libraries that built and traced it (`keras`, `jax`), and of the backend that the user's run
    # computes on (`tensorflow`, `torch`); `not installed` if it is not here
    versions: dict[str, str]
    distribution: str = ""  # distribution in the user's code (`DataParallel`, `ModelParallel`); empty for none
    layout: DeviceLayout | None = None  # layout of the step over devices by that distribution; None for none
    # products of float32 that may run in TF32 where a chip has it, by the backend's setting
    tf32: Literal["all", "convolutions", "none"] = "all"
    # the same step with fused attention; None if no call of it can be fused
    fused_attention: FusedAttention | None = None
    calls: int = 1  # equal calls of `fit()`, whose epochs and steps are counted together [-]
    programs: int = 1  # models that these calls trained, each compiled for itself [-]
    own_loop: bool = False  # whether a loop of the script's own runs the steps, not `fit()`
    fit_call: int = 0  # number of `fit()` calls of the script before the first of these [-]
    further: tuple[Workload, ...] = ()  # the other phases of the script; this one is the longest
    # calls of `evaluate()` and `predict()` with the model of this phase, after it was trained
    passes: tuple[ForwardPasses, ...] = ()
    # sizes of its layers; None for workloads traced before they were introduced
    layer_sizes: LayerSizes | None = None
    tokens_per_sample: int | None = None  # length of the sequences of a language model; None for other models [-]
    # steps for each update of the variables, as the optimizer says; 1 for an update in every step [-]
    gradient_accumulation_steps: int = 1
    # the step of one device that holds parts of the variables, under that layout or by tensor parallelism; None
    # where every device holds all of them
    divided: DividedStep | None = None
    # mode in which most weights are quantized (`int8`, `int4`, `float8`); None for none
    quantization: str | None = None
    # phases of the script besides these, or the end of what was followed, each with the reason
    unplanned: tuple[str, ...] = ()
    input: InputRate | None = None  # throughput of the input of `fit()`; None without a call, and for stand-ins
    named_machines: tuple[str, ...] = ()  # accelerators that `@kinetic.run` names in the script, in its words

    @property
    def why_partial(self) -> str:
        """Sentence on how much of the script is planned, and why not the rest; empty if all of it is."""
        if not self.unplanned:
            return ""
        planned, why = len(self.phases), "; ".join(self.unplanned)
        return f"{planned} of at least {planned + len(self.unplanned)} phases could be planned; {why}."

    @cached_property
    def phases(self) -> tuple[Workload, ...]:
        """All phases in the order of the script, each without the others."""
        if not self.further:
            return (self,)
        own = replace(self, further=())
        return tuple(sorted((own, *self.further), key=lambda one: one.fit_call))

    @property
    def longest_phase(self) -> int:
        """Position of the phase with the most work among all [-]."""
        return [one.fit_call for one in self.phases].index(self.fit_call)

    def get_phase(self, fit_call: int) -> Workload:
        """Return the phase that begins with a call of `fit()`."""
        return next(one for one in self.phases if one.fit_call == fit_call)

    @property
    def total_steps(self) -> int | None:
        """Steps of all phases on one device; None if unknown [-]."""
        return self._sum("steps")

    @property
    def total_epochs(self) -> int | None:
        """Epochs of all phases; None if unknown [-]."""
        return self._sum("epochs")

    def _sum(self, name: str) -> int | None:
        known = [getattr(one, name) for one in self.phases]
        return None if None in known else sum(known)

    @cached_property
    def with_fused_attention(self) -> Workload:
        """The same workload with the operations and memory of fused attention, where it has any."""
        known = self.fused_attention
        if known is None:
            return self
        return replace(self, ops=known.ops, memory=known.memory, fused_attention=None)

    @cached_property
    def on_tpu(self) -> Workload:
        """The same workload with the memory that it has as compiled for a TPU, where that is known."""
        known = self.memory.tpu_activation_bytes
        if known is None:
            return self
        return replace(self, memory=replace(self.memory, compiled_activation_bytes=known))

    @cached_property
    def backend(self) -> str:
        """Backend that the user's run computes on: `jax`, `tensorflow` or `torch`."""
        return next((name for name in ("tensorflow", "torch") if name in self.versions), "jax")

    @property
    def flops_per_step(self) -> float:
        """Floating-point operations of one step [FLOP]."""
        return sum(op.flops * op.count for op in self.ops)

    @cached_property
    def looped_layers(self) -> frozenset[str]:
        """Layers whose loops are among the operations, see `Loop`."""
        return frozenset(op.loop.layer for op in self.ops if op.loop is not None)

    @cached_property
    def product_columns(self) -> frozenset[tuple[str, int]]:
        """Operand type and number of columns of each matrix product."""
        return frozenset((op.dtype, op.n) for op in self.ops if op.kind is OpKind.DOT)

    @cached_property
    def product_flops(self) -> float:
        """Floating-point operations of the products of one step: matrix products and convolutions [FLOP]."""
        return sum(op.flops * op.count for op in self.ops if op.kind in PRODUCTS)

    def to_json(self) -> dict[str, Any]:
        """Return the workload as plain JSON types, including operations."""
        return {"schema": FORMAT, **to_plain(self)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Workload:
        """Parse the output of `to_json`; TypeError, ValueError or AttributeError on anything else."""
        workload: Workload = from_plain(Workload, data, skip=NOT_READ)
        return workload
