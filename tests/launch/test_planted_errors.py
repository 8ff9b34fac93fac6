"""The fault sequences find planted errors: a harness that finds none of them proves nothing."""

from __future__ import annotations

import pytest
from gpuplan.errors import GpuplanError
from launch.aws_world import AwsServer
from launch.planted_errors import AWS_PLANTED_ERRORS, PLANTED_ERRORS
from launch.test_fault_sequences import run
from launch.worlds import AwsWorld, FakeWorld

pytestmark = pytest.mark.slow

SEQUENCES, STEPS = 50, 16


@pytest.mark.parametrize("name", PLANTED_ERRORS)
def test_a_planted_error_is_found_within_fifty_sequences(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some law breaks; with the error removed, the same sequences keep every law."""
    PLANTED_ERRORS[name](monkeypatch)
    with pytest.raises((AssertionError, GpuplanError, ExceptionGroup)):
        run(FakeWorld(), examples=SEQUENCES, steps=STEPS, seed=1, shrink=False)


@pytest.mark.parametrize("name", AWS_PLANTED_ERRORS)
def test_a_planted_error_in_the_ec2_adapter_is_found_within_fifty_sequences(
    name: str, aws: AwsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same over HTTP, with each cap layer alone: none hides the other."""
    AWS_PLANTED_ERRORS[name](monkeypatch)
    with pytest.raises((AssertionError, GpuplanError, ExceptionGroup)):
        run(AwsWorld(aws), examples=SEQUENCES, steps=STEPS, seed=1, shrink=False)


def test_the_same_sequences_keep_the_laws_without_planted_errors() -> None:
    """The sequences that find the planted errors find nothing in the launcher itself."""
    run(FakeWorld(), examples=SEQUENCES, steps=STEPS, seed=1, shrink=False)
