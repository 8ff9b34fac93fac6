"""Shape and type of a model's input, without data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

# An ArraySpec, or dicts, lists and tuples of them, nested like the data; None if not given.
SpecTree = Any


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Shape and type of one array of a batch.

    Args:
        shape: Shape of one sample, without the batch dimension; `()` for one number per sample [-].
        dtype: NumPy name of the type (`float32`, `int64`, `bfloat16`).
    """

    shape: tuple[int, ...]
    dtype: str


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
    """Yield every leaf of a nested structure, in order: specs, or the arrays of data.

    Example:
        >>> [leaf.dtype for leaf in iter_specs((ArraySpec((), "int32"), [ArraySpec((3,), "float32")]))]
        ['int32', 'float32']
    """
    if isinstance(tree, (dict, list, tuple)):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from iter_specs(value)
    elif tree is not None:
        yield tree
