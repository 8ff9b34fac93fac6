"""Assembly of a workload from a Keras model and its input: compile, build, trace, count."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from math import prod
from typing import Any, Literal

import jax
import keras
from keras.src.backend.common import global_state

from ...errors import GpuplanError, UsageError
from ..accumulation import build_accumulation_pass
from ..backend import get_user_backend
from ..errors import NOT_TRACED, BackendError, build_user_code_error, is_raised_by_user
from ..keras_layers import replacing
from ..model import DeviceLayout, Strategy, Workload
from ..ops import Mode
from ..options import DEFAULT_BATCH_SIZE, ArraySpec, SpecTree, WorkloadOptions
from ..trace.division.spec import Placement, find_distribution, place_in_parts
from ..trace.jax.step import TracedStep, build_device_layout, build_unfused, compute_batch_bytes, trace_step
from .fit_inputs import (
    FitInputs,
    build_output,
    build_training_state,
    compile_model,
    get_attribute,
    require_backend_of_step,
    validate_names,
)
from .model_facts import (
    NAME,
    find_layer_sizes,
    find_precision,
    find_tokens_per_sample,
    note_model,
    recomputing_layers,
    updating_in_every_step,
)

# Values of `jax_default_matmul_precision` without TF32 (docs.jax.dev, `jax.lax.Precision`).
FULL_FLOAT32 = ("highest", "float32", "F32_F32_F32")


def find_tf32_products() -> Literal["all", "convolutions", "none"]:
    """Return the float32 products that may run in TF32, by the settings of the backend, and of TensorFlow."""
    if keras.backend.backend() == "torch":
        torch = sys.modules["torch"]
        if torch.get_float32_matmul_precision() != "highest":
            return "all"
        return "convolutions" if torch.backends.cudnn.allow_tf32 else "none"
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and not tensorflow.config.experimental.tensor_float_32_execution_enabled():
        return "none"
    return "none" if jax.config.jax_default_matmul_precision in FULL_FLOAT32 else "all"


PACKAGES_OF = {"tensorflow": ("tensorflow", "tensorflow-cpu"), "torch": ("torch",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProperties:
    """Properties of a run besides the model."""

    text: str  # reference as given by the user
    feed: FitInputs = field(default_factory=FitInputs)  # input of `fit()`; empty if there was none
    folders: tuple[str, ...] = ()  # of the user's files, to locate the line of an error
    compiled: bool | None = None  # whether XLA compiles the step; None for the model's setting
    notes: tuple[str, ...] = ()  # sentences for the user
    states_devices: bool = False  # whether the user's code states the number of its devices
    strategy: Strategy | None = None  # of `tf.distribute` in the user's code


class ModelAssembler:
    """Workloads of one model, each as of one built anew; on TensorFlow and PyTorch, a traced model is unusable."""

    def __init__(self, model: Any, *, run: RunProperties) -> None:
        self.model, self.run = model, run
        self._compiled: tuple[SpecTree, list[str]] | None = None  # its targets, and notes
        self._names: dict[str, int] | None = None
        self._traced: dict[bool, dict[Any, Any]] = {}  # known steps, by `options.remat`

    def assemble(self, options: WorkloadOptions) -> Workload:
        """Trace one step and build the workload; `OF_STEP` of the options may differ between calls.

        Raises UsageError for inputs of no fixed shape or unfit options, CaptureError where its own code failed.
        """
        model, run = self.model, self.run
        validate_names(loss=options.loss, optimizer=options.optimizer)
        if options.mode == "train":
            require_backend_of_step(model, run.text)
        notes = list(run.notes)
        batch_size = resolve_batch_size(model, run, options, notes)
        try:
            return self._assemble(options, batch_size=batch_size, notes=notes)
        except (GpuplanError, MemoryError):
            raise
        except Exception as error:
            fault = build_user_code_error(error, name=run.text, doing=NOT_TRACED, folders=run.folders)
            if isinstance(fault, BackendError) or is_raised_by_user(error):
                raise fault from error
            raise BackendError(str(fault), hint=fault.hint, backend=None) from error

    def _assemble(self, options: WorkloadOptions, *, batch_size: int, notes: list[str]) -> Workload:
        model, run, feed = self.model, self.run, self.run.feed
        x = read_input_specs(model, run.text) if feed.x is None else feed.x
        strategy = getattr(model, "_distribute_strategy", None)  # of TensorFlow, under which it was made
        scope = nullcontext() if strategy is None else strategy.scope()
        with scope, recomputing_layers(model, options) as recomputed:
            notes += recomputed
            output = build_output(model, x, batch_size, mode=options.mode)
            data = x
            if options.mode == "train":
                if self._compiled is None:
                    own: list[str] = []
                    self._compiled = compile_model(model, output, feed, options=options, notes=own), own
                y, compile_notes = self._compiled
                notes += compile_notes
                data = build_training_state(model, x, y, output, feed=feed, batch_size=batch_size)
            placement = scripted = find_distribution(model, mode=options.mode)
            if options.tensor is not None:
                placement = place_in_parts(model, options.tensor, mode=options.mode)
            # Keras's counters of names are set as at the first call, so that each trace gives the same names.
            counters: Any = global_state.get_global_attribute("object_name_uids", {}, set_to_default=True)
            self._names = dict(counters) if self._names is None else self._names
            counters.clear()
            counters.update(self._names)
            with without_device_pinning(model), updating_in_every_step(model) as accumulation_steps:
                traced = self._trace(data, options, batch_size=batch_size, placement=placement)
        if accumulation_steps > 1:
            often = f"once in {accumulation_steps} steps of `fit()`"
            notes.append(f"the optimizer updates {often} (`{NAME}={accumulation_steps}`)")
        notes += traced.notes
        workload = replace(
            build_workload(model, run, options, traced, batch_size=batch_size, notes=notes),
            layout=self._build_layout(scripted, mode=options.mode),
            tokens_per_sample=find_tokens_per_sample(x, output),
        )
        return build_accumulation_pass(workload, accumulation_steps, has_sums=True)

    def _build_layout(self, placement: Placement | None, *, mode: Mode) -> DeviceLayout | None:
        """Return the layout by the strategy of the user's code, or by its distribution; None without one."""
        strategy, takes_all = self.run.strategy, not self.run.states_devices
        if strategy is not None:
            sizes = {} if strategy.devices is None else {"replica": strategy.devices}
            placement, takes_all = Placement(sizes=sizes, replicas=frozenset(sizes)), not sizes
        elif placement is None:
            return None
        else:
            takes_all &= prod(placement.sizes.values()) == jax.device_count()
        layout = build_device_layout(self.model, placement, mode=mode, takes_all=takes_all)
        return layout if strategy is None else replace(layout, keeps_batch=strategy.keeps_batch)

    def _trace(
        self, data: SpecTree, options: WorkloadOptions, *, batch_size: int, placement: Placement | None
    ) -> TracedStep:
        """Trace a step on Keras's backend; on TensorFlow and PyTorch, nothing is fused or divided."""
        mode, backend = options.mode, keras.backend.backend()
        if backend == "jax":
            how: dict[str, Any] = {"known": self._traced.setdefault(options.remat, {}), "derives": options.derives}
            return trace_step(self.model, data, batch_size=batch_size, mode=mode, placement=placement, **how)
        if backend == "torch":
            from ..trace.backends.torch_step import trace_torch_step as trace_ops
        else:
            from ..trace.backends.tensorflow_step import trace_tensorflow_step as trace_ops
        ops = trace_ops(self.model, data, batch_size=batch_size, mode=mode)
        input_bytes = compute_batch_bytes(data, batch_size)
        return build_unfused(self.model, ops, train=mode == "train", input_bytes=input_bytes)


