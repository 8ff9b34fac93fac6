"""Messages of errors in the user's code: the cause, and what to do about it."""

from __future__ import annotations

import pytest
from gpuplan.workload.capture.process import write_last_lines
from gpuplan.workload.errors import build_user_code_error, describe_error, is_own_file, to_one_line

KERAS = """Exception encountered when calling Mine.call().

\x1b[1mCould not multiply (2, 3) and (4, 5)\x1b[0m

Arguments received by Mine.call():
  • inputs=tf.Tensor(shape=(2, 3), dtype=float32)
  • training=True"""
TENSORFLOW = """in user code:

    File "train.py", line 11, in None  *
        lambda one: mix_images_by_a_random_share(one)
    File "train.py", line 7, in mix_images_by_a_random_share  *
        return images * tf.cast(keras.backend.shape(images)[0], "float32")

    AttributeError: module 'keras.backend' has no attribute 'shape'
"""


def test_the_cause_is_told_wherever_it_stands() -> None:
    """TensorFlow puts it last, Keras in the middle of what a layer was called with; no codes of a terminal."""
    assert to_one_line(TENSORFLOW) == "AttributeError: module 'keras.backend' has no attribute 'shape'"
    assert describe_error(AttributeError(TENSORFLOW)) == to_one_line(TENSORFLOW)
    assert (
        to_one_line(KERAS)
        == "Exception encountered when calling Mine.call(). Could not multiply (2, 3) and (4, 5)"
    )
    assert describe_error(ValueError("no")) == "ValueError: no"


def test_a_long_message_keeps_its_beginning_and_its_last_words() -> None:
    """At most 300 characters, cut between words."""
    told = to_one_line("begins here " + "word " * 200 + "the cause is the end")

    assert told.startswith("begins here word")
    assert told.endswith("word the cause is the end")
    assert 280 < len(told) <= 300
    assert "word … word" in told


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("import keras.engine.topology", "Keras 3 removed `keras.engine`; use `keras.layers` or `keras.Model`"),
        ("from keras.layers.core import Dense", "Keras 3 removed `keras.layers.core`; use `keras.layers`"),
        ("from keras.utils.np_utils import to_categorical", "removed `keras.utils.np_utils`; use `keras.utils`"),
        ("import json.nothing", "the `json` that is installed has no `json.nothing`"),
        ("import module_of_nowhere", "install `module_of_nowhere` where gpuplan is installed"),
    ],
)
def test_a_module_that_is_missing_is_told_from_one_that_was_removed(line: str, hint: str) -> None:
    """What is installed is not to be installed."""
    with pytest.raises(ModuleNotFoundError) as caught:
        exec(line)
    error = build_user_code_error(caught.value, name="train.py", doing="failed", folders=())

    assert hint in str(error.hint)
    assert ("install `" in str(error.hint)) == ("nowhere" in line)


def test_code_of_cython_is_not_the_users() -> None:
    """Its frames name a file that may lie anywhere."""
    assert is_own_file("/home/user/train.py", "/home/user")
    assert is_own_file("/home/user/train.ipynb", "/home/user")
    assert not is_own_file("/home/user/pandas/_libs/hashtable.pyx", "/home/user")
    assert not is_own_file("<string>", "/home/user")


def test_what_tensorflow_logs_at_its_start_is_no_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Only what the script said is shown."""
    lines = [
        "loading",
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
        "I0000 00:00:1795861092.368260    1307 port.cc:153] oneDNN custom operations are on.",
        "2026-11-28 10:00:00.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow",
        "To enable the following instructions: AVX2, rebuild TensorFlow",
    ]
    write_last_lines(lines, name="train.py")

    assert capsys.readouterr().err == "last lines of the output of train.py:\n  loading\n"
