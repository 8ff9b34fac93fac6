"""Calls of layers in a traced step: where a pipeline can cut it, and what each part holds and sends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import accumulate
from typing import Any, NamedTuple

from ...keras_layers import iterate_layers, iterate_models
from ...layer_calls import KeptValues, LayerCalls, SharedWeights
from .fusion import Fusion
from .graph import Graph, Node
from .liveness import compute_call_memory

_CONVERSIONS = ("convert_element_type", "transpose")


class LayerNames(NamedTuple):
    """Names of a model with the models in it, and of the layers that they are made of."""

    models: Set[str]
    layers: Set[str]

    @staticmethod
    def read(model: Any) -> LayerNames:
        """Return the names of a Keras model."""
        return LayerNames(
            {one.name for one in iterate_models(model)}, {one.name for one in iterate_layers(model)}
        )

    def find_layer(self, path: str) -> str:
        """Return the path of the layer that a path lies in; empty for none.

        Example:
            >>> LayerNames({"backbone"}, {"block_1"}).find_layer("backbone/block_1/attention/query")
            'backbone/block_1'
        """
        parts = path.split("/")
        outside = next((index for index, part in enumerate(parts) if part not in self.models), len(parts))
        found = outside < len(parts) and parts[outside] in self.layers
        return "/".join(parts[: outside + 1]) if found else ""


def number_layer_calls(graph: Graph, names: LayerNames) -> tuple[str, ...]:
    """Set `layer_call` of the nodes of both passes, and return the layer of each call in the forward order.

    The backward pass visits the calls in reverse; of a layer that was called at several places, a node belongs to
    the call nearest to that of the node before it.

    Args:
        graph: The simplified step.
        names: Names of the model.
    """
    calls: list[str] = []
    for node in graph.nodes:
        if node.phase == "forward":
            layer = names.find_layer(node.layer)
            if layer and layer not in calls[-1:]:
                calls.append(layer)
            node.layer_call = max(0, len(calls) - 1)
    places: dict[str, list[int]] = {}
    for number, layer in enumerate(calls):
        places.setdefault(layer, []).append(number)
    current = max(0, len(calls) - 1)
    for node in graph.nodes:
        if node.phase == "backward":
            known = places.get(names.find_layer(node.layer), [current])
            current = min(known, key=lambda number: (abs(number - current), number))
            node.layer_call = current
    return tuple(calls)


def describe_layer_calls(
    graph: Graph, fusion: Fusion, *, calls: tuple[str, ...], names: LayerNames
) -> LayerCalls | None:
    """Return the calls of a training step with their variables and values; None for a model without layers.

    Args:
        graph: The simplified step, its nodes numbered by `number_layer_calls`.
        fusion: Its kernels, which decide what is kept for the backward pass.
        calls: Layer of each call.
        names: Names of the model.
    """
    if not calls:
        return None
    sources = _find_sources(graph)
    readers = _find_variable_readers(graph, names, sources)
    memory = compute_call_memory(graph, fusion, calls=len(calls))
    return LayerCalls(
        names=calls,
        parameter_bytes=_sum_by_first_reader(graph, graph.parameters, readers, calls=len(calls)),
        state_bytes=_sum_by_first_reader(graph, graph.frozen, readers, calls=len(calls)),
        crossing_bytes=_compute_crossing_bytes(graph, sources, calls=len(calls)),
        transient_bytes=memory.transient_bytes,
        kept=tuple(KeptValues(calls=one, size_bytes=size) for one, size in sorted(memory.kept.items())),
        shared=tuple(_iterate_shared(graph, readers)),
    )


def _find_sources(graph: Graph) -> dict[int, int]:
    """Return the inputs of the step and their conversions, by the input that each is made of."""
    sources = {value: value for value in graph.inputs}
    for node in graph.nodes:
        if node.name in _CONVERSIONS and node.inputs and node.inputs[0] in sources:
            sources.update(dict.fromkeys(node.outputs, sources[node.inputs[0]]))
    return sources


def _find_variable_readers(
    graph: Graph, names: LayerNames, sources: Mapping[int, int]
) -> dict[int, tuple[int, ...]]:
    """Return the calls that read each input in the forward pass.

    Work outside layers counts only for inputs that no layer reads: a penalty on weights is part of the loss.
    """
    inside: dict[int, set[int]] = {}
    outside: dict[int, set[int]] = {}
    for node in _iterate_forward(graph):
        found = inside if names.find_layer(node.layer) else outside
        for value in node.inputs:
            if value in sources:
                found.setdefault(sources[value], set()).add(node.layer_call)
    return {value: tuple(sorted(read)) for value, read in {**outside, **inside}.items()}


def _iterate_forward(graph: Graph) -> Iterator[Node]:
    return (node for node in graph.nodes if node.phase == "forward")


def _sum_by_first_reader(
    graph: Graph, variables: Sequence[int], readers: Mapping[int, tuple[int, ...]], *, calls: int
) -> tuple[int, ...]:
    """Return the size of the variables of each call; those that none reads count for the first [bytes]."""
    sizes = [0] * calls
    for value in variables:
        sizes[readers.get(value, (0,))[0]] += graph.sizes[value]
    return tuple(sizes)


def _iterate_shared(graph: Graph, readers: Mapping[int, tuple[int, ...]]) -> Iterator[SharedWeights]:
    sizes: dict[tuple[int, ...], int] = {}
    for value in graph.parameters:
        read = readers.get(value, ())
        if len(read) > 1:
            sizes[read] = sizes.get(read, 0) + graph.sizes[value]
    return (SharedWeights(calls=read, size_bytes=size) for read, size in sorted(sizes.items()))


def _compute_crossing_bytes(graph: Graph, sources: Mapping[int, int], *, calls: int) -> tuple[int, ...]:
    """Return the size of the values that are live between each call and those before it [bytes]."""
    made = {value: node.layer_call for node in _iterate_forward(graph) for value in node.outputs}
    last: dict[int, int] = {}
    for node in _iterate_forward(graph):
        for value in node.inputs:
            if value in made and value not in sources:
                last[value] = max(node.layer_call, last.get(value, 0))
    changes = [0] * (calls + 1)
    for value, end in last.items():
        if end > made[value]:
            changes[made[value] + 1] += graph.sizes[value]
            changes[end + 1] -= graph.sizes[value]
    return tuple(accumulate(changes[:calls]))
