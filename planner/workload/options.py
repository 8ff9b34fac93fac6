"""Options for a run, and for running the user's code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..errors import UsageError, near_names_hint
from ..limits import (
    MAX_BATCH_SIZE,
    MAX_DEVICES,
    MAX_EPOCHS,
    MAX_SAMPLES,
    MAX_STEPS,
    MAX_TOKENS,
    require_count,
    require_positive,
)
from ..records import Frozen
from ..units import SECONDS_PER_MINUTE

PRECISIONS = ("float32", "tf32", "mixed_float16", "mixed_bfloat16", "float16", "bfloat16")
# What other tools call a precision of training.
_CALLED = {
    **dict.fromkeys(("fp32", "f32", "single", "32"), "float32"),
    **dict.fromkeys(("fp16", "f16", "half", "16", "amp", "mixed", "16-mixed"), "mixed_float16"),
    **dict.fromkeys(("bf16", "bf16-mixed"), "mixed_bfloat16"),
}
DEFAULT_BATCH_SIZE = 32  # default of `fit()`
DEFAULT_TIMEOUT_S = 600.0
_MOST = {
    "batch_size": MAX_BATCH_SIZE,
    "samples": MAX_SAMPLES,
    "epochs": MAX_EPOCHS,
    "steps": MAX_STEPS,
    "tokens": MAX_TOKENS,
    "devices": MAX_DEVICES,
    "tensor": MAX_DEVICES,
}


class DataTerms(Frozen):
    """What stands in for a script's data that is missing."""

    downloads: bool = True  # whether the script may load data from other machines
    samples: int | None = None  # samples of a folder that is missing; None to refuse it [-]
    classes: int | None = None  # classes of such a folder [-]


class ScriptOptions(Frozen):
    """Options for a process that runs the user's code."""

    timeout_s: float = DEFAULT_TIMEOUT_S  # time limit of one process, from the first line of the user's code [s]
    variables: tuple[str, ...] = ()  # environment variables to pass in addition to the default ones
    data: DataTerms = DataTerms()  # what stands in for missing data
    # callback for one line on the script's position, once it has run for a while
    tell: Callable[[str], None] = lambda line: None


class WorkloadOptions(Frozen):
    """Options for a run; None stands for the setting of the model or script. UsageError for what cannot be."""

    batch_size: int | None = None  # samples per device and step [-]
    samples: int | None = None  # samples per epoch, or samples to predict [-]
    epochs: int | None = None  # passes over the samples [-]
    steps: int | None = None  # optimizer steps of the run, instead of samples and epochs [-]
    tokens: int | None = None  # tokens of the run of a language model, instead of samples, epochs and steps [-]
    precision: str | None = None  # one of `PRECISIONS`, or another name of it (`fp16`)
    mode: Literal["train", "infer"] = "train"  # training or inference
    compiled: bool | None = None  # whether the step is one XLA program, or run kernel by kernel
    loss: str | None = None  # a Keras loss by name, for a model that is not compiled
    optimizer: str | None = None  # a Keras optimizer by name, for a model that is not compiled
    remat: bool = False  # whether every layer recomputes its activations in the backward pass
    use_cache: bool = True  # whether a cached trace of the same content may be used
    fit_call: int = 0  # number of `fit()` calls of a script before the one to measure or lower [-]
    devices: int | None = None  # devices visible to user code that distributes the model; None for one [-]
    # devices that share each product by tensor parallelism; None for the layout of the user's code [-]
    tensor: int | None = None
    derives: bool = False  # whether the step may be derived from one of a larger batch, by shapes
    measures_input: bool = True  # whether the pipeline that feeds a script's `fit()` is measured
    script: ScriptOptions = ScriptOptions()  # how the user's code is run; changes nothing of what is computed

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value is not None:
                require_count(value, what=f"--{name.replace('_', '-')}", most=most)
        if self.epochs is not None and self.steps is not None:
            message = "`--epochs` and `--steps` both set the length of the run"
            raise UsageError(message, hint="give only one of them")
        if self.tokens is not None and (self.samples or self.epochs or self.steps):
            message = "`--tokens` is the length of the run, as `--samples`, `--epochs` and `--steps` are"
            raise UsageError(message, hint="give `--tokens` alone")
        if self.precision is not None:
            vars(self)["precision"] = parse_precision(self.precision)
        if self.mode not in ("train", "infer"):
            raise UsageError(f"unknown mode `{self.mode}`", hint="use `train` or `infer`")
        if self.remat and self.mode == "infer":
            raise UsageError("`--remat`: inference has no backward pass to recompute for", hint="omit it")

    @property
    def passes(self) -> int | None:
        """Passes over the samples, by default one for inference; None if unknown [-]."""
        once = self.mode == "infer" and self.samples is not None and self.steps is None
        return self.epochs or (1 if once else None)

    def to_json(self) -> dict[str, Any]:
        """Return the options as plain JSON types, without how the user's code is run."""
        return {name: value for name, value in vars(self).items() if name != "script"}

    def with_callback(self, tell: Callable[[str], None]) -> WorkloadOptions:
        """Return the options with a function that is told where the user's code is."""
        return replace(self, script=replace(self.script, tell=tell))