def build_workload(
    model: Any,
    run: RunProperties,
    options: WorkloadOptions,
    traced: TracedStep,
    *,
    batch_size: int,
    notes: list[str],
) -> Workload:
    precision, quantization = find_precision(model)
    found = keras.distribution.distribution()
    return Workload(
        model=run.text,
        mode=options.mode,
        batch_size=batch_size,
        precision=options.precision or precision,
        quantization=quantization,
        compiled=run.compiled if run.compiled is not None else bool(model.jit_compile) and not model.run_eagerly,
        parameters=sum(prod(v.shape) for v in model.weights),
        trainable_parameters=sum(prod(v.shape) for v in model.trainable_weights),
        memory=traced.memory,
        ops=traced.ops,
        unmodelled=traced.unmodelled,
        notes=(*notes, *note_model(model, traced.ops, options)),
        versions=_read_versions(),
        distribution=run.strategy.name if run.strategy else "" if found is None else type(found).__name__,
        tf32=find_tf32_products(),
        fused_attention=traced.fused_attention,
        layer_sizes=find_layer_sizes(model),
        divided=traced.divided,
    )


def resolve_batch_size(model: Any, run: RunProperties, options: WorkloadOptions, notes: list[str]) -> int:
    """Return the batch size: as requested, else captured, else fixed by the model, else Keras's default."""
    inputs = get_attribute(model, "inputs") or ()
    fixed = next((tensor.shape[0] for tensor in inputs if tensor.shape[0] is not None), None)
    if fixed is not None and options.batch_size not in (None, fixed):
        hint = "omit `batch_size` in `keras.Input` to allow any size"
        fixes = f"--batch-size {options.batch_size}: the inputs of `{run.text}` fix it to {fixed}"
        raise UsageError(fixes, hint=hint)
    known = options.batch_size or run.feed.batch_size or fixed
    if known is None:
        notes.append(f"no batch size is given: {DEFAULT_BATCH_SIZE}, the default of fit()")
    return known or DEFAULT_BATCH_SIZE


