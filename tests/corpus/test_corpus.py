"""Scripts in the forms that public scripts have: what is planned of each equals what was counted by hand."""

from __future__ import annotations

import re
import shutil
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from gpuplan.errors import GpuplanError
from gpuplan.workload.capture.load import WorkloadOptions, load_workload
from gpuplan.workload.model import Workload

if TYPE_CHECKING:
    from .conftest import WarmImports

HERE = Path(__file__).parent
PLANS: dict[str, dict[str, Any]] = tomllib.loads((HERE / "plans.toml").read_text(encoding="utf-8"))
BACKENDS = {"tensorflow", "torch"}
FAKE_KINETIC = """
def run(**where):
    def send(function):
        def call(*args, **kwargs):
            raise RuntimeError("sent to a cluster")
        return call
    return send
"""


def list_cases() -> list[Any]:
    """Return a parameter for each script: slow with another backend, skipped without what it needs."""
    cases = []
    for name, plan in PLANS.items():
        needs = plan.get("needs", [])
        missing = [one for one in needs if find_spec(one) is None]
        marks = [pytest.mark.skip(reason=f"needs {', '.join(missing)}")] if missing else []
        marks += [pytest.mark.slow] if BACKENDS.intersection(needs) else []
        cases.append(pytest.param(name, marks=marks))
    return cases


def count_phases(workload: Workload, *, as_stated: list[list[Any]]) -> list[list[Any]]:
    """Return the phases of a workload as `plans.toml` has them: steps of all epochs where no epochs are stated."""
    found = []
    for number, one in enumerate(workload.phases):
        whole = number < len(as_stated) and as_stated[number][0] == ""
        epochs, steps = one.epochs, one.steps
        if not whole and epochs and steps is not None and steps % epochs == 0:
            steps //= epochs
        found.append(["" if whole else epochs, steps, one.batch_size, one.trainable_parameters, one.parameters])
    return found


@pytest.mark.parametrize("name", list_cases())
def test_a_script_is_planned_as_counted_by_hand(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_imports: WarmImports
) -> None:
    """Phases, epochs, steps, batch and parameters of `plans.toml`, or the refusal that it states."""
    plan, file = PLANS[name], name if "." in name else f"{name}.py"
    shutil.copy(HERE / "scripts" / file, tmp_path)
    text = (tmp_path / file).read_text(encoding="utf-8")
    if "kinetic" in text:
        (tmp_path / "kinetic.py").write_text(FAKE_KINETIC, encoding="utf-8")
    warm_imports.of_script = [one for one in sorted(BACKENDS) if re.search(rf"(import|from) {one}\b", text)]
    monkeypatch.chdir(tmp_path)
    if "backend" in plan:
        monkeypatch.setenv("KERAS_BACKEND", plan["backend"])
    options = WorkloadOptions(use_cache=False, samples=plan.get("samples"))

    try:
        workload = load_workload(file, options=options, argv=plan.get("argv", []))
    except GpuplanError as error:
        message = f"{error}\nhint: {error.hint}"
        assert plan.get("refused"), message
        assert [text for text in plan["refused"] if text not in message] == [], message
        assert [text for text in plan.get("unsaid", []) if text in message] == [], message
        return

    if plan.get("refused") and workload.steps is None:  # planned but for its length, which it asks for
        assert [text for text in plan["refused"] if text not in "; ".join(workload.notes)] == []
        return
    assert list(workload.unplanned) == []
    assert plan.get("phases"), f"planned, instead of refused: {workload.phases}"
    assert count_phases(workload, as_stated=plan["phases"]) == plan["phases"]
    assert workload.distribution == plan.get("distribution", workload.distribution)
    assert workload.precision == plan.get("precision", workload.precision)


def test_every_script_has_a_plan() -> None:
    """A script without a row in the table, or a row without a script, is forgotten."""
    names = {path.stem for path in (HERE / "scripts").glob("*.py")}
    names |= {path.name for path in (HERE / "scripts").glob("*.ipynb")}

    assert names == set(PLANS)
    assert len(PLANS) >= 60
