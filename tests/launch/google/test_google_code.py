"""How code comes to a machine at Google Cloud: a folder by way of a bucket, git at a revision, a container."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from gpuplan.errors import UsageError
from gpuplan.launch.core.shell import build_container_command
from gpuplan.launch.planning import make_plan
from launch.bench_on_sockets import Bench
from launch.google.test_google_plans import build_launch_plan, script

BUCKET = {"bucket": "gs://mine/below", "service_account": "a@p1.iam.gserviceaccount.com"}


def test_a_folder_goes_to_the_bucket_and_leaves_it_with_the_run(bench: Bench, tmp_path: Path) -> None:
    """Storage's own upload, held to its discovery document; secrets and caches of the folder stay here."""
    code = tmp_path / "code"
    (code / ".git").mkdir(parents=True)
    (code / "train.py").write_text("print('here')")
    (code / ".env").write_text("SECRET=1")
    bench.options = BUCKET
    asked = bench.plan().request
    spec = asked.spec.model_copy(update={"source": f"folder:{code}"})
    bench.launcher.launch(make_plan(asked.model_copy(update={"spec": spec}), bench.adapter))

    state = bench.state()
    assert state["violations"] == []
    (name,) = state["objects"]
    assert name == "mine/below/r1-source.tar.gz"
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(state["objects"][name]))) as archive:
        assert archive.getnames() == ["./train.py"]
    bench.launcher.stop_run("r1")
    assert bench.state()["objects"] == {}


def test_the_machine_fetches_what_was_uploaded() -> None:
    """The same name on both sides."""
    plan = build_launch_plan("compute", source="folder:/here", **BUCKET)
    (upload,) = [call for call in plan.attempts[0].calls if call.service == "storage.v1"]
    assert upload.params["body"]["name"] == "below/r1234abcd-1-source.tar.gz"
    line = "gcloud storage cp gs://mine/below/r1234abcd-1-source.tar.gz - | tar xz -C code"
    assert line in script(plan).splitlines()


def test_a_folder_without_a_bucket_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot read a folder of this computer") as caught:
        build_launch_plan("compute", source="folder:/here")
    assert "-O bucket=gs://NAME" in str(caught.value.hint)


def test_git_is_checked_out_at_its_revision() -> None:
    lines = script(build_launch_plan("compute", source="git:https://example.org/me/project.git@v1.2")).splitlines()
    at = lines.index("git clone -q -- https://example.org/me/project.git code")
    assert lines[at + 1] == "git -C code checkout -q v1.2"


def test_a_container_runs_under_the_supervisor() -> None:
    """Nothing is cloned or installed; the supervisor's own files are mounted, and told to stay where it starts."""
    text = script(build_launch_plan("compute", source="image:example.org/me/train:1"))
    assert "docker pull -q example.org/me/train:1" in text.splitlines()
    assert "docker run --rm --init --network host --gpus all -v /opt/gpuplan:/opt/gpuplan" in text
    assert "--entrypoint python example.org/me/train:1 -m gpuplan_agent.supervise /opt/gpuplan/run" in text
    assert '"cwd": null' in text
    assert "pip install" not in text
    assert "git clone" not in text
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_a_container_reaches_tpus_as_devices_and_needs_none_on_a_cpu() -> None:
    lines = {
        name: build_container_command("i", home="/h", job="/h/run", accelerator=name)
        for name in ("TPU-v5e", "CPU")
    }
    assert "--network host --privileged -v /h:/h" in lines["TPU-v5e"]
    assert "--network host -v /h:/h" in lines["CPU"]


def test_the_container_of_the_script_runs_the_supervisor_to_its_end(tmp_path: Path) -> None:
    """The script itself, in bash; a fake `docker` runs the command in a folder, a fake `shutdown` notes it."""
    commands, home, inside = tmp_path / "bin", tmp_path / "opt", tmp_path / "inside"
    for folder in (commands, inside):
        folder.mkdir()
    (inside / "train.py").write_text("import pathlib, sys; pathlib.Path('ran').write_text(' '.join(sys.argv[1:]))")
    docker = f"""[ "$1" = pull ] && exit 0
cd {inside}; export PYTHONPATH={home}
while [ "$1" != --entrypoint ]; do shift; done
shift 3; exec {sys.executable} "$@"
"""
    for name, text in {"shutdown": f'echo "$@" >> {tmp_path}/calls', "docker": docker}.items():
        (commands / name).write_text(f"#!/bin/bash\n{text}\n")
        (commands / name).chmod(0o755)
    text = script(build_launch_plan("compute", purchase="on_demand", source="image:mine"))
    text = (
        text.replace("/opt/gpuplan", str(home)).replace('"devices": 1', '"devices": 0').replace("sleep 90", "true")
    )
    environment = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", text], env=environment, check=False, capture_output=True, timeout=60)

    assert (inside / "ran").read_text() == "--epochs 3"
    assert json.loads((home / "work" / "outcome.json").read_text())["status"] == "done"
    assert (tmp_path / "calls").read_text().splitlines() == ["-P +62", "-P now"]
