"""Running an unmodified script in a process of its own: nothing is trained, errors name the way out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from gpuplan.child_process import KEPT_BYTES, ChildOutput
from gpuplan.errors import GpuplanError, UsageError
from gpuplan.workload.capture.load import WorkloadOptions, load_workload
from gpuplan.workload.capture.process import show_script_output
from gpuplan.workload.model import Workload

OPTIONS = WorkloadOptions(use_cache=False)
MODEL = """
import keras, numpy as np
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
"""


def capture(folder: Path, body: str, *argv: str, options: WorkloadOptions = OPTIONS) -> Workload:
    """Write a script, and capture it."""
    (folder / "train.py").write_text(textwrap.dedent(body), encoding="utf-8")
    return load_workload("train.py", options=options, base=folder, argv=argv)


def fault(folder: Path, body: str, *argv: str) -> GpuplanError:
    """Capture a script that must not succeed, and return the error; it is one line and has a way out."""
    with pytest.raises(GpuplanError) as caught:
        capture(folder, body, *argv)
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    return caught.value


def test_nothing_is_trained_and_nothing_after_fit_changes_a_file(tmp_path: Path) -> None:
    """Callbacks are not called, one batch is made, and files that the script writes later go elsewhere."""
    workload = capture(
        tmp_path,
        MODEL
        + """
from pathlib import Path
class Data(keras.utils.PyDataset):
    def __len__(self): return 11
    def __getitem__(self, index):
        with open("batches.txt", "a") as file: file.write(f"{index} ")
        return np.zeros((6, 4)), np.zeros((6, 1))
class Trace(keras.callbacks.Callback):
    def on_train_begin(self, logs=None): Path("trained.txt").touch()
    def on_train_batch_begin(self, batch, logs=None): Path("trained.txt").touch()
import os; os.chdir(Path(__file__).parent)
try:
    model.fit(Data(), epochs=4, callbacks=[Trace()])
except BaseException:
    Path("after.txt").touch()
finally:
    Path("after.txt").touch()
Path("after.txt").touch()
""",
    )

    assert (workload.batch_size, workload.samples, workload.epochs, workload.steps) == (6, 66, 4, 44)
    read = (tmp_path / "batches.txt").read_text().split()
    assert read[0] == "0"
    assert len(read) <= 2 + 20  # for its shape; then the first of those that are timed, and the timed ones
    assert not (tmp_path / "trained.txt").exists()
    assert not (tmp_path / "after.txt").exists()


def test_a_script_sees_what_python_would_show_it(tmp_path: Path) -> None:
    """`__main__`, its own arguments, its folder's modules, the caller's working folder and backend."""
    (tmp_path / "mine.py").write_text("WIDTH = 5\n", encoding="utf-8")
    workload = capture(
        tmp_path,
        """
import os, sys
assert __name__ == "__main__", __name__
assert sys.argv == ["train.py", "--width", "7"], sys.argv
assert sys.path[0] == os.path.dirname(__file__), sys.path
assert os.getcwd() != sys.path[0]
assert "KERAS_BACKEND" not in os.environ or os.environ["KERAS_BACKEND"] == "jax"
import keras, numpy as np, mine
model = keras.Sequential([keras.Input((mine.WIDTH,)), keras.layers.Dense(int(sys.argv[2]))])
model.compile(loss="mse")
model.fit(np.zeros((10, 5)), np.zeros((10, 7)), batch_size=5)
""",
        "--width",
        "7",
    )

    assert workload.parameters == 5 * 7 + 7
    assert (workload.batch_size, workload.samples, workload.epochs, workload.steps) == (5, 10, 1, 2)


def test_what_a_script_prints_is_kept_away(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is shown on stderr with `--debug`, since stdout is gpuplan's own."""
    script = MODEL + "print('hello from the script')\nmodel.fit(np.zeros((4, 4)), np.zeros((4, 1)))"
    capture(tmp_path, script)
    quiet = capfd.readouterr()
    token = show_script_output.set(True)
    try:
        capture(tmp_path, script)
    finally:
        show_script_output.reset(token)
    shown = capfd.readouterr()

    assert (quiet.out, quiet.err) == ("", "")
    assert "hello from the script" in shown.err
    assert shown.out == ""


def test_the_last_lines_of_a_failed_script_are_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """At most twenty lines, on stderr, without control characters."""
    fault(tmp_path, "for n in range(50): print(f'\\x1b[2Jline {n} of 50')\n1 / 0")

    printed = capfd.readouterr()
    assert "last lines of the output of train.py" in printed.err
    assert "line 49 of 50" in printed.err
    assert "\x1b" not in printed.err
    assert "line 29 of 50" not in printed.err
    assert printed.out == ""