def read_input_specs(model: Any, text: str) -> SpecTree:
    """Return the inputs of a model; of a subclassed one, the shape with which it was built."""
    tensors = get_attribute(model, "input")
    if tensors is None:
        flat = get_attribute(model, "inputs")
        tensors = flat[0] if flat and len(flat) == 1 else flat
    if tensors is not None:
        return keras.tree.map_structure(lambda tensor: _build_input_spec(tensor, text), tensors)
    shape = (model.get_build_config() or {}).get("input_shape") if model.built else None
    if not shape or not all(isinstance(n, int) for n in tuple(shape)[1:]):
        raise UsageError(
            f"the input shape of `{text}` is unknown",
            hint="call it before returning it on `keras.Input` tensors of its shape (`(128,)` for token ids, "
            "`(224, 224, 3)` for images), or use a script that calls fit()",
        )
    return ArraySpec(tuple(shape)[1:], "float32")


def _build_input_spec(tensor: Any, text: str) -> ArraySpec:
    shape = tuple(tensor.shape[1:])
    if None not in shape:
        return ArraySpec(shape, str(tensor.dtype))
    example = {3: "[224,224,3]", 4: "[16,224,224,3]"}.get(len(shape), "[128,64]")
    hint = f"give the builder arguments that fix it, as in `?input_shape={example}`"
    if len(shape) == 1:
        hint = (
            "fix the length of its sequences: return `keras.Model(x, model(x))`, where `x` holds "
            f"`keras.Input((128,), dtype='{tensor.dtype}', name='{tensor.name}')` and so on for each input"
        )
    raise UsageError(
        f"the input `{tensor.name}` of `{text}` has no fixed shape: {tuple(tensor.shape)}",
        hint=f"{hint}, or use a script that calls fit()",
    )


def without_device_pinning(model: Any) -> AbstractContextManager[None]:
    """Keep Keras 3.9 from pinning results to devices of the values of variables, which abstract ones lack."""
    name = "_enforce_jax_state_sharding"
    return replacing((model, name, lambda *parts: parts)) if hasattr(type(model), name) else nullcontext()


def _read_versions() -> dict[str, str]:
    backend = get_user_backend() or keras.backend.backend()  # what the user's run computes on
    installed = {"keras": version("keras"), "jax": version("jax")}
    for package in PACKAGES_OF.get(backend, ()):
        installed.setdefault(backend, "not installed")
        with suppress(PackageNotFoundError):
            installed[backend] = version(package)
    return installed
