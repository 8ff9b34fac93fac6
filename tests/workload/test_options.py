"""What may be said about a run."""

from __future__ import annotations

import pytest
from gpuplan.errors import UsageError
from gpuplan.workload.options import WorkloadOptions, compute_run_steps
from hypothesis import given
from hypothesis import strategies as st

COUNTS = st.integers(min_value=1, max_value=10**7)


@pytest.mark.parametrize("name", ["batch_size", "samples", "epochs", "steps"])
@pytest.mark.parametrize("value", [0, -1, True, 2.5])
def test_counts_are_whole_and_positive(name: str, value: object) -> None:
    """A batch of 0 is refused with the flag's name before anything is built."""
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} must be"):
        WorkloadOptions(**{name: value})


def test_a_precision_that_keras_lacks_is_refused_with_near_names() -> None:
    """`mixed_fp16` may have meant `mixed_float16`."""
    with pytest.raises(UsageError, match="mixed_fp16") as caught:
        WorkloadOptions(precision="mixed_fp16")

    assert "mixed_float16" in str(caught.value.hint)


def test_options_survive_json() -> None:
    """The child process gets what the parent was told."""
    options = WorkloadOptions(batch_size=8, precision="tf32", mode="infer", use_cache=False)

    assert WorkloadOptions(**options.to_json()) == options


def test_predictions_go_over_their_samples_once() -> None:
    """A number of predictions is a whole run; a number of training samples is not, and what is said counts."""
    asked = {"samples": 1000}
    assert WorkloadOptions(mode="infer", **asked).passes == 1
    assert WorkloadOptions(mode="infer", epochs=3, **asked).passes == 3
    assert WorkloadOptions(mode="infer", steps=7, **asked).passes is None
    assert WorkloadOptions(**asked).passes is None
    assert WorkloadOptions(mode="infer").passes is None


def test_steps_count_the_smaller_last_batch() -> None:
    """60,000 digits in batches of 128: 468 full ones and one of 96, ten times."""
    assert compute_run_steps(samples=60_000, batch_size=128, epochs=10) == 469 * 10


@given(samples=COUNTS, batch_size=COUNTS, epochs=st.integers(min_value=1, max_value=1000))
def test_steps_cover_every_sample_and_no_step_is_empty(samples: int, batch_size: int, epochs: int) -> None:
    """An epoch's steps hold all samples, and one step fewer would not."""
    steps = compute_run_steps(samples=samples, batch_size=batch_size, epochs=epochs)

    assert steps is not None
    per_epoch, remainder = divmod(steps, epochs)
    assert remainder == 0
    assert (per_epoch - 1) * batch_size < samples <= per_epoch * batch_size


def test_unknown_stays_unknown() -> None:
    """Without samples or epochs there is no number of steps, and certainly not 0."""
    assert compute_run_steps(samples=None, batch_size=1, epochs=1) is None
    assert compute_run_steps(samples=1, batch_size=1, epochs=None) is None
