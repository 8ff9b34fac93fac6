"""Schedule of a pipeline of micro-batches: waiting, micro-batches in flight, and the cut of a model in stages.

The schedule is that of PipeDream-Flush, "1F1B": once the pipeline is filled, each stage works in turn on the
forward pass of one micro-batch and on the backward pass of another, and all are updated when it is empty again
(Narayanan et al., 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
arXiv:2104.04473, section 2.2.1). It takes as long as GPipe's (Huang et al., 2019, "GPipe: Efficient Training of
Giant Neural Networks using Pipeline Parallelism", arXiv:1811.06965, section 2.3), and keeps fewer activations.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def compute_bubble_share(*, stages: int, micro_batches: int) -> float:
    """Return the share of a step in which a device waits, (N - 1) / (m + N - 1) [-].

    Huang et al., 2019, section 2.3; relative to the time without waiting it is (N - 1) / m (Narayanan et al.,
    2021, section 2.2.1). Valid for stages that take equally long.

    Args:
        stages: Stages of the pipeline, N [-].
        micro_batches: Micro-batches of a step, m [-].

    Example:
        >>> compute_bubble_share(stages=4, micro_batches=12)
        0.2
    """
    return (stages - 1) / (micro_batches + stages - 1)


def compute_pipeline_s(slot_s: float, *, stages: int, micro_batches: int) -> float:
    """Return the time from the first forward pass to the last backward pass, (m + N - 1) slots [s].

    Narayanan et al., 2021, section 2.2.1: m slots of work, and N - 1 to fill and to drain the pipeline.

    Args:
        slot_s: Forward and backward pass of one micro-batch on the slowest stage, with its transfers [s].
        stages: Stages of the pipeline, N [-].
        micro_batches: Micro-batches of a step, m [-].

    Example:
        >>> compute_pipeline_s(0.5, stages=4, micro_batches=13)
        8.0
    """
    return (micro_batches + stages - 1) * slot_s


def count_in_flight(stage: int, *, stages: int, micro_batches: int) -> int:
    """Return the micro-batches whose activations a stage keeps at a time: min(m, N - i) [-].

    Narayanan et al., 2021, section 2.2.1; GPipe keeps all of them.

    Args:
        stage: Number of the stage, from 0 [-].
        stages: Stages of the pipeline, N [-].
        micro_batches: Micro-batches of a step, m [-].

    Example:
        >>> [count_in_flight(stage, stages=4, micro_batches=8) for stage in range(4)]
        [4, 3, 2, 1]
    """
    return min(micro_batches, stages - stage)


def cut_in_stages(costs: Sequence[float], cuts: Sequence[Sequence[float]]) -> tuple[int, ...]:
    """Return the bounds of contiguous stages whose slowest is as fast as possible.

    The linear partition problem by dynamic programming: with f(k, j) the slowest of k + 1 stages of the first j
    layers, f(k, j) = min over i of max(f(k - 1, i), cost of i..j). As opposed to bisection over the slowest, it
    takes costs of the cuts into account, which differ from layer to layer.

    Args:
        costs: Cost of each layer; at least one for each stage.
        cuts: For each boundary between stages, the cost of a cut before each layer, on both sides of it.

    Example:
        >>> cut_in_stages([3.0, 1.0, 1.0, 2.0, 2.0], [[0.0] * 5])
        (0, 2, 5)
    """
    import numpy as np

    layers, stages = len(costs), len(cuts) + 1
    sums = np.concatenate([[0.0], np.cumsum(costs)])
    edges = [np.zeros(layers + 1), *(np.append(one, 0.0) for one in cuts), np.zeros(layers + 1)]
    slowest = np.where(np.arange(layers + 1) == 0, 0.0, np.inf)
    chosen = []
    for before, after in pairwise(edges):
        whole = sums[None, :] - sums[:, None] + before[:, None] + after[None, :]
        whole[np.tril_indices(layers + 1)] = np.inf  # a stage has at least one layer
        tried = np.maximum(slowest[:, None], whole)
        chosen.append(tried.argmin(axis=0))
        slowest = tried.min(axis=0)
    bounds = [layers]
    for number in reversed(range(stages)):
        bounds.append(int(chosen[number][bounds[-1]]))
    return tuple(reversed(bounds))
