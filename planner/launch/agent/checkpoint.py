"""Files of a checkpoint, written under a temporary name, synced to disk, then renamed; requests to save one.

A checkpoint is a folder `step-N`: `model.weights.h5` (weights and optimizer, saved by Keras's `save_weights`),
`state.npz`, and `state.json`, written last, with the hash of the others. An incomplete checkpoint is never
renamed; a damaged one does not match its hash and the previous one is used. The last two are kept, and the last
`step-N-begin`: the beginning of an epoch, from which training restarts when the order of data cannot be
restored.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

LEAVE = 75  # "try again later": sysexits.h, EX_TEMPFAIL


@dataclass(slots=True)
class ControlFlags:
    """Requests set by signals and the stop-loss, read by training after each batch."""

    every_s: float = 60.0  # checkpoint interval
    leave: bool = False  # save and leave
    in_fit: bool = False  # `fit` is running; otherwise there is nothing to save


KEPT = 2
WEIGHTS = "model.weights.h5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a `fit`."""

    epoch: int  # current or next epoch, counted as Keras does [-]
    batch: int  # trained batches of that epoch [-]
    steps: int  # trained batches of all epochs [-]
    steps_per_epoch: int | None = None  # batches of an epoch; None: unknown [-]
    finished: bool = False
    history: dict[str, list[float]] = field(default_factory=dict)
    logs: dict[str, float] = field(default_factory=dict)  # metrics after the last batch, within an epoch
    order: dict[str, Any] | None = None  # position in the data, see `BatchOrder.to_json`; None: unknown
    drawn: int = 0  # batches drawn from a generator by a complete `fit` [-]

    @property
    def name(self) -> str:
        """Name of the checkpoint's folder; names sort in the order of training."""
        kind = "-end" if self.finished else "" if self.batch else "-begin"
        return f"step-{self.steps:012d}{kind}"


class Checkpoints:
    """The checkpoints of one `fit`, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, progress: Progress, save_weights: Callable[[str], object]) -> None:
        """Save weights and progress; earlier checkpoints are kept until this one is complete."""
        self.folder.mkdir(parents=True, exist_ok=True)
        place = self.folder / progress.name
        new = self.folder / f".{place.name}.{os.getpid()}"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        save_weights(str(new / WEIGHTS))
        for file in new.iterdir():
            _sync(file)
        write_json(new / "state.json", {**asdict(progress), "sha256": _sha256(new)})
        if place.exists():
            shutil.rmtree(place)
        new.rename(place)
        _sync(self.folder)
        self._prune()

    def load(self) -> tuple[Progress, str] | None:
        """Return the newest complete checkpoint and the path of its weights, or None."""
        for place in sorted(self.folder.glob("step-*"), reverse=True):
            try:
                state = json.loads((place / "state.json").read_text(encoding="utf-8"))
                if state.pop("sha256") == _sha256(place):
                    return Progress(**state), str(place / WEIGHTS)
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return None

    def begins(self) -> bool:
        """Whether the beginning of an epoch is saved."""
        return any(self.folder.glob("step-*-begin"))

    def back_to_begin(self) -> None:
        """Remove the checkpoints after the last beginning of an epoch."""
        places = sorted(self.folder.glob("step-*"), reverse=True)
        for place in itertools.takewhile(lambda place: not place.name.endswith("-begin"), places):
            shutil.rmtree(place)

    def _prune(self) -> None:
        """Remove old checkpoints and unfinished ones."""
        places = sorted(self.folder.glob("step-*"))
        begins = [place for place in places if place.name.endswith("-begin")]
        for place in places[:-KEPT]:
            if place not in begins[-1:]:
                shutil.rmtree(place, ignore_errors=True)
        for torn in self.folder.glob(".step-*"):
            shutil.rmtree(torn, ignore_errors=True)


def read_json(path: Path, missing: Any = None) -> Any:
    """Return the content of a JSON file, or a default if it is missing."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else missing


def write_json(path: Path, value: object) -> None:
    """Write a JSON file of one line under a temporary name, sync it to disk, and rename it."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(json.dumps(value), encoding="utf-8")
    _sync(new)
    new.replace(path)
    _sync(path.parent)


def _sha256(folder: Path) -> str:
    """Return the hash of a checkpoint's files except `state.json`, which contains it."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.name != "state.json"):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
