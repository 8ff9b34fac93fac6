"""Exports for kinetic: a file that sends the script to a node; real kinetic loads it, without a cluster."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from gpuplan.errors import NoAnswerError, UsageError
from gpuplan.offers.aliases import find_kinetic_name, parse_kinetic_name, read_kinetic_table
from gpuplan.offers.catalog import load_catalog
from gpuplan.render.launch import format_export
from launch.export.plans import GIT, OFFERS, export_plan, export_planned, offer, write_plan

needs_kinetic = pytest.mark.skipif(
    importlib.util.find_spec("kinetic") is None, reason="kinetic is not installed: pip install keras-kinetic"
)
SCRIPT = "from pathlib import Path\nimport sys\nPath('trained').write_text(' '.join(sys.argv[1:]))\n"
TAKEN = {
    "gcp-attached": "gpu-t4x2", "gcp-spot": "gpu-a100", "gcp-tpu": "tpu-v5litepod-8", "gcp-slice": "tpu-v6e-16",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a script that writes its arguments."""
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def export_here(folder: Path, planned: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return the export of an offer for a script of a folder."""
    return export_planned(folder, planned, "kinetic", source=str(folder), **more)


def find_decorator(text: str) -> tuple[str, dict[str, Any]]:
    """Return the function under a decorator of a file and the keyword arguments of it."""
    (function,) = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    (call,) = function.decorator_list
    assert isinstance(call, ast.Call)
    assert ast.unparse(call.func) == "kinetic.run"
    return function.name, {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}


@pytest.mark.parametrize("key", TAKEN)
def test_the_decorator_names_the_planned_machine(key: str, folder: Path) -> None:
    """Names by hand from kinetic's page of accelerators; spot on the decorator and on the node pool."""
    found = export_here(folder, OFFERS[key])
    is_spot = OFFERS[key]["purchase"] == "spot"

    wanted = {"accelerator": TAKEN[key], **({"spot": True} if is_spot else {})}
    assert find_decorator(format_export(found)) == ("train", wanted)
    pool = f"kinetic pool add --accelerator {TAKEN[key]}{' --spot' if is_spot else ''}, once"
    assert found["apply"] == f"{pool}; then python f.yaml"
    assert any("Pathways" in line for line in found["open"]) == (key == "gcp-slice")


def test_time_cost_and_cap_stand_in_the_file(folder: Path) -> None:
    """An hour, 50 minutes to one and a half, at $1 an hour; the cap of the other engines, 9900 s."""
    text = format_export(export_here(folder, OFFERS["gcp-tpu"]))

    assert "# planned: a training of 60 min (50–90), $1.00\n" in text
    assert "# at most 9900 s, $2.75 without boot, disk and traffic\n" in text
    assert "# ends by itself: the script is stopped 9900 s after its start (`timeout`)\n" in text


def test_the_file_runs_the_script(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a node: the folder is on the path, and the working folder is another one."""
    sent: list[Callable[[], None]] = []
    fake_kinetic = ModuleType("kinetic")
    fake_kinetic.run = lambda **_: sent.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kinetic", fake_kinetic)
    monkeypatch.syspath_prepend(str(folder))
    text = format_export(export_here(folder, OFFERS["gcp-tpu"], arguments=("--name", "it's")))
    exec(compile(text, "on_kinetic.py", "exec"), {"__name__": "on_kinetic"})
    sent[0]()

    assert (folder / "trained").read_text() == "--name it's"


def test_a_script_with_kinetic_gets_its_line(folder: Path) -> None:
    """No program around a program: the line to write, and what does not stop it."""
    (folder / "train.py").write_text("import kinetic\n\n\n@kinetic.run(accelerator='l4')\ndef train(): ...\n")
    found = export_here(folder, OFFERS["gcp-spot"])

    assert found["document"].splitlines()[-1] == '@kinetic.run(accelerator="gpu-a100", spot=True)'
    assert found["document"].endswith("\n")
    assert "import subprocess" not in found["document"]
    assert any("signal.alarm(9900)" in line for line in found["open"])
    assert found["apply"].endswith("then python train.py")


@pytest.mark.parametrize(
    ("planned", "source", "kind", "says"),
    [
        (offer("gcp", "g2-standard-8", "L4"), ".", NoAnswerError, "g2-standard-8 .* is no machine that"),
        (offer("gcp", "tpu-v6e-4", "TPU-v6e", 4), ".", NoAnswerError, "is no machine that kinetic starts"),
        (OFFERS["aws"], ".", NoAnswerError, r"cannot be launched by kinetic \(it launches on gcp\)"),
        (OFFERS["gcp-tpu"], GIT, UsageError, "kinetic takes its code from a folder"),
    ],
)  # fmt: skip
def test_refusals(planned: dict[str, Any], source: str, kind: type[Exception], says: str, folder: Path) -> None:
    """One line each."""
    with pytest.raises(kind, match=says):
        export_planned(folder, planned, "kinetic", source=str(folder) if source == "." else source)


def test_the_next_machine_that_it_starts(folder: Path) -> None:
    """The plan's pick is at AWS."""
    path = write_plan(folder, OFFERS["aws"], offer("gcp", "g2-standard-8", "L4"), OFFERS["gcp-tpu"])
    found = export_plan(path, "kinetic", source=str(folder))

    assert found["offer"]["instance_type"] == "tpu-v5litepod-8"
    assert found["instead_of"].startswith("instead of aws g4dn.xlarge, which cannot be launched by kinetic")


def test_names_are_of_offers_of_the_catalog() -> None:
    """Each accelerator is one of ours; 30 of Google's machines have a name that means the same again."""
    catalog = load_catalog()
    assert read_kinetic_table().keys() <= catalog.accelerators.keys()
    machines = {
        (one.accelerator, one.devices, one.instance_type) for one in catalog.offers if one.provider == "gcp"
    }
    named = {
        name: (accelerator, devices)
        for accelerator, devices, instance_type in machines
        if (name := find_kinetic_name(accelerator=accelerator, devices=devices, instance_type=instance_type))
    }

    assert len(named) >= 30
    assert {name: parse_kinetic_name(name) for name in named} == named


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        ("v5litepod-1", ("TPU-v5e", 1)), ("TPU:v5e-2x4", ("TPU-v5e", 8)), ("tpu-v4-2x2x2", ("TPU-v4", 8)),
        ("v6e", ("TPU-v6e", 8)), ("tpu", ("TPU-v5e", 4)), ("tpu:16", ("TPU-v6e", 16)), ("tpu:1", ("TPU-v5e", 1)),
        ("gpu", ("L4", 1)), ("gpu:4", ("H100-SXM", 4)), ("gpu:16", ("A100-80GB", 16)), ("nvidia-l4", ("L4", 1)),
        ("a100-80gbx2", ("A100-80GB", 2)), ("gpu-l4:spot", ("L4", 1)), ("cpu", None), ("v6e-1", None),
    ],
)  # fmt: skip
def test_names_mean_what_kinetic_says(name: str, machine: tuple[str, int] | None) -> None:
    """Rows of its page "Accelerators", github.com/keras-team/kinetic, docs/accelerators.md, a958df4."""
    assert parse_kinetic_name(name) == machine


