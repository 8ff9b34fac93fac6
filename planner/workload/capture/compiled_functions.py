"""Functions of the user's that a backend compiles: traced where they train, and answered with zeros."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, update_wrapper
from types import MethodType
from typing import TYPE_CHECKING, Any

from ..errors import is_own_file
from .training_loops import LoopStep, TrainingLoops, hold_models

if TYPE_CHECKING:
    from .training_loops import Updates


def follow_jit(loops: TrainingLoops, folder: str, *, has_trained: Callable[[], bool]) -> Callable[..., Any]:
    """Return a replacement of `jax.jit` that follows the functions of the user's own files.

    Args:
        loops: Receives the steps.
        folder: Folder of the user's own files.
        has_trained: Function that tells whether a step was found before: other functions are then not computed.
    """
    import jax

    compile_function = jax.jit

    def jit(function: Any = None, /, **options: Any) -> Any:
        if not is_own_file(sys._getframe(1).f_code.co_filename, folder):
            return compile_function(function, **options) if function is not None else compile_function(**options)
        if function is None:
            return lambda function: _JittedFunction(
                function, compile_function(function, **options), options, follow
            )
        return _JittedFunction(function, compile_function(function, **options), options, follow)

    def follow(one: _JittedFunction, args: Any, named: Any) -> Any:
        if loops.is_tracing or any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((args, named))):
            return one.compiled(*args, **named)
        key = str(jax.tree.map(_describe_leaf, (args, named)))
        if key not in one.known:
            one.known[key] = loops.trace(partial(one.trace, args, named))
        traced, updates = one.known[key]
        if updates:
            loops.add_compiled(partial(_build_jax_step, traced, updates, args))
        elif not has_trained():
            return one.compiled(*args, **named)
        return jax.tree.map(_build_zeros, traced.results)

    return jit


class _JittedFunction:
    """A function under `jax.jit`."""

    def __init__(self, function: Any, compiled: Any, options: dict[str, Any], follow: Callable[..., Any]) -> None:
        self.function, self.compiled, self._options, self._follow = function, compiled, options, follow
        self.known: dict[str, tuple[Any, Updates]] = {}
        update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._follow(self, args, named)

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else MethodType(self, owner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.compiled, name)

    def trace(self, args: Any, named: Any) -> Any:
        """Return the function traced for the shapes of some arguments."""
        import jax

        from ..trace.jax.step import trace_function

        fixed = self._options.get("static_argnums") or ()
        fixed = tuple(sorted({one % len(args) for one in ((fixed,) if isinstance(fixed, int) else fixed)}))
        names = self._options.get("static_argnames") or ()
        kept = {
            name: value for name, value in named.items() if name in ((names,) if isinstance(names, str) else names)
        }
        shapes = [one if n in fixed else jax.tree.map(_abstract, one) for n, one in enumerate(args)]
        rest = {name: jax.tree.map(_abstract, value) for name, value in named.items() if name not in kept}
        return trace_function(partial(self.function, **kept), shapes, rest, fixed=fixed)


def _abstract(leaf: Any) -> Any:
    """Return shape and type of an array or variable; another value as it is."""
    import jax

    if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        return leaf
    dtype = leaf.dtype if not isinstance(leaf.dtype, str) else jax.dtypes.canonicalize_dtype(leaf.dtype)
    return jax.ShapeDtypeStruct(tuple(leaf.shape), dtype)


def _describe_leaf(leaf: Any) -> Any:
    return (tuple(leaf.shape), str(leaf.dtype)) if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else leaf


def _build_zeros(spec: Any) -> Any:
    """Return zeros as a step would return them, of which arrays take no memory."""
    import jax
    import numpy as np

    if jax.dtypes.issubdtype(spec.dtype, jax.dtypes.extended):
        return jax.numpy.zeros(spec.shape, spec.dtype)
    return np.broadcast_to(np.zeros((), spec.dtype), spec.shape) if spec.shape else jax.numpy.zeros((), spec.dtype)


def _build_jax_step(traced: Any, updates: Updates, args: Any) -> LoopStep:
    import jax

    from ..trace.jax.step import compute_array_bytes

    model = hold_models(updates)
    shapes = [(tuple(leaf.shape), str(leaf.dtype)) for leaf in traced.closed.in_avals]
    wanted = [[(tuple(v.shape), str(v.dtype)) for v in variables] for _, variables in updates]
    trained = [position for run in wanted for position in _find_run(shapes, run)]
    batch = [leaf for leaf in jax.tree.leaves(args[1:]) if getattr(leaf, "shape", ())]
    fed = sum(compute_array_bytes(tuple(leaf.shape), str(leaf.dtype)) for leaf in batch)
    step = traced.tabulate(model, trained=trained, input_bytes=fed)
    return LoopStep(model, step, int(batch[0].shape[0]) if batch else 1, True)


def _find_run(shapes: list[Any], wanted: list[Any]) -> range:
    """Return where a sequence stands in another one; an empty range if it does not."""
    size = len(wanted)
    starts = (n for n in range(len(shapes) - size + 1) if shapes[n : n + size] == wanted)
    first = next(starts, None)
    return range(0) if first is None else range(first, first + size)


def follow_tensorflow(loops: TrainingLoops, folder: str, *, has_trained: Callable[[], bool]) -> Callable[..., Any]:
    """Return a replacement of the call of a `tf.function`; the arguments are those of `follow_jit`."""
    from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

    call_function = Function.__call__
    known: dict[tuple[int, str], tuple[Any, Updates, Any]] = {}

    def call(self: Any, *args: Any, **named: Any) -> Any:
        import tensorflow as tf

        own = is_own_file(sys._getframe(1).f_code.co_filename, folder)
        if loops.is_tracing or not tf.executing_eagerly() or not own:
            return call_function(self, *args, **named)
        key = id(self), str(tf.nest.map_structure(_describe_leaf, (args, named)))
        if key not in known:
            concrete, updates = loops.trace(partial(self.get_concrete_function, *args, **named))
            known[key] = concrete, updates, self
        concrete, updates, _ = known[key]
        if updates:
            loops.add_compiled(partial(_build_tensorflow_step, concrete, updates, self, (args, named)))
        elif not has_trained():
            return call_function(self, *args, **named)
        return tf.nest.map_structure(_build_tensorflow_zeros, concrete.structured_outputs)

    return call


def _build_tensorflow_zeros(tensor: Any) -> Any:
    import tensorflow as tf

    return None if tensor is None else tf.zeros([size or 1 for size in tensor.shape], tensor.dtype)


def _build_tensorflow_step(concrete: Any, updates: Updates, function: Any, given: Any) -> LoopStep:
    import tensorflow as tf

    from ..trace.backends.current import build_unfused
    from ..trace.backends.tensorflow_step import list_graph_rows

    model = hold_models(updates)
    batch = [leaf for leaf in tf.nest.flatten(given) if getattr(leaf, "shape", ())]
    fed = sum(int(tf.size(leaf)) * leaf.dtype.size for leaf in batch if hasattr(leaf.dtype, "size"))
    rows = list_graph_rows(concrete.graph, [optimizer for optimizer, _ in updates])
    step = build_unfused(model, rows, train=True, input_bytes=fed)
    compiled = bool(getattr(function, "_jit_compile", False))
    return LoopStep(model, step, int(batch[0].shape[0]) if batch else 1, compiled)
