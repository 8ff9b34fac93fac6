"""Laws of shrinkage: coefficients updated from a user's rows lie between the packaged ones and the rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gpuplan.errors import UsageError
from gpuplan.lab.cross_validation import predict_sample_s
from gpuplan.lab.dataset import build_fit_sample
from gpuplan.lab.fit import FitSample
from gpuplan.lab.kernel_store import build_run_key, load_store
from gpuplan.lab.own_fit import fit_device_update
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.coefficients import Coefficients
from gpuplan.predict.measurements import read_published_file
from gpuplan.predict.own_coefficients import (
    DeviceUpdate,
    apply_update,
    delete_updates,
    get_updates_path,
    load_own_coefficients,
    read_updates,
    write_updates,
)
from gpuplan.settings import load_settings
from synthetic import build_synthetic_coefficients

SPEED = 2.0  # how many times slower the device is than the packaged coefficients say
ROWS = 24


@pytest.fixture(scope="module")
def packaged() -> Coefficients:
    return build_synthetic_coefficients()


@pytest.fixture(scope="module")
def slow(packaged: Coefficients) -> list[FitSample]:
    """PROFET's runs on a T4, as traced, each taking twice the time that is predicted."""
    t4, traces = load_catalog().accelerators["T4"], load_store()
    rows = [m for m in read_published_file("profet_keras_aws") if m.accelerator == "T4"]
    samples = []
    for m in rows[:: max(len(rows) // (2 * ROWS), 1)][: 2 * ROWS]:
        sample = build_fit_sample(m, traces[build_run_key(m)], t4)
        assert isinstance(sample, FitSample)
        named = replace(sample, stack="tensorflow2 keras", host="keras")
        samples.append(replace(named, step_s=SPEED * predict_sample_s(named, packaged)))
    return samples


def slowdowns(samples: list[FitSample], packaged: Coefficients, update: DeviceUpdate) -> list[float]:
    """How many times longer the update predicts each sample to take."""
    updated = apply_update(packaged, update)
    return [predict_sample_s(one, updated) / predict_sample_s(one, packaged) for one in samples]


def test_without_rows_nothing_changes(packaged: Coefficients) -> None:
    """The update is empty, and applying it gives the packaged coefficients."""
    assert apply_update(packaged, fit_device_update([], packaged)) == packaged


def test_rows_as_predicted_leave_the_coefficients_where_they_are(
    packaged: Coefficients, slow: list[FitSample]
) -> None:
    """The packaged values are the mode of the prior: nothing pulls away from them."""
    same = [replace(one, step_s=one.step_s / SPEED) for one in slow[:8]]
    update = fit_device_update(same, packaged)
    assert slowdowns(slow, packaged, update) == pytest.approx([1.0] * len(slow), rel=1e-3)


def test_many_consistent_rows_win(packaged: Coefficients, slow: list[FitSample]) -> None:
    """Half of the runs, all twice as slow: these are predicted to take near twice, and so are the others."""
    seen, unseen = slow[::2], slow[1::2]
    update = fit_device_update(seen, packaged)
    assert float(np.median(slowdowns(seen, packaged, update))) == pytest.approx(SPEED, rel=0.05)
    assert float(np.median(slowdowns(unseen, packaged, update))) == pytest.approx(SPEED, rel=0.1)


def test_one_row_lies_in_between(packaged: Coefficients, slow: list[FitSample]) -> None:
    """Neither ignored nor believed alone, and more rows of its kind come nearer."""
    one = slow[len(slow) // 2]
    (once,) = slowdowns([one], packaged, fit_device_update([one], packaged))
    (often,) = slowdowns([one], packaged, fit_device_update([one] * 10, packaged))
    assert 1.1 < once < 0.97 * SPEED
    assert once < often < 1.01 * SPEED


def test_an_unmeasured_generation_is_updated_under_its_own_name(
    packaged: Coefficients, slow: list[FitSample]
) -> None:
    """A chip without measurements starts from the mean of its era and gets a name afterwards."""
    new = [replace(one, generation="Ada") for one in slow[:8]]
    update = fit_device_update(new, packaged)
    assert set(update.generations) == {"Ada"}
    assert (set(update.stacks), set(update.hosts)) == ({"tensorflow2 keras"}, {"keras"})
    assert "Ada" not in packaged.generations


def named(update: DeviceUpdate, *, rows: int) -> DeviceUpdate:
    """The update as `calibrate --from` completes it."""
    return replace(
        update, chip="L4", vendor="NVIDIA", runs=("L4 float32",), date="2026-11-25", measurements=rows
    )


def test_a_chip_counts_as_measured_from_six_rows_on(packaged: Coefficients, slow: list[FitSample]) -> None:
    """Until then its intervals are those of a chip that was not."""
    update = fit_device_update(slow[:2], packaged)
    assert "L4" not in apply_update(packaged, named(update, rows=5)).fitted_on["chips"]
    assert "L4" in apply_update(packaged, named(update, rows=6)).fitted_on["chips"]
    assert "L4 float32" in apply_update(packaged, named(update, rows=6)).fitted_on["runs"]


def test_updates_survive_a_round_trip_and_can_be_deleted(
    packaged: Coefficients, slow: list[FitSample], tmp_path: Path
) -> None:
    """What is written is read; without the file there is nothing."""
    settings = load_settings(environ={"GPUPLAN_DATA_DIR": str(tmp_path / "data")}, folder=tmp_path)
    path = get_updates_path(settings)
    assert load_own_coefficients(settings, packaged) == {}
    update = named(fit_device_update(slow[:2], packaged), rows=1)
    write_updates(path, {"L4": update})
    assert read_updates(path) == {"L4": update}
    note = load_own_coefficients(settings, packaged)["L4"].note
    assert note == "coefficients updated from 1 measurement on this device, 2026-11-25"
    assert delete_updates(path)
    assert not delete_updates(path)


@pytest.mark.parametrize("text", ["{", "[]", json.dumps({"schema": "gpuplan.own-coefficients/0"}), "{}"])
def test_a_damaged_file_is_one_line_that_names_it(text: str, tmp_path: Path) -> None:
    """With the way out: update again, or forget."""
    path = tmp_path / "coefficients.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="cannot read your own coefficients") as error:
        read_updates(path)
    assert str(path) in str(error.value)
    assert "--forget" in (error.value.hint or "")