@needs_kinetic
def test_kinetic_takes_every_name_and_means_the_same() -> None:
    """Its own parser, on every machine of the table: machine type or topology, and number."""
    from kinetic.core import accelerators

    read = 0
    for accelerator, row in read_kinetic_table().items():
        for size, form in row["sizes"].items():
            machine = form if row["kind"] == "tpu" else f"{form}+x"
            name = find_kinetic_name(accelerator=accelerator, devices=float(size), instance_type=machine)
            found = accelerators.parse_accelerator(name)
            is_tpu = isinstance(found, accelerators.TpuConfig)
            assert (found.topology if is_tpu else found.machine_type) == form
            assert (found.chips if is_tpu else found.count) == int(size)
            read += 1
    counts = (len(one.counts) for one in accelerators.GPUS.values())
    topologies = (len(one.topologies) for one in accelerators.TPUS.values())
    assert read == sum(counts) + sum(topologies)


@needs_kinetic
def test_every_name_of_kinetic_is_known() -> None:
    """Each type alone, with each number and each topology, with each prefix, and each number alone."""
    from kinetic.core import accelerators

    gpus = [
        f"{name}{end}" for name, one in accelerators.GPUS.items() for end in ("", *map("x{}".format, one.counts))
    ]
    gpus += [one.gke_label for one in accelerators.GPUS.values()]
    slices = {name: one.topologies for name, one in accelerators.TPUS.items()}
    slices |= {alias: slices[name] for alias, name in accelerators.TPU_ALIASES.items()}
    forms = {name: [*known, *(one.topology for one in known.values())] for name, known in slices.items()}
    tpus = [f"{name}{end}" for name in forms for end in ("", *map("-{}".format, forms[name]))]
    counted = [f"{kind}:{count}" for kind, count in product(("gpu", "tpu"), (1, 2, 4, 8, 16, 32, 64, 128))]
    prefixed = [*(f"gpu-{name}" for name in gpus), *(f"tpu:{name}" for name in tpus), "gpu", "tpu", *counted]
    checked = 0
    for name in (*gpus, *tpus, *prefixed):
        try:
            theirs = accelerators.parse_accelerator(name)
        except ValueError:
            assert parse_kinetic_name(name) is None, name
            continue
        accelerator, devices = parse_kinetic_name(name) or ("", 0)
        is_tpu = isinstance(theirs, accelerators.TpuConfig)
        assert theirs.name in read_kinetic_table()[accelerator]["names"], name
        assert devices == (theirs.chips if is_tpu else theirs.count), name
        checked += 1
    assert checked > 100


