"""Without Keras, JAX, NumPy and SciPy: prices are looked up and plans launched; models are refused in a line.

Each command runs in a process in which these packages, and what they bring, cannot be imported and have no
version. `.ci/wheel` makes such an environment.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from gpuplan.cli.app import MODELLING
from launch.export.plans import OFFERS, write_plan
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
GIT = "git:https://example.org/me/repo.git@v1"
LIGHT = """
import importlib.metadata, sys
ABSENT = {absent!r}

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
sys.path_importer_cache.clear()
known = importlib.metadata.version

def version(name):
    if name in ABSENT:
        raise importlib.metadata.PackageNotFoundError(name)
    return known(name)

importlib.metadata.version = version
from gpuplan.cli.app import run
sys.exit(run(sys.argv[1:]))
""".format(absent={*MODELLING, "jaxlib", "h5py", "ml_dtypes", "optree", "tensorflow", "torch"})


def run_light(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command without those packages, in a folder."""
    return subprocess.run(
        [sys.executable, "-c", LIGHT, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A plan made elsewhere, with the versions there."""
    path = write_plan(tmp_path, OFFERS["aws"])
    text = path.read_text().replace(
        '"model": "train.py"', '"model": "train.py", "versions": {"keras": "3.9.9", "jax": "0.6.9"}'
    )
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ("offers", "--accelerator", "T4", "--json"),
        ("accelerators", "--json"),
        ("catalog", "age"),
        ("rig", "--accelerator", "RTX4090", "--price", "2500"),
        ("ps",),
    ],
    ids=lambda arguments: arguments[0],
)
def test_prices_are_looked_up(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = run_light(tmp_path, *arguments)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_a_saved_plan_is_launched_with_its_own_versions(plan: Path) -> None:
    """What is not installed here is installed there as the plan says."""
    launched = run_light(plan.parent, "launch", str(plan), "--dry-run", "--source", GIT, "--json")
    exported = run_light(plan.parent, "export", str(plan), "--to", "dstack", "--source", GIT)

    assert (launched.returncode, exported.returncode) == (0, 0), launched.stderr + exported.stderr
    for text in (launched.stdout, exported.stdout):
        assert "keras==3.9.9" in text
        assert "jax[cuda12]==0.6.9" in text


@pytest.mark.parametrize("command", ["estimate", "breakeven"])
def test_a_model_is_refused_in_a_line(command: str, tmp_path: Path) -> None:
    done = run_light(tmp_path, command, "ResNet50", "--epochs", "1", "--samples", "9")

    assert (done.returncode, done.stdout) == (2, "")
    assert re.match(r"error: (keras|numpy) is not installed", done.stderr)
    assert "hint: `pip install gpuplan`" in done.stderr


def test_the_page_lists_what_is_left() -> None:
    """The first command of the page is every dependency but those of models."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"pip install ([\w ]+)\npip install --no-deps gpuplan\n", page)
    declared = {Requirement(text).name for text in project["dependencies"]}

    assert set(listed.split()) == declared - set(MODELLING)
