"""Real SkyPilot, offline: its loader takes every export, `sky launch --dryrun` finishes, its optimizer agrees."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gpuplan
import pytest
import requests
from gpuplan.errors import NoAnswerError
from gpuplan.launch.clouds.google.options import machine_type
from gpuplan.launch.export.names import find_skypilot_name
from gpuplan.offers.catalog import load_catalog
from launch.aws_world import AwsServer, aws_environment
from launch.export.plans import GIT, OFFERS, export_of, export_plan, write_sharded_plan
from launch.export.sky_catalog import write_catalogs

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("sky") is None, reason="SkyPilot is not installed: pip install 'gpuplan[skypilot]'"
)
needs_rsync = pytest.mark.skipif(
    shutil.which("rsync") is None, reason="SkyPilot needs rsync: apt-get install rsync"
)
PROGRAM = Path(__file__).with_name("sky_program.py")
TAKEN = [key for key in OFFERS if key not in {"colab", "gcp-part", "trainium", "runpod-community"}]
NOWHERE = "http://127.0.0.1:9"  # what is not on loopback fails at once


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder with catalogs written from ours."""
    folder = tmp_path_factory.mktemp("home")
    write_catalogs(folder, load_catalog().offers)
    return folder


def sky_environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SKYPILOT_"))}
    return {
        **kept,
        "HOME": str(home),
        "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # it asks for `aws --version`
        "HTTP_PROXY": NOWHERE,
        "HTTPS_PROXY": NOWHERE,
        "NO_PROXY": "127.0.0.1,localhost",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }


def ask_sky(home: Path, what: str, told: Any, folder: Path) -> Any:
    """Return what the program says."""
    path = folder / f"{what}.json"
    path.write_text(json.dumps(told))
    done = subprocess.run(
        [sys.executable, str(PROGRAM), what, str(path)],
        env=sky_environment(home),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_loader_of_skypilot_takes_every_export(home: Path, tmp_path: Path) -> None:
    """From a folder, git and a container, on every cloud; a misspelt key is refused."""
    documents = {
        f"{key} {source}": export_of(tmp_path, key, "skypilot", source=source)["document"]
        for key in TAKEN
        for source in (f"folder:{tmp_path}", GIT, "image:example.org/me/train:1")
    }
    wrong = json.loads(json.dumps(documents[f"aws {GIT}"]))
    wrong["resources"]["autostopp"] = wrong["resources"].pop("autostop")
    found = ask_sky(home, "load", {**documents, "wrong": wrong}, tmp_path)

    assert "autostop" in found.pop("wrong")
    assert {key: text for key, text in found.items() if "Error" in text} == {}
    assert found[f"aws-spot {GIT}"].startswith("1x AWS(p3.8xlarge[Spot]")
    assert "'T4': 2" in found[f"gcp-attached {GIT}"]


def test_the_loader_takes_a_sharded_plan_of_two_machines(home: Path, tmp_path: Path) -> None:
    """From the estimate to SkyPilot's own reading of it."""
    plan = write_sharded_plan(tmp_path / "plan.json")
    document = export_plan(plan, "skypilot")["document"]
    found = ask_sky(home, "load", {"two": document}, tmp_path)

    assert found["two"].startswith("2x AWS(p4d.24xlarge")


def test_the_optimizer_of_skypilot_picks_what_gpuplan_picks(home: Path, tmp_path: Path) -> None:
    """Three workloads of different size, AWS on demand; told nothing, it takes the lowest price an hour."""
    workloads = {
        "ResNet50": {"batch_size": 64, "samples": 1_281_167, "epochs": 5},
        "MobileNetV2": {"batch_size": 256, "samples": 50_000, "epochs": 20},
        "EfficientNetV2S": {"batch_size": 32, "samples": 200_000, "epochs": 10, "precision": "mixed_float16"},
    }
    plans, expected = {}, {}
    for model, question in workloads.items():
        accelerators = ["K80", "M60", "V100-16GB", "T4", "A10G", "L4", "A100-40GB", "H100-SXM"]
        found = gpuplan.estimate(
            model, providers=["aws"], purchase="on-demand", accelerators=accelerators, **question
        )
        path = tmp_path / f"{model}.json"
        path.write_text(json.dumps(found.to_json()))
        plans[model] = str(path)
        cheapest = found.recommendation.cheapest
        assert cheapest is not None
        expected[model] = found.offers[cheapest].offer.instance_type
    picked = ask_sky(home, "optimize", plans, tmp_path)

    assert {model: one["told"]["instance_type"] for model, one in picked.items()} == expected
    assert {one["untold"]["instance_type"] for one in picked.values()} != set(expected.values())


def test_names_mean_the_planned_machine_in_the_installed_skypilot(home: Path, tmp_path: Path) -> None:
    """All packaged offers of RunPod and Google that it knows: the GPU that it starts, the name of the machine."""
    tables = ask_sky(home, "names", None, tmp_path)
    wrong, right = [], 0
    for one in load_catalog().offers:
        if one.provider not in tables or one.devices < 1:
            continue
        try:
            name = find_skypilot_name(one.provider, one.instance_type, one.accelerator)
        except NoAnswerError:
            continue
        if one.provider == "runpod":
            found = tables["runpod"].get(name) == one.instance_type.partition(" [")[0]
        elif one.instance_type in tables["gcp"]:
            found = tables["gcp"][one.instance_type] == name
        else:
            continue
        right += found
        wrong += [] if found else [(one.instance_type, name)]

    assert wrong == []
    assert right > 500


def usd_of(key: str) -> float | None:
    """Return the catalog's price of the machine that an export asks for [USD/h]; None where it has none."""
    wanted = (OFFERS[key]["instance_type"], OFFERS[key]["region"], OFFERS[key]["purchase"])
    found = [one for one in load_catalog().offers if (one.instance_type, one.region, one.purchase) == wanted]
    return next((float(one.usd_per_hour) for one in found if one.usd_per_hour is not None), None)


@needs_rsync
def test_a_dry_run_of_sky_takes_the_planned_machine_at_the_planned_price(home: Path, tmp_path: Path) -> None:
    """What `sky launch --dryrun` calls, for every cloud and every export that the catalog has a price of."""
    keys = [key for key in TAKEN if usd_of(key) is not None]
    documents = {key: export_of(tmp_path, key, "skypilot")["document"] for key in keys}
    found = ask_sky(home, "dryrun", documents, tmp_path)

    assert {key: one["error"] for key, one in found.items() if "error" in one} == {}
    for key, one in found.items():
        offer = OFFERS[key]
        tpu = offer["accelerator"].startswith("TPU")
        machine = "TPU-VM" if tpu else machine_type(offer["instance_type"])[0]
        machine = "1x_RTX4090_SECURE" if key == "runpod" else machine
        region = "us-east-1" if offer["region"] == "any" else offer["region"]  # `sky_catalog` names it so
        assert (one["machine"], one["region"], one["spot"]) == (machine, region, offer["purchase"] == "spot")
        assert one["usd_per_hour"] == pytest.approx(usd_of(key), abs=1e-6), key
    assert found["gcp-attached"]["accelerators"] == {"T4": 2}
    assert {OFFERS[key]["provider"] for key in keys} == {"aws", "gcp", "azure", "lambda", "runpod", "vast"}


def start_server_of_sky(sky: str, environment: dict[str, str]) -> None:
    """Start it and wait for it: its own patience is a minute, and a slow machine needs more."""
    subprocess.run([sky, "api", "start"], env=environment, capture_output=True, check=False, timeout=300)
    session = requests.Session()
    session.trust_env = False
    until = time.monotonic() + 180
    while time.monotonic() < until:
        with contextlib.suppress(requests.ConnectionError):
            if session.get("http://127.0.0.1:46580/api/health", timeout=10).ok:
                return
        time.sleep(0.5)
    raise AssertionError("SkyPilot's server did not start")


@needs_rsync
def test_sky_launch_dryrun_on_the_command_line(home: Path, tmp_path: Path, aws: AwsServer) -> None:
    """Its own program and its own server, against AWS on loopback: nothing is started."""
    import yaml

    (home / ".aws").mkdir(exist_ok=True)
    (home / ".aws" / "config").write_text("[default]\nregion = us-east-1\n")
    task = tmp_path / "task.yaml"
    task.write_text(
        yaml.safe_dump(export_of(tmp_path, "aws", "skypilot", source=f"folder:{tmp_path}")["document"])
    )
    files = {"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"}  # it looks for its own, and takes no device for one
    environment = {
        **sky_environment(home),
        **{name: value for name, value in aws_environment(aws).items() if name not in files},
    }
    sky = str(Path(sys.executable).with_name("sky"))
    try:
        start_server_of_sky(sky, environment)
        done = subprocess.run(
            [sky, "launch", "--dryrun", "-y", str(task)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
    finally:
        subprocess.run([sky, "api", "stop"], env=environment, capture_output=True, check=False, timeout=300)
    said = done.stdout + done.stderr

    assert done.returncode == 0, said[-3000:]
    assert "Dryrun finished." in said
    assert re.search(rf"g4dn\.xlarge.*{usd_of('aws'):.2f}", said), said
    assert aws.alive() == []