@needs_kinetic
@pytest.mark.parametrize("key", TAKEN)
def test_kinetic_loads_the_file_and_would_send_it(key: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its decorator; its payload, read again and run as on a node; its pod and node pool, of that machine."""
    import cloudpickle
    from kinetic.backend import gke_client, k8s_utils
    from kinetic.cli.config import NodePoolConfig
    from kinetic.core import accelerators
    from kinetic.core.core import RemoteCallable
    from kinetic.utils import packager

    is_spot = OFFERS[key]["purchase"] == "spot"
    file = folder / "on_kinetic.py"
    file.write_text(format_export(export_here(folder, OFFERS[key])))
    spec = importlib.util.spec_from_file_location("on_kinetic", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert isinstance(module.train, RemoteCallable)

    packager.save_payload(module.train._func, (), {}, {}, str(folder / "payload.pkl"))
    monkeypatch.syspath_prepend(str(folder))
    cloudpickle.loads((folder / "payload.pkl").read_bytes())["func"]()
    assert (folder / "trained").exists()

    planned = accelerators.parse_accelerator(TAKEN[key], spot=is_spot)
    pool = NodePoolConfig(accelerators.generate_pool_name(planned), planned)
    assert pool.accelerator.spot == is_spot
    job = gke_client._create_job_spec(
        job_name="kinetic-1",
        container_uri="image",
        accel_config=k8s_utils.parse_accelerator(TAKEN[key], spot=is_spot),
        job_id="1",
        bucket_name="bucket",
        namespace="default",
    )
    selector = job.spec.template.spec.node_selector
    assert selector.get("cloud.google.com/gke-spot") == ("true" if is_spot else None)
    if key.startswith(("gcp-tpu", "gcp-slice")):
        assert selector["cloud.google.com/gke-tpu-topology"] == planned.topology
