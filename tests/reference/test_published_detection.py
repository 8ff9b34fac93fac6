"""Matching of anchors in SSD320's step against values worked out by hand."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def detection(monkeypatch: pytest.MonkeyPatch) -> Any:
    folder = Path(str(resources.files("gpuplan.profiles.published")))
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    import vision_detection

    yield vision_detection
    for name in set(sys.modules) - before:
        if name.startswith("vision_"):
            del sys.modules[name]


def assign(detection: Any, boxes: list[list[float]], anchors: list[list[float]]) -> list[Any]:
    """Return the targets of anchors, the boxes of two classes in turn, and a box that fills up."""
    labels = np.eye(2, dtype="float32")[np.arange(len(boxes)) % 2]
    boxes = [*boxes, [0.0, 0.0, 0.0, 0.0]]
    labels = np.concatenate([labels, np.zeros((1, 2), "float32")])
    weights = labels.max(axis=1)
    found = detection.assign_targets(np.array(boxes, "float32"), labels, weights, np.array(anchors, "float32"))
    return [np.asarray(one) for one in found]


def test_an_anchor_that_covers_a_box_gets_its_class_and_code(detection: Any) -> None:
    """Its own box has code 0; the box half as high is the logarithm of 2, times 5, and a quarter up, times 10."""
    scores, score_weights, codes, box_weights = assign(
        detection, [[0.0, 0.0, 0.2, 0.2], [0.5, 0.5, 0.7, 0.9]], [[0.0, 0.0, 0.2, 0.2], [0.5, 0.5, 0.9, 0.9]]
    )
    assert scores.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert score_weights.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert box_weights.ravel().tolist() == [1.0, 1.0]
    assert codes[0] == pytest.approx([0.0, 0.0, 0.0, 0.0], abs=1e-5)
    assert codes[1] == pytest.approx([-2.5, 0.0, 5.0 * np.log(0.5), 0.0], abs=1e-4)


def test_an_anchor_beside_all_boxes_is_background(detection: Any) -> None:
    """It has no class and no code, and its scores count; the box takes the anchor that it overlaps most."""
    scores, score_weights, codes, box_weights = assign(
        detection, [[0.0, 0.0, 0.2, 0.2]], [[0.1, 0.1, 0.5, 0.5], [0.8, 0.8, 0.9, 0.9]]
    )
    assert scores.tolist() == [[1.0, 0.0], [0.0, 0.0]]  # 1/19 of their union, below the threshold: forced
    assert score_weights.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert box_weights.ravel().tolist() == [1.0, 0.0]
    assert codes[1].tolist() == [0.0, 0.0, 0.0, 0.0]
