"""What the user wants to run, once it is known: the workload and its memory."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

from ..frozen import Frozen
from .ops import Op

__all__ = ["FORMAT", "Memory", "Unmodelled", "Workload"]

FORMAT = "gpuplan.workload/2"


class Memory(Frozen):
    """Device memory of one step, by part [bytes].

    ``activation_bytes`` is the peak of everything that is live beside the other parts, found by walking the
    traced step (fused chains keep nothing in between), at the workload's batch size; what moves through memory is
    worked out with it. The other three are the same peak for the verdict whether a step fits: as XLA compiles it
    (costly functions are kept for the backward pass, pooling's gradient has work space), kernel by kernel, and
    with recomputation; None in workloads that were traced before they were known.
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

    def activations_bytes(self, *, compiled: bool, recompute: bool = False) -> int:
        """Return the peak of what a step keeps beside variables, gradients and its batch [bytes].

        Args:
            compiled: One XLA program; False: kernel by kernel.
            recompute: The backward pass computes anew what is no product of matrices (`keras.RematScope`).
        """
        if recompute and self.recomputed_activation_bytes is not None:
            return self.recomputed_activation_bytes
        known = self.compiled_activation_bytes if compiled else self.eager_activation_bytes
        return self.activation_bytes if known is None else known

    @property
    def fixed_bytes(self) -> int:
        """What does not depend on the batch size [bytes]."""
        return self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes + self.state_bytes

    @property
    def batch_bytes(self) -> int:
        """What grows with the batch size [bytes]."""
        return self.input_bytes + self.activation_bytes

    @property
    def total_bytes(self) -> int:
        """Everything a step keeps on the device, without the framework's own reserve [bytes]."""
        return self.fixed_bytes + self.batch_bytes


class Unmodelled(Frozen):
    """Work that was seen but not understood, with its share of the step."""

    name: str
    count: float
    bytes_share: float  # of the bytes of the whole step, 0..1


class Workload(Frozen):
    """A model at a batch size and precision, with the run that was asked for.

    Args:
        model: The reference as the user gave it.
        mode: One training step, or one inference call.
        batch_size: Samples per device and step [-].
        precision: Keras dtype policy, or `tf32` (float32 whose products may run in TF32).
        compiled: True: one XLA program (Keras 3's default on JAX and TensorFlow); False: kernel by kernel.
        samples: Training samples of an epoch; None when unknown [-].
        epochs: Passes over the samples; None when unknown [-].
        steps: Optimizer steps of the whole run at this batch size on one device; None when unknown [-].
        validation_samples: Samples that are evaluated after every epoch; None when none are known [-].
        parameters, trainable_parameters: As Keras's `count_params` counts them [-].
        memory: Device memory of a step, by part.
        ops: What the step computes and moves.
        unmodelled: What was not understood.
        notes: Sentences for the user on what was assumed.
        versions: Libraries that built and traced it (`keras`, `jax`).
        distribution: How the user's code lays it out over devices (`DataParallel`, `ModelParallel`); empty: not.
    """

    model: str
    mode: Literal["train", "infer"] = "train"
    batch_size: int
    precision: str = "float32"
    compiled: bool = True
    samples: int | None = None
    epochs: int | None = None
    steps: int | None = None
    validation_samples: int | None = None
    parameters: int
    trainable_parameters: int
    memory: Memory
    ops: tuple[Op, ...]
    unmodelled: tuple[Unmodelled, ...] = ()
    notes: tuple[str, ...] = ()
    versions: dict[str, str]
    distribution: str = ""

    @property
    def flops_per_step(self) -> float:
        """Floating-point operations of one step [FLOP]."""
        return sum(op.flops * op.count for op in self.ops)

    def to_json(self) -> dict[str, Any]:
        """Return the workload as plain JSON types, ops included."""
        return {"schema": FORMAT, **asdict(self)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Workload:
        """Read what `to_json` wrote; KeyError or TypeError on anything else."""
        fields = {key: value for key, value in data.items() if key != "schema"}
        fields["memory"] = Memory(**fields["memory"])
        fields["ops"] = tuple(Op.from_json(row) for row in fields["ops"])
        fields["unmodelled"] = tuple(Unmodelled(**row) for row in fields["unmodelled"])
        fields["notes"] = tuple(fields["notes"])
        return Workload(**fields)
