"""A user's rows on several devices: the machine that a row names decides what joins them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from factories import make_workload
from gpuplan.lab import accuracy
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.measurements import Measurement, read_published_file
from gpuplan.predict.multi_device.interconnect import HOST_SPECS, UNKNOWN_HOST
from gpuplan.predict.step_time import StepTime
from gpuplan.units import Interval

CATALOG = load_catalog()


class FakeAsked:
    """Remembers what was asked of it."""

    def __init__(self) -> None:
        self.circumstances: list[dict[str, Any]] = []

    def step_time(self, workload: object, accelerator: object, **circumstances: Any) -> StepTime:
        """Return a second."""
        self.circumstances.append(circumstances)
        return StepTime(time_s=Interval(low=1.0, mid=1.0, high=1.0), basis="modelled", limiter="compute")


def asked(monkeypatch: pytest.MonkeyPatch, *rows: Measurement) -> list[dict[str, Any]]:
    """Return what the predictor is asked for rows."""
    monkeypatch.setattr(accuracy, "load_measured_workload", lambda _: make_workload())
    fake = FakeAsked()
    accuracy.score_measurements(rows, CATALOG.accelerators.__getitem__, fake, progress=lambda _: None)
    return fake.circumstances


def test_a_named_machine_is_known_and_others_are_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """p3.16xlarge is a cube mesh with a network; of two machines of an unknown kind no network is invented."""
    row = replace(read_published_file("profet_keras_aws")[0], accelerator="V100-16GB", devices=16, hosts=2)
    known, unknown = asked(monkeypatch, replace(row, host="p3.16xlarge"), replace(row, host="a rig"))

    assert (known["machine"], known["hosts"]) == (HOST_SPECS["p3.16xlarge"], 2)
    assert (unknown["machine"], unknown["hosts"]) == (UNKNOWN_HOST, 1)
