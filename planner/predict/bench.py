"""Predictions of what was held out, each made once however many settings look at them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..offers.rows import CPU, Accelerator
from .calibrate import leave_out_accelerators
from .cases import examples_of
from .corpus import Measurement, collection
from .heldout import Example, HeldOut, leave_out
from .score import ScoredRow

__all__ = ["Bench", "Predicted", "family_of", "judged_rows", "source_of", "training_rows"]

Progress = Callable[[str], None]
Keep = Callable[[Measurement], bool]

# One network under several names: variants that differ in a stride, a head or a framework's habits. They are
# left out together, or a network would be predicted from itself.
FAMILIES = {
    "alexnet_bvlc": "alexnet", "alexnet_mxnet": "alexnet", "alexnet_tensorpack": "alexnet",
    "alexnet_tf_benchmarks": "alexnet", "bert_classification": "bert", "bert_pretraining": "bert",
    "bert_span": "bert", "bert_tagging": "bert", "cifar10_cnn_keras": "cifar10_cnn",
    "mobilenet_v3_large": "mobilenet_v3", "mobilenet_v3_small": "mobilenet_v3", "resnet18_cifar": "resnet18",
    "resnet50_keras": "resnet50", "resnet50_mxnet": "resnet50", "resnet50_v1": "resnet50",
    "resnet50_v15": "resnet50", "resnext101_32x4d": "resnext101", "resnext101_32x8d": "resnext101",
    "squeezenet1_0": "squeezenet", "squeezenet1_1": "squeezenet",
}  # fmt: skip
FITTED = "profet_keras_aws"
PARTS_OF_A_SOURCE = ("_vision", "_language", "_infer")  # files that hold one publisher's rows between them


def family_of(measurement: Measurement) -> str:
    """Return the architecture by the one name that all its variants share.

    What is left out together when an architecture is left out.
    """
    return FAMILIES.get(measurement.architecture, measurement.architecture)


def source_of(measurement: Measurement) -> str:
    """Return who published a row: its file, without what distinguishes the publisher's files."""
    name = measurement.collection
    for part in PARTS_OF_A_SOURCE:
        name = name.removesuffix(part)
    return name


def training_rows(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return the training steps on one device that is not a CPU."""
    return [m for m in measurements if m.mode == "train" and m.devices == 1 and m.accelerator != CPU]


def judged_rows() -> Sequence[Measurement]:
    """Return the published rows that the model is fitted to and judged on."""
    return collection(FITTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Rows predicted without what was held out, and the same rows by the rules of thumb."""

    rows: tuple[ScoredRow, ...] = ()
    rules: Mapping[str, tuple[ScoredRow, ...]] = field(default_factory=dict)

    def where(self, keep: Keep) -> Predicted:
        """Return the rows whose measurement passes."""
        return Predicted(
            rows=tuple(row for row in self.rows if keep(row.measurement)),
            rules={
                name: tuple(row for row in rows if keep(row.measurement)) for name, rows in self.rules.items()
            },
        )


def _predicted(held_out: HeldOut, *, basis: str) -> Predicted:
    rules = {name: tuple(held_out.scored(times, basis=name)) for name, times in held_out.naive_s.items()}
    return Predicted(rows=tuple(held_out.scored(basis=basis)), rules=rules)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Measurements to be judged on, and what each way of holding out predicts for them, when asked for.

    Args:
        measurements: Rows to fit on and to predict.
        accelerators: The catalog's, by name.
        progress: Is told what is being done.
    """

    measurements: Sequence[Measurement]
    accelerators: Mapping[str, Accelerator]
    progress: Progress

    @cached_property
    def examples(self) -> list[Example]:
        """Every measurement, traced."""
        return examples_of(self.measurements, self.accelerators, progress=self.progress)

    def architecture_left_out(self, keep: Keep) -> Predicted:
        """Predict every architecture among some rows by a fit on the rest of them."""
        examples = [e for e in self.examples if keep(e.measurement)]
        if len(examples) == len(self.examples):
            return self.without_architecture
        return self._leave_out(examples, lambda e: family_of(e.measurement), basis="modelled")

    @cached_property
    def without_architecture(self) -> Predicted:
        """Predictions by fits that have seen no variant of the architecture."""
        return self._leave_out(self.examples, lambda e: family_of(e.measurement), basis="modelled")

    @cached_property
    def without_source(self) -> Predicted:
        """Predictions by fits that have seen no row of the publisher."""
        return self._leave_out(self.examples, lambda e: source_of(e.measurement), basis="modelled")

    @cached_property
    def without_accelerator(self) -> Predicted:
        """Predictions from the datasheet, by fits that have seen no row of the chip."""
        if len({e.measurement.accelerator for e in self.examples}) < 2:
            return Predicted()
        held_out = leave_out_accelerators(self.examples, progress=self.progress)
        return _predicted(held_out, basis="datasheet")

    def _leave_out(
        self, examples: Sequence[Example], group_of: Callable[[Example], str], *, basis: str
    ) -> Predicted:
        if len({group_of(example) for example in examples}) < 2:
            return Predicted()  # nothing would be left to fit on
        held_out = leave_out(examples, group_of=group_of, progress=self.progress)
        return _predicted(held_out, basis=basis)