def parse_precision(name: str) -> str:
    """Return the precision that a name stands for; UsageError for an unknown one.

    Example:
        >>> parse_precision("fp16"), parse_precision("BF16"), parse_precision("float32")
        ('mixed_float16', 'mixed_bfloat16', 'float32')
    """
    meant = _CALLED.get(name.lower(), name.lower())
    if meant not in PRECISIONS:
        hint = near_names_hint(name, PRECISIONS, see_all="gpuplan estimate --help")
        raise UsageError(f"unknown precision `{name}`", hint=hint)
    return meant


def get_keras_policy(precision: str) -> str:
    """Return the Keras dtype policy of a precision; TF32 affects only products of float32."""
    return "float32" if precision == "tf32" else precision


def count_tokens(number: float | None) -> int | None:
    """Return tokens as a whole number, None if none were given; UsageError if not positive or too large."""
    if number is None:
        return None
    require_positive(number, what="--tokens", example="1e9", most=MAX_TOKENS)
    return max(1, round(number))


def compute_run_steps(*, samples: int | None, batch_size: int, epochs: int | None) -> int | None:
    """Return the optimizer steps of a run [-]: ceil(samples / batch_size) × epochs; None if unknown.

    A smaller last batch of an epoch counts as a step, as in `fit()`.
    """
    return None if samples is None or epochs is None else math.ceil(samples / batch_size) * epochs


def format_typed_duration(duration_s: float) -> str:
    """Format a duration as on the command line.

    Example:
        >>> format_typed_duration(600.0), format_typed_duration(90.0), format_typed_duration(0.5)
        ('10m', '90s', '0.5s')
    """
    minutes, rest_s = divmod(duration_s, SECONDS_PER_MINUTE)
    return f"{minutes:g}m" if minutes and not rest_s else f"{duration_s:g}s"


# An ArraySpec, or dicts, lists and tuples of them, nested like the data; None if not given.
SpecTree = Any


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Shape and type of one array of a batch."""

    shape: tuple[int, ...]  # shape of one sample, without the batch dimension; `()` for one number per sample [-]
    dtype: str  # NumPy name of the type (`float32`, `int64`, `bfloat16`)


def map_specs(function: Callable[[Any], Any], tree: Any) -> Any:
    """Apply a function to every leaf of a nested structure: specs, or the arrays of data; None stays None.

    Example:
        >>> map_specs(lambda spec: spec.shape, {"a": ArraySpec((2,), "int32"), "b": None})
        {'a': (2,), 'b': None}
    """
    if isinstance(tree, dict):
        return {key: map_specs(function, value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)([map_specs(function, value) for value in tree])
    return None if tree is None else function(tree)


def iter_specs(tree: Any) -> Iterator[Any]:
    """Yield every leaf of a nested structure, in order: specs, or the arrays of data."""
    if isinstance(tree, (dict, list, tuple)):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from iter_specs(value)
    elif tree is not None:
        yield tree
