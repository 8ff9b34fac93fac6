"""Import of Keras Hub without TensorFlow, which takes three times as long to import as the rest."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from gpuplan.workload.build.from_reference import import_keras_hub

OPTIONAL = "try:\n    import tensorflow as tf\nexcept ImportError:\n    tf = None\n"


def write_packages(folder: Path, *, hub: str) -> None:
    """A package `keras_hub`, and a TensorFlow that works."""
    for name, text in (("keras_hub", hub), ("tensorflow", "version = 'real'\n")):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(text)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which packages are imported, which are forgotten afterwards."""
    for name in ("keras_hub", "tensorflow", "tensorflow_text"):
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_tensorflow_seems_not_installed_during_the_import_alone(folder: Path) -> None:
    """As in Keras Hub 0.32: an optional import."""
    write_packages(folder, hub=OPTIONAL)

    assert import_keras_hub().tf is None
    assert import_keras_hub() is sys.modules["keras_hub"]
    import tensorflow

    assert tensorflow.version == "real"


@pytest.mark.parametrize("optional", [False, True])
def test_a_version_that_needs_tensorflow_gets_it(folder: Path, optional: bool) -> None:
    """A plain import, which fails where it is hidden; or the use of one that was left out."""
    plain = "import tensorflow as tf\n"
    hub = f"{OPTIONAL}tf.version\n" if optional else plain
    write_packages(folder, hub=hub)

    assert import_keras_hub().tf.version == "real"


def test_one_that_is_not_installed_is_an_error(folder: Path) -> None:
    """The reason is the missing package itself, not TensorFlow."""
    sys.modules["keras_hub"] = None  # type: ignore[assignment]
    with pytest.raises(ImportError, match="keras_hub"):
        import_keras_hub()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("keras_hub") is None, reason="Keras Hub is not installed: .ci/keras-hub")
def test_the_installed_keras_hub_is_imported_without_tensorflow() -> None:
    """In a process of its own: neither the import nor a model loads TensorFlow."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from gpuplan.workload.build.from_reference import build_preset\n"
        "from gpuplan.workload.capture.materialize import abstract_variables\n"
        "from gpuplan.workload.reference import parse_reference\n"
        "with abstract_variables():\n"
        "    build_preset(parse_reference('keras_hub:gpt2_base_en?sequence_length=8', base=Path('/')))\n"
        "print('tensorflow' in sys.modules)\n"
    )
    environment = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment
    )

    assert done.stdout.strip() == "False"
