"""A rented machine on this computer: the start-up script of a provider's plan, run by bash in a folder of its own.

Real are bash, tar, the supervisor, Python, Keras; fakes stand for what only a cloud's image or a cloud has (its
client for buckets, `git clone`, `pip`, `shutdown`, its metadata), and write down that they were asked.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from gpuplan.launch.clouds import create_adapter
from gpuplan.launch.core.clock import SystemClock
from gpuplan.launch.core.request import LaunchRequest, RunSpec
from gpuplan.launch.planning import make_plan
from launch.bench_on_sockets import candidate
from launch.fake_cloud import START

OFFERS = {
    "aws": ("g4dn.xlarge", "us-east-1", {"bucket": "bucket", "profile": "machine"}),
    "azure": ("Standard_NC4as_T4_v3", "eastus", {"subscription": "11111111-2222-3333-4444-555555555555"}),
    "gcp": (
        "n1-standard-8+1xT4",
        "us-central1",
        {"project": "p1", "zones": "us-central1-a", "bucket": "gs://bucket", "service_account": "a@b"},
    ),
}


def script_of(provider: str, folder: Path, number: int) -> str:
    """Return the start-up script as it is planned for a spot machine."""
    offer, region, options = OFFERS[provider]
    request = LaunchRequest(
        run="r1",
        attempt=number,
        owner="me",
        made_at=START,
        provider=provider,
        candidates=(candidate(offer, region, purchase="spot"),),
        options=options,
        spec=RunSpec(script="train.py", source="git:https://example.org/code"),
    )
    plan = make_plan(request, create_adapter(provider, state_dir=folder, clock=SystemClock()))
    (making,) = [call for call in plan.attempts[0].calls if call.makes == "machine"]
    if provider == "gcp":
        items = {item["key"]: item["value"] for item in making.params["instanceResource"]["metadata"]["items"]}
        return str(items["startup-script"])
    return str(making.params["UserData" if provider == "aws" else "custom_data"])


def start_machine(
    folder: Path, provider: str, number: int, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start a machine: its files are in `machine-N`, its code comes from `code`, its bucket is `bucket`."""
    home = folder / f"machine-{number}"
    home.mkdir()
    text = script_of(provider, folder, number)
    text = text.replace("/opt/gpuplan", str(home)).replace("/var/log", str(home))
    path = {"PATH": f"{_programs(folder, home)}:{os.environ['PATH']}"}
    backend = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(["bash", "-c", text], env={**os.environ, **path, **backend, **environment})


def asked(folder: Path, number: int) -> list[str]:
    """Return what the machine asked its fakes, in order."""
    return Path(f"{folder}/machine-{number}.asked").read_text(encoding="utf-8").splitlines()


def _programs(folder: Path, home: Path) -> Path:
    """Write the fakes."""
    place = Path(f"{home}.programs")
    place.mkdir()
    copy = f"""set -- $(echo "$4 $5" | sed -E 's#(gs|s3)://bucket#{folder / "bucket"}#g')
case "$2" in *.log) cp "$1" "$2";; *) mkdir -p "$2" && cp -r "$1/." "$2" 2> /dev/null;; esac"""
    python = f"""[ "$2" = venv ] || exec {sys.executable} "$@"
mkdir -p "$4/bin" && ln -s /bin/true "$4/bin/pip"
printf '#!/bin/sh\\nexec {sys.executable} "$@"\\n' > "$4/bin/python" && chmod +x "$4/bin/python\""""
    texts = {
        "python3": python, "gcloud": copy, "aws": f"{copy} || true", "curl": "exit 22", "shutdown": "true",
        "git": f'mkdir -p code; cp -r {folder / "code"}/. code',
        "sleep": "kill -9 $PPID",  # whoever waits is at its end
    }  # fmt: skip
    for name, text in texts.items():
        (place / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {home}.asked\n{text}\n')
        (place / name).chmod(0o755)
    return place
