"""The files of a checkpoint: written beside their place, forced to the disk, then moved there. The last two
are kept.

A checkpoint is a folder `step-N`: `model.weights.h5` (weights, optimizer, seeds: what Keras's `save_weights`
saves) and `state.json`, written last, with the fingerprint of the weights. One that a crash cut short never
gets its name; one that a disk spoiled does not match its fingerprint: then the one before it counts.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

__all__ = ["Checkpoints", "Progress", "write_json"]

KEPT = 2
WEIGHTS = "model.weights.h5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a `fit` has come.

    Args:
        epoch: That is being trained, or comes next, counted as Keras does [-].
        batch: Batches of it that are done [-].
        steps: Batches of all epochs that are done [-].
        steps_per_epoch: None while nobody knows [-].
        finished: Whether `fit` came to its end.
        history: What `History.history` holds so far.
    """

    epoch: int
    batch: int
    steps: int
    steps_per_epoch: int | None = None
    finished: bool = False
    history: dict[str, list[float]] = field(default_factory=dict)


class Checkpoints:
    """The checkpoints of one `fit`, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, progress: Progress, save_weights: Callable[[str], object]) -> None:
        """Keep the weights and how far they are; what was there before stays until this is whole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        place = self.folder / f"step-{progress.steps:012d}{'-end' if progress.finished else ''}"
        new = self.folder / f".{place.name}.{os.getpid()}"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        save_weights(str(new / WEIGHTS))
        for file in new.iterdir():
            _sync(file)
        write_json(new / "state.json", {**asdict(progress), "sha256": _sha256(new / WEIGHTS)})
        if place.exists():
            shutil.rmtree(place)
        new.rename(place)
        _sync(self.folder)
        self._prune()

    def load(self) -> tuple[Progress, str] | None:
        """Return the newest checkpoint that is whole, and where its weights are; None when there is none."""
        for place in sorted(self.folder.glob("step-*"), reverse=True):
            try:
                state = json.loads((place / "state.json").read_text(encoding="utf-8"))
                if state.pop("sha256") == _sha256(place / WEIGHTS):
                    return Progress(**state), str(place / WEIGHTS)
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return None

    def _prune(self) -> None:
        """Remove what is older than the last ones, and what crashes left."""
        for place in sorted(self.folder.glob("step-*"))[:-KEPT]:
            shutil.rmtree(place, ignore_errors=True)
        for torn in self.folder.glob(".step-*"):
            shutil.rmtree(torn, ignore_errors=True)


def write_json(path: Path, value: object) -> None:
    """Write a JSON file beside its place, force it to the disk, and move it there."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(json.dumps(value, indent=1), encoding="utf-8")
    _sync(new)
    new.replace(path)
    _sync(path.parent)


def _sha256(path: Path) -> str:
    """Return a file's fingerprint."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    """Force a file or a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
