"""A rented machine on this computer: the start-up script of a provider's plan, run by bash in a folder of its own.

Real are bash, tar, awk, sed, the supervisor, the proof, Python and Keras. Replaced, by programs that write down
how they were asked, are the cloud's client for buckets (a folder), `git clone` (a folder), `shutdown`, the request
with which a machine deletes itself, `df`, `sleep` (so that loops end). `/dev/console` is a file, `/opt/gpuplan`
a folder.

The plan's accelerator is `CPU` unless a test says otherwise: this computer has no other. `python3` makes a fake
environment; with `installs`, a real one, into which the real `pip` installs wheels without network: `keras` and
`jax` (the extras for CUDA and TPUs included) with nothing but the path of this environment's packages.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import version
from pathlib import Path

from gpuplan.launch.clouds import create_adapter
from gpuplan.launch.core.clock import Clock
from gpuplan.launch.core.cloud_adapter import RunOutcome
from gpuplan.launch.core.request import LaunchRequest, RunSpec
from gpuplan.launch.planning import make_plan
from gpuplan.launch.reports import describe_end, read_console
from launch.bench_on_sockets import candidate
from launch.fake_cloud import START

PROJECT = {"project": "p1", "bucket": "gs://bucket", "service_account": "a@b"}
OFFERS = {
    "aws": ("aws", "g4dn.xlarge", "us-east-1", {"bucket": "bucket", "profile": "machine"}),
    "azure": (
        "azure", "Standard_NC4as_T4_v3", "eastus", {"subscription": "11111111-2222-3333-4444-555555555555"},
    ),
    "gcp": ("gcp", "n1-standard-8+1xT4", "us-central1", {**PROJECT, "zones": "us-central1-a"}),
    "tpu": ("gcp", "tpu-v5litepod-8", "us-central1", {**PROJECT, "zones": "us-central1-a"}),
}  # fmt: skip


def script_of(name: str, folder: Path, number: int, *, accelerator: str = "CPU", devices: float = 1) -> str:
    """Return the start-up script as it is planned for a spot machine."""
    provider, offer, region, options = OFFERS[name]
    terms = {"accelerator": accelerator, "devices": devices}
    request = LaunchRequest(
        run="r1",
        attempt=number,
        owner="me",
        made_at=START,
        provider=provider,
        candidates=(candidate(offer, region, purchase="spot").model_copy(update=terms),),
        options=options,
        spec=RunSpec(script="train.py", source="git:https://example.org/code"),
    )
    plan = make_plan(request, create_adapter(provider, state_dir=folder, clock=Clock()))
    (making,) = [call for call in plan.attempts[0].calls if call.makes == "machine"]
    if name == "gcp":
        items = {item["key"]: item["value"] for item in making.params["instanceResource"]["metadata"]["items"]}
        return str(items["startup-script"])
    if name == "tpu":
        return str(making.params["body"]["tpu"]["nodeSpec"][0]["node"]["metadata"]["startup-script"])
    return str(making.params["UserData" if name == "aws" else "custom_data"])


def start_machine(
    folder: Path,
    name: str,
    number: int,
    environment: dict[str, str],
    *,
    text: str | None = None,
    programs: dict[str, str] | None = None,
    home: Path | None = None,
    installs: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a machine: its files are in `machine-N`, its code comes from `code`, its bucket is `bucket`.

    Args:
        folder, name, number: Place, kind and number of the machine.
        environment: Variables of its processes.
        text: Start-up script; None: as planned.
        programs: Text of further programs, or of others.
        home: Its `/opt/gpuplan`; None: `machine-N`.
        installs: Whether environment and packages are made by the real `venv` and `pip`.
    """
    home = home or folder / f"machine-{number}"
    text = script_of(name, folder, number) if text is None else text
    text = text.replace("/opt/gpuplan", str(home)).replace("/var/log", str(home))
    text = text.replace("> /dev/console", f">> {folder}/machine-{number}.console")
    path = {"PATH": f"{_programs(folder, number, programs or {}, installs=installs)}:{os.environ['PATH']}"}
    backend = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder / "wheels"), "PIP_CONFIG_FILE": os.devnull}
    return subprocess.Popen(
        ["bash", "-c", text], env={**os.environ, **path, **backend, **offline, **environment}, cwd=folder
    )


def asked(folder: Path, number: int) -> list[str]:
    """Return what the machine asked its fakes, in order."""
    return Path(f"{folder}/machine-{number}.asked").read_text(encoding="utf-8").splitlines()


def console(folder: Path, number: int) -> str:
    """Return the machine's console."""
    return (folder / f"machine-{number}.console").read_text(encoding="utf-8")


def last_report(folder: Path, number: int) -> RunOutcome:
    """Return what the machine reported last on its console."""
    report = read_console(console(folder, number), attempt=number)
    assert report is not None
    return report


def what_the_user_reads(report: RunOutcome) -> str:
    """Return the end of a run as `gpuplan launch --wait` prints it."""
    problem, way = describe_end("r1", report)
    return "\n".join((*(f"  | {line}" for line in report.log.splitlines()), f"error: {problem}", f"hint: {way}"))


def make_wheels(folder: Path) -> None:
    """Write the wheels that a machine installs: the versions of this environment, found by a path."""
    folder.mkdir()
    for name in ("keras", "jax"):
        named = f"{name}-{version(name)}"
        info = f"{named}.dist-info"
        files = {
            f"_{name}.pth": f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version(name)}\n"
            "Provides-Extra: cuda12\nProvides-Extra: tpu\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        with zipfile.ZipFile(folder / f"{named}-py3-none-any.whl", "w") as wheel:
            for path, text in files.items():
                wheel.writestr(path, text)
            wheel.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD")))


def _programs(folder: Path, number: int, others: dict[str, str], *, installs: bool) -> Path:
    """Write the fakes."""
    place = folder / f"machine-{number}.programs"
    place.mkdir()
    # The client of a bucket: `cp - TARGET`, `cp SOURCE -`, `sync SOURCE TARGET`; a folder is the bucket.
    copy = f"""while [ $# -gt 2 ]; do shift; done
set -- $(echo "$1 $2" | sed -E 's#(gs|s3)://bucket#{folder / "bucket"}#g')
if [ "$1" = - ]; then mkdir -p "$(dirname "$2")" && exec cat > "$2"; fi
mkdir -p "$2" && cp -r "$1/." "$2" 2> /dev/null || true"""
    python = f"""[ "$2" = venv ] || exec {sys.executable} "$@"
mkdir -p "$4/bin"
printf '#!/bin/sh\\n[ "$2" = pip ] || exec {sys.executable} "$@"\\n' > "$4/bin/python"
chmod +x "$4/bin/python\""""
    texts = {
        "python3": f'exec {sys.executable} "$@"' if installs else python,
        "gcloud": copy,
        "aws": copy,
        "curl": "exit 22",
        "shutdown": "true",
        "git": f"mkdir -p code; cp -r {folder / 'code'}/. code",
        "df": "echo; echo disk 0 0 99999999",
        "sleep": '[ "$1" = 90 ] || kill -PIPE $PPID',  # bash says nothing of this signal
        **others,
    }
    for name, text in texts.items():
        (place / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {folder}/machine-{number}.asked\n{text}\n')
        (place / name).chmod(0o755)
    return place