def test_long_output_of_a_failed_script_is_shortened(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of 20 MB in one line its start, and nothing that a terminal would obey."""
    script = (
        "print('first'); print('x' * 20_000_000); print('\\x1b[2J\\x07' + 'y' * 10_000_000); print('last')\n1 / 0"
    )
    fault(tmp_path, script)

    printed = capfd.readouterr()
    assert printed.err.splitlines()[-1] == "  last"
    assert len(printed.err) < 2000
    assert "\x1b" not in printed.err
    assert "\x07" not in printed.err


def test_output_that_is_not_shown_is_not_kept() -> None:
    """Of 50 MB the last 64 KiB, while the process runs."""
    reader, writer = os.pipe()
    output = ChildOutput(os.fdopen(reader))
    with os.fdopen(writer, "wb") as pipe:
        for _ in range(50):
            pipe.write(b"x" * 999_999 + b"\n")
        pipe.write(b"last\n")

    assert output.read_lines()[1:] == ["last"]
    assert len(output._end) == KEPT_BYTES
    assert output._end.endswith(b"last\n")


def test_options_override_what_was_captured(tmp_path: Path) -> None:
    """A batch of 64 over 1,000 samples: 16 steps an epoch, three epochs; bfloat16 despite the script."""
    options = WorkloadOptions(batch_size=64, epochs=3, precision="mixed_bfloat16", use_cache=False)
    script = "import keras; keras.config.set_dtype_policy('float32')" + MODEL
    workload = capture(
        tmp_path, script + "model.fit(np.zeros((1000, 4)), np.zeros((1000, 1)), epochs=9)", options=options
    )

    assert (workload.batch_size, workload.epochs, workload.steps) == (64, 3, 48)
    assert workload.precision == "mixed_bfloat16"
    assert any(op.dtype == "bfloat16" for op in workload.ops)


def test_a_script_for_another_backend_is_traced_and_says_so(tmp_path: Path) -> None:
    """Layers are the same on every backend; plain Keras on torch runs kernel by kernel."""
    script = "import os; os.environ['KERAS_BACKEND'] = 'torch'" + MODEL
    workload = capture(tmp_path, script + "model.fit(np.zeros((8, 4)), np.zeros((8, 1)))")

    assert any("torch backend" in note for note in workload.notes)
    assert not workload.compiled
    assert "torch" in workload.versions


def test_pretrained_weights_are_not_downloaded(tmp_path: Path) -> None:
    """Transfer learning works without a network: the weights' values do not change the time."""
    workload = capture(
        tmp_path,
        """
import keras, numpy as np
base = keras.applications.MobileNetV2(include_top=False, input_shape=(96, 96, 3), weights="imagenet")
base.trainable = False
model = keras.Sequential([base, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(5)])
model.compile(loss="mse")
model.fit(np.zeros((8, 96, 96, 3)), np.zeros((8, 5)))
""",
    )

    assert workload.trainable_parameters == 1280 * 5 + 5
    assert any("pretrained" in note for note in workload.notes)


@pytest.mark.parametrize(
    ("body", "message", "hint"),
    [
        ("import keras\n", "train.py ended without calling fit()", "train.py:FUNCTION"),
        ("import sys; sys.exit(3)", "ended (exit 3) before fit(), run without arguments", "-- --data"),
        (
            "import argparse\nparser = argparse.ArgumentParser()\n"
            "parser.add_argument('-d', '--data', required=True)\n"
            "parser.add_argument('out')\nparser.parse_args()\n",
            "ended (exit 2) before fit(), run without arguments",
            "train.py -- --data DATA OUT`",
        ),
        ("x = 1\n1 / 0\n", "(train.py, line 2): ZeroDivisionError", "python train.py"),
        ("input()", "EOFError", "build_model"),
        ("import tensorflow_of_nowhere", "line 1: No module named", "install"),
        (
            "import urllib.error\nraise urllib.error.URLError('no route')",
            "URLError",
            "run it where that can be reached",
        ),
        (
            MODEL
            + "weights = model.trainable_variables\nmodel.optimizer.apply([w * 0 for w in weights], weights)",
            "a loop of its own whose step is not under `jax.jit`",
            "build_model",
        ),
        (MODEL + "model.fit(42)", "cannot read the data", "PyDataset"),
        (MODEL + "try:\n  model.fit(42)\nexcept Exception: pass", "cannot read the data", "PyDataset"),
        pytest.param(
            MODEL + "model.fit(np.zeros((8, 9)), np.zeros((8, 1)))",
            "cannot be traced",
            "train.py",
            marks=pytest.mark.slow,  # tried on each backend in turn
        ),
    ],
)
def test_scripts_that_lead_to_no_model_say_why(tmp_path: Path, body: str, message: str, hint: str) -> None:
    """Exit code 1: the user's code was run and did not get to a model."""
    error = fault(tmp_path, body)

    assert message in str(error)
    assert hint in str(error.hint)
    assert error.exit_code == 1


def test_a_missing_tensorflow_is_named_with_the_extra(tmp_path: Path) -> None:
    """`import tensorflow` without TensorFlow: the extra that brings it is named."""
    pytest.importorskip("keras")
    try:
        import tensorflow  # noqa: F401
    except ModuleNotFoundError:
        error = fault(tmp_path, "import tensorflow as tf")
        assert "needs `tensorflow`" in str(error)
        assert "gpuplan[tensorflow]" in str(error.hint)
    else:
        pytest.skip("TensorFlow is installed")


def test_a_syntax_error_is_found_before_anything_runs(tmp_path: Path) -> None:
    """Exit code 2, with the line; no child process is started for it."""
    started = time.perf_counter()
    with pytest.raises(UsageError, match=r"train\.py, line 2: syntax error"):
        capture(tmp_path, "x = 1\ndef broken(:\n")

    assert time.perf_counter() - started < 0.2


def test_an_interrupt_ends_the_child_too(tmp_path: Path) -> None:
    """Ctrl-C reaches the whole process group; the script does not outlive gpuplan, even if it ignores it."""
    (tmp_path / "train.py").write_text(
        "import os, signal, time\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "open('pid.tmp', 'w').write(str(os.getpid())); os.replace('pid.tmp', 'pid.txt')\n"
        "time.sleep(240)\n",
        encoding="utf-8",
    )
    code = (
        "from gpuplan.workload.capture.load import *\n"
        "load_workload('train.py', options=WorkloadOptions(use_cache=False))"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, start_new_session=True, stderr=subprocess.PIPE
    )
    try:
        pid = int(wait_for(tmp_path / "pid.txt"))
        os.killpg(parent.pid, signal.SIGINT)
        _, printed = parent.communicate(timeout=60)
    finally:
        parent.kill()
        parent.communicate()

    assert b"KeyboardInterrupt" in printed
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def wait_for(path: Path) -> str:
    """Return a file's text as soon as it is there."""
    deadline = time.monotonic() + 90
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} was never written"
        time.sleep(0.02)
    return path.read_text()


