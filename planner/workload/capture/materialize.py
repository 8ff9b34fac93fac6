"""Models with weights of shape and type only, for tracing, and with real weights, for execution."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import keras

from ...errors import GpuplanError
from ..build.assemble import RunProperties, read_input_specs, resolve_batch_size, without_device_pinning
from ..build.fit_inputs import build_output, build_training_state, compile_model, read_fit_inputs, validate_names
from ..build.model_facts import change_layers_on_shapes, recompute_layers
from ..errors import build_user_code_error
from ..keras_layers import replacing
from ..options import SpecTree, WorkloadOptions, get_keras_policy
from ..reference import Reference
from ..trace.jax.instrumentation import recompute_with_flags
from ..trace.jax.step import export_step
from .training_loops import TimedLoop

NOT_ABSTRACT = "this Keras version allocates weights while it builds, so the model must fit in memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutableModel:
    """An executable model."""

    model: Any  # model, built and (for training) compiled
    # x, y, sample_weight: specs of one sample, nested like the data
    x: SpecTree
    y: SpecTree
    sample_weight: SpecTree
    output: Any
    batch_size: int  # batch size: requested, captured, fixed by the model, or Keras's default [-]
    samples: int | None  # samples of an epoch; None if unknown [-]
    arguments: dict[str, Any] | None = None  # arguments of the script's `fit()` by name; None without a script
    notes: tuple[str, ...] = ()


def set_precision(precision: str | None) -> None:
    """Set the dtype policy, and keep the user's code from changing it."""
    if precision is None:
        return
    keras.config.set_dtype_policy(get_keras_policy(precision))
    for module in (keras.config, keras.mixed_precision):
        vars(module).update(dict.fromkeys(("set_dtype_policy", "set_global_policy"), lambda policy: None))


def build_and_use(
    reference: Reference,
    use: Callable[[ExecutableModel], NoReturn],
    *,
    base: Path,
    scratch: Path,
    options: WorkloadOptions,
    argv: Sequence[str] = (),
    loop: TimedLoop | None = None,
) -> NoReturn:
    """Build the model of a reference and pass it on; for a script, from inside the wanted `fit()`.

    `use` must end the process or raise; `scratch` is a temporary folder; options and errors are as for tracing.
    """
    from ..build.from_reference import build_model
    from .follow import follow_one_fit, skip_pretrained_weights
    from .stand_in_data import StandInData

    validate_names(loss=options.loss, optimizer=options.optimizer)
    folder = reference.folder(base)
    skip_pretrained_weights()
    terms = replace(options.script.data, samples=options.samples)
    stand_ins = StandInData(terms, folder=scratch, own=folder).install()
    text, folders = reference.text, (str(folder),)

    def on_fit(model: Any, arguments: dict[str, Any]) -> NoReturn:
        feed = read_fit_inputs(arguments)
        run = RunProperties(text=text, feed=feed, folders=folders, notes=tuple(stand_ins.notes))
        use(build_executable(model, run, options, arguments))

    if reference.kind == "script" and reference.path is not None:
        call = options.fit_call
        follow_one_fit(reference.path, on_fit, text=text, argv=argv, fit_call=call, folder=scratch, loop=loop)
    model = build_model(reference, base=base, precision=options.precision)
    use(build_executable(model, RunProperties(text=text, folders=folders), options, None))


def build_executable(
    model: Any, run: RunProperties, options: WorkloadOptions, arguments: dict[str, Any] | None
) -> ExecutableModel:
    """Build an executable model, compiled if necessary; `arguments` are those of the script's fit()."""
    notes = list(run.notes)
    batch_size = resolve_batch_size(model, run, options, notes)
    feed = run.feed
    try:
        x, y = read_input_specs(model, run.text) if feed.x is None else feed.x, feed.y
        notes += recompute_layers(model, options)
        output = build_output(model, x, batch_size, mode=options.mode)
        if options.mode == "train":
            y = compile_model(model, output, feed, options=options, notes=notes)
    except (GpuplanError, MemoryError):
        raise
    except Exception as error:
        raise build_user_code_error(error, name=run.text, doing="cannot be built", folders=run.folders) from error
    return ExecutableModel(
        model=model,
        x=x,
        y=y,
        sample_weight=feed.sample_weight,
        output=output,
        batch_size=batch_size,
        samples=options.samples or feed.samples,
        arguments=arguments,
        notes=tuple(notes),
    )


def lower_model(model: Any, run: RunProperties, options: WorkloadOptions, *, platform: str) -> bytes:
    """Return the serialized StableHLO module of a step."""
    ready = build_executable(model, run, options, None)
    data, batch_size = ready.x, ready.batch_size
    try:
        if options.mode == "train":
            data = build_training_state(model, data, ready.y, ready.output, feed=run.feed, batch_size=batch_size)
        with without_device_pinning(ready.model):
            return export_step(ready.model, data, batch_size=batch_size, mode=options.mode, platform=platform)
    except (GpuplanError, MemoryError):
        raise
    except Exception as error:
        doing = f"cannot be lowered for {platform}"
        raise build_user_code_error(error, name=run.text, doing=doing, folders=run.folders) from error


def _keep_initializer(variable: Any, initializer: Any) -> None:
    """Replace Keras's initialization outside scopes: keep the initializer, and determine the layout."""
    getattr(variable, "_initialize_layout", lambda: None)()  # of Keras on JAX
    variable._value = None
    variable._initializer = initializer


# The second one initializes the variables created in a scope, at its end.
_REPLACEMENTS = {"_initialize_with_initializer": _keep_initializer, "_deferred_initialize": lambda variable: None}


@contextmanager
def abstract_variables() -> Iterator[bool]:
    """Let variables created from an initializer keep shape, type and initializer, but no value.

    A value that is read is drawn from the initializer at that moment. Yields False, and models are built normally,
    if the installed Keras lacks a private method to replace.
    """
    lineage = keras.Variable.__mro__
    replaced = [(cls, name, new) for cls in lineage for name, new in _REPLACEMENTS.items() if name in vars(cls)]
    if {name for _, name, _ in replaced} != set(_REPLACEMENTS):
        yield False
        return
    # A layer's shapes are found by tracing its call.
    with replacing(*replaced), recompute_with_flags(), change_layers_on_shapes():
        yield True
