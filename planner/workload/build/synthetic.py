"""Random data of a model's shapes and types, for measurements without the data."""

from __future__ import annotations

from math import prod
from typing import Any

from ...units import MIB
from ..array_spec import ArraySpec, SpecTree, iter_specs, map_specs

__all__ = [
    "LARGEST_BYTES",
    "compute_sample_bytes",
    "compute_samples_to_draw",
    "draw_inputs",
    "draw_targets",
]

LARGEST_BYTES = 128 * MIB  # far larger than CPU caches, so that batches are read from memory as in real runs
FEWEST_BATCHES = 8
MOST_BATCHES = 2000


def compute_sample_bytes(*trees: SpecTree) -> int:
    """Return the size of one sample [bytes].

    Example:
        >>> compute_sample_bytes(ArraySpec((28, 28), "float32"), ArraySpec((), "int32"))
        3140
    """
    import numpy as np

    sizes = [
        prod(spec.shape) * _get_numpy_type(spec, np).itemsize for tree in trees for spec in iter_specs(tree)
    ]
    return max(1, int(sum(sizes)))


def compute_samples_to_draw(*, batch_size: int, bytes_per_sample: int, known: int | None) -> int:
    """Return the number of samples to draw: whole batches up to the run's, within `LARGEST_BYTES`.

    Example:
        >>> compute_samples_to_draw(batch_size=128, bytes_per_sample=3140, known=54_000), compute_samples_to_draw(
        ...     batch_size=32, bytes_per_sample=602_116, known=1_281_167)
        (42624, 256)
    """
    wanted = known // batch_size if known is not None else MOST_BATCHES
    room = LARGEST_BYTES // (bytes_per_sample * batch_size)
    return batch_size * max(FEWEST_BATCHES, min(wanted, room, MOST_BATCHES))


def draw_inputs(specs: SpecTree, *, samples: int, model: Any, seed: int = 0) -> Any:
    """Draw random inputs nested like the specs: numbers around 0, image bytes, valid tokens.

    Zeros are avoided, since some processors are faster on zeros. Text has no padding.

    Args:
        specs: Specs of one sample.
        samples: Number of samples [-].
        model: The model, whose smallest embedding bounds integers.
        seed: Of the generator.
    """
    import numpy as np

    random = np.random.default_rng(seed)
    below = _find_smallest_vocabulary(model)
    return map_specs(lambda spec: _draw(spec, samples, random, below=below), specs)


def draw_targets(specs: SpecTree, *, samples: int, output: Any, seed: int = 1) -> Any:
    """Draw random targets: class numbers below the output's width, and numbers between 0 and 1.

    Args:
        specs: Specs of one sample, nested like the output.
        samples: How many [-].
        output: The model's symbolic output, whose last dimension bounds class numbers.
        seed: Of the generator.
    """
    import keras
    import numpy as np

    random = np.random.default_rng(seed)
    widths = [int(out.shape[-1]) if out.shape else 2 for out in keras.tree.flatten(output)]
    leaves = list(iter_specs(specs))
    if len(widths) != len(leaves):
        widths = [min(widths, default=2)] * len(leaves)
    ordered = iter(widths)

    def draw(spec: ArraySpec) -> Any:
        return _draw(spec, samples, random, below=max(2, next(ordered)), positive=True)

    return map_specs(draw, specs)


def _find_smallest_vocabulary(model: Any) -> int:
    sizes = [layer.input_dim for layer in model._flatten_layers() if type(layer).__name__ == "Embedding"]
    return min(sizes, default=2)


def _get_numpy_type(spec: ArraySpec, np: Any) -> Any:
    try:
        return np.dtype(spec.dtype)
    except TypeError:
        return np.dtype("float32")  # bfloat16 is passed as float32 and cast on the device


def _draw(spec: ArraySpec, samples: int, random: Any, *, below: int, positive: bool = False) -> Any:
    import numpy as np

    kind, shape = _get_numpy_type(spec, np), (samples, *spec.shape)
    if kind.kind == "b":
        return random.integers(0, 2, shape).astype(kind)
    if kind == np.uint8 and not positive:
        return random.integers(0, 256, shape, dtype=np.uint8)
    if kind.kind in "iu":
        return random.integers(0, below, shape, dtype=np.int64).astype(kind)
    if positive:
        return random.random(shape, dtype=np.float32).astype(kind)
    return random.standard_normal(shape, dtype=np.float32).astype(kind)
