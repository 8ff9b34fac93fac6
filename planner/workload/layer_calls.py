"""Calls of layers in the order of the forward pass, and what a cut between two of them separates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..frozen import Frozen


class KeptValues(Frozen):
    """Results of the forward pass that the same calls need in the backward pass.

    Args:
        calls: Calls whose backward pass reads them [-].
        size_bytes: All of them together [bytes].
    """

    calls: tuple[int, ...]
    size_bytes: int


class SharedWeights(Frozen):
    """Trained parameters that more than one call reads, such as tied embeddings.

    Args:
        calls: Calls that read them, in order [-].
        size_bytes: All of them together [bytes].
    """

    calls: tuple[int, ...]
    size_bytes: int


class LayerCalls(Frozen):
    """Calls of layers in the order of the forward pass; `Op.layer_call` is an index into them.

    A layer is an entry of `model.layers`; nested models count by theirs. Operations between two calls belong to
    the first of them, the loss to the last call. Calls without work (inputs, reshapes) are left out.

    Args:
        names: Path of each layer; a layer that is called at two places has two entries.
        parameter_bytes: Trained parameters of each call; those that were read before count for the first [bytes].
        state_bytes: Frozen parameters and statistics of each call, in the same way [bytes].
        crossing_bytes: Results of all earlier calls that this call or a later one reads, without weights and the
            batch [bytes].
        transient_bytes: Largest memory during the forward and the backward pass of each call besides what is kept
            between the two [bytes].
        kept: Results that are kept between the forward and the backward pass, by the calls that need them.
        shared: Weights that several calls read.
    """

    names: tuple[str, ...]
    parameter_bytes: tuple[int, ...]
    state_bytes: tuple[int, ...]
    crossing_bytes: tuple[int, ...]
    transient_bytes: tuple[int, ...]
    kept: tuple[KeptValues, ...]
    shared: tuple[SharedWeights, ...] = ()

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> LayerCalls:
        """Parse plain JSON types."""
        groups = {"kept": KeptValues, "shared": SharedWeights}
        fields: dict[str, Any] = {
            name: tuple(groups[name](calls=tuple(one["calls"]), size_bytes=one["size_bytes"]) for one in rows)
            if name in groups
            else tuple(rows)
            for name, rows in data.items()
        }
        return LayerCalls(**fields)