USES = """
import sys
from gpuplan.workload.capture.child import import_keras

import_keras("jax", "jax")
seldom = {"IPython", "h5py", "pandas", "requests", "rich", "scipy.sparse", "jax.experimental.pallas"}
assert seldom.isdisjoint(sys.modules), seldom & sys.modules.keys()
import keras, numpy as np, jax.numpy as jnp
from keras.src.backend.jax import nn
from keras.src.trainers.data_adapters import array_slicing

assert not array_slicing.can_slice_array(3) and "pandas" not in sys.modules
import pandas, requests.adapters, scipy.sparse.linalg
from jax.experimental import sparse
from jax.experimental.sparse.linalg import spsolve

assert array_slicing.can_slice_array(pandas.Series([1])) and array_slicing.pandas.DataFrame is pandas.DataFrame
one = sparse.BCSR.fromdense(jnp.eye(4))
assert spsolve(one.data, one.indices, one.indptr, jnp.ones(4)).sum() == 4
assert nn.splash_attention_mask.CausalMask(shape=(128, 128)).shape == (128, 128)
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
model.summary()
model.compile(loss="mse")
model.fit(pandas.DataFrame(np.ones((4, 3))), pandas.DataFrame(np.ones((4, 2))), validation_split=0.5, verbose=0)
model.save("model.keras")
assert keras.models.load_model("model.keras").count_params() == 8
"""


SUBCLASSES = """
import sys
from gpuplan.workload.capture import child

del sys.modules["json"]  # of which `keras.src.legacy.saving.json_utils` has a subclass
child._SELDOM_USED += ("json",)
child.import_keras("jax", "jax")
assert "h5py" in sys.modules, "the import did not fail with stand-ins"
assert not any(isinstance(one, child.LoadedOnUse) for one in sys.modules.values())
import json, keras
from keras.src.legacy.saving import json_utils

assert issubclass(json_utils.Encoder, json.JSONEncoder)
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
model.summary()
model.compile(loss="mse")
model.train_on_batch(keras.ops.ones((4, 3)), keras.ops.ones((4, 2)))
"""


@pytest.mark.parametrize("code", [USES, SUBCLASSES])
def test_what_keras_seldom_uses_is_loaded_when_it_is_used(code: str, tmp_path: Path) -> None:
    """Neither Keras nor a script sees a difference; a Keras that uses one as it is imported gets the real ones."""
    command, environment = [sys.executable, "-c", code], os.environ | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "Total params: 8" in done.stdout
