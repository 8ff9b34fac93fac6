"""Errors of the predictions on the steps of Keras 3 that were timed for this project, by backend.

python -m lab.keras3            # predict them, and write profiles/keras3_accuracy.json
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.accuracy import score_measurements
from gpuplan.predict.measurements import read_measurements
from gpuplan.predict.predictor import Predictor
from gpuplan.predict.scores import summarize
from gpuplan.records import to_plain

from .calibrate import write_json
from .campaign_rows import read_profiles, write_csv
from .score_record import round_digits

FOLDER = Path(__file__).parents[1] / "profiles"
RECORD = FOLDER / "keras3_accuracy.json"
BACKENDS = ("jax", "pytorch")
Backends = Mapping[str, Mapping[str, float]]


def score_measured_steps() -> Backends:
    """Predict the timed steps without looking any up, and summarize the errors of each backend."""
    with tempfile.TemporaryDirectory(prefix="gpuplan-lab-") as name:
        rows = Path(name) / "rows.csv"
        write_csv(rows, read_profiles(sorted((FOLDER / "measured").glob("*.json"))))
        found = score_measurements(
            read_measurements(rows),
            load_catalog().accelerators.__getitem__,
            Predictor.load(),
            progress=lambda _: None,
        )
    if found.unpredicted:
        raise ValueError(f"no prediction: {found.unpredicted[0]}")
    scores = {
        name: to_plain(summarize([row for row in found.rows if row.measurement.framework == name]))
        for name in BACKENDS
    }
    return dict(round_digits(scores))


def load_recorded_steps() -> Backends:
    """Return the recorded summaries by backend."""
    return dict(json.loads(RECORD.read_text(encoding="utf-8")))


if __name__ == "__main__":
    write_json(RECORD, score_measured_steps())
