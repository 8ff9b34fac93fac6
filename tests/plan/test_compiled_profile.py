"""`gpuplan profile --compile`: what is added to a profile, with fake compilers."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from factories import make_product, make_workload
from gpuplan.errors import UsageError
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan import compilation
from gpuplan.plan.compilation import StepCompiler
from gpuplan.plan.compiled_profile import add_compiled, resolve_accelerators
from gpuplan.plan.execution.best_batch_search import choose_workloads_to_compile
from gpuplan.predict.compile import targets
from gpuplan.predict.compile.compiled import CompiledStep
from gpuplan.profile.document import create_profile, create_row
from gpuplan.profile.run import ProfileRequest
from gpuplan.render.profile import iter_summary_sentences
from gpuplan.units import GIB
from gpuplan.workload.build.lowering import LoweredStep

CATALOG = load_catalog()
PRODUCT = make_product()

TIMING = {
    "median_s": 0.01,
    "windows_s": [0.01],
    "steps_per_window": [1],
    "stopped": "time",
    "warm_up": {"windows_s": [], "settled": None},
}


@pytest.fixture
def document() -> dict[str, Any]:
    """A profile of one model at three batch sizes."""
    found = create_profile(
        model="net.py:net", mode="train", backend="jax", data="synthetic", rules={}, source="profile"
    )
    for number, size in enumerate((64, 16, 32)):
        found["rows"].append(
            create_row(status="measured", batch_size=size)
            | {"precision": "float32", "workload": number, "fit": TIMING}
        )
        found["workloads"].append(make_workload(batch_size=size, ops=(PRODUCT,)).to_json())
    return {**found, "status": "complete"}


@pytest.fixture
def compiled_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let a fake compiler state a millisecond and a GiB for every 16 samples; return what it was asked."""
    asked: list[int] = []

    def lowered(_: Any, program: Any) -> LoweredStep:
        asked.append(program.options.batch_size)
        return LoweredStep(digest=str(asked[-1]), path=tmp_path, batch_size=asked[-1])

    def compile_step(*_: Any, digest: str, **__: Any) -> CompiledStep:
        share = int(digest) / 16
        return CompiledStep(
            compiler="libtpu 0", compile_s=1.0, needed_bytes=int(share * GIB), cycles={"k": 1.5e6 * share}
        )

    monkeypatch.setitem(targets.PACKAGES, "tpu", ("pytest",))
    monkeypatch.setattr(compilation, "_lowered", lowered)
    monkeypatch.setattr(compilation, "compile_step", compile_step)
    return asked


def test_three_batch_sizes_take_two_compilations(document: dict[str, Any], compiled_for: list[int]) -> None:
    add_compiled(
        document,
        ProfileRequest(model="net.py:net"),
        catalog=CATALOG,
        compiling=StepCompiler(),
        accelerators=resolve_accelerators(["v5e"], CATALOG),
    )
    schema = json.loads((Path(str(files("gpuplan.schemas"))) / "gpuplan.profile.json").read_text())
    jsonschema.validate({**document, "environment": {}}, schema)
    by_size = {one["batch_size"]: one for one in document["compiled"]}

    assert compiled_for == [16, 64]
    assert [one["row"] for one in document["compiled"]] == [1, 2, 0]
    for size, milliseconds in ((16, 1.0), (32, 2.0), (64, 4.0)):
        assert by_size[size]["basis"] == "compiled"
        assert by_size[size]["step_time_s"]["mid"] == pytest.approx(milliseconds / 1e3)
        assert by_size[size]["memory_bytes"] == milliseconds * GIB
    assert any("TPU-v5e, batch 32 · float32: 2 ms" in said for said in iter_summary_sentences(document))


def test_what_to_compile_for_must_be_named() -> None:
    with pytest.raises(UsageError, match="needs at least one `--accelerator`"):
        resolve_accelerators([], CATALOG)


def test_a_profile_without_a_compiler_says_so_and_is_modelled(
    document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(targets.PACKAGES, "cuda", ("no-such-package-at-all",))
    said: list[str] = []
    add_compiled(
        document,
        ProfileRequest(model="net.py:net"),
        catalog=CATALOG,
        compiling=StepCompiler(warn=said.append),
        accelerators=resolve_accelerators(["T4"], CATALOG),
    )

    assert "gpuplan[cuda-compile]" in said[0]
    assert {one["basis"] for one in document["compiled"]} <= {"modelled", "datasheet"}
    assert all("not compiled: no compiler for T4 is installed" in one["note"] for one in document["compiled"])


def test_the_smallest_and_largest_batch_are_compiled_per_accelerator() -> None:
    """Doublings of 32 up to the largest that fits: 256 on one, only the user's batch on the other."""

    def offer(name: str, largest: int | None) -> Any:
        memory = SimpleNamespace(largest_batch_size=largest)
        return SimpleNamespace(
            offer=SimpleNamespace(accelerator=name), device_estimate=SimpleNamespace(memory=memory)
        )

    offers = [offer("A", 300), offer("A", 300), offer("B", 40), offer("C", None)]
    wanted = choose_workloads_to_compile(
        offers, [64, 128, 256], lambda size: make_workload(batch_size=size), own=32
    )

    assert {name: [one.batch_size for one in found] for name, found in wanted.items()} == {
        "A": [256],
        "B": [],
    }
