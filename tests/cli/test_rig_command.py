"""`gpuplan rig` on a real model, the real catalog and the real predictor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli.conftest import validated

Run = Callable[..., "object"]


def test_rig_hour_for_hour(gpuplan: Run, tmp_path: Path) -> None:
    """Without a model the same accelerator is compared; the file is what is printed."""
    kept = tmp_path / "rig.json"
    done = gpuplan("rig", "--accelerator", "RTX 3090", "--price", "1400", "--json", "-o", str(kept))
    document = validated(done.out, "rig")

    assert done.code == 0
    assert {rival["speed"] for rival in document["rivals"]} == {1.0}
    assert kept.read_text() == done.out


def test_rig_for_some_work(gpuplan: Run, saved: str) -> None:
    """With a model, other machines compete by their speed and their whole bill."""
    done = gpuplan("rig", saved, "--accelerator", "RTX3090", "--price", "1400", "--json")
    document = validated(done.out, "rig")

    assert len({rival["speed"] for rival in document["rivals"]}) > 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--accelerator", "RTX309O", "--price", "1"], "unknown accelerator `RTX309O`"),
        (["--accelerator", "RTX3090", "--price", "0"], "--price must be above zero"),
        (
            ["--accelerator", "RTX3090", "--price", "9", "--hours-a-week", "169"],
            "--hours-a-week must be at most 168",
        ),
    ],
)
def test_bad_rigs(gpuplan: Run, flags: list[str], message: str) -> None:
    """Exit code 2 and one line."""
    done = gpuplan("rig", *flags)

    assert (done.code, done.out) == (2, "")
    assert message in done.err.splitlines()[0]
