"""Start-up script of a rented machine, as text, with the bundle and configuration of its supervisor.

Pure; contains no secret. The first line sets the machine's own timer, and a trap ends the machine on any exit.
Then the script unpacks the embedded `gpuplan_agent`, fetches the code, installs packages, and runs the training
script under the supervisor.
"""

from __future__ import annotations

import ast
import base64
import functools
import io
import json
import math
import re
import tarfile
from importlib.resources import files
from typing import Any

from ...offers.aliases import get_chip_name
from .api_call import Data
from .request import LaunchCandidate, LaunchRequest
from .shell import build_clone_commands, build_container_command, pin_versions, quote, quote_all


class BootConfig(Data):
    """Provider-specific parts of the script."""

    timer: str  # first line: sets the timer that ends the machine
    end: str  # command that ends the machine when the run is over
    packages: tuple[str, ...]  # with extras; in the plan's versions, unless the user gives requirements
    notices: str | None  # provider whose preemption notices are polled; None without preemption
    copy_: str = ""  # command that copies a folder to or from the bucket, with `{source}` and `{target}`
    stream: str = ""  # command that copies an object of the bucket, with `{source}` and `{target}`; `-` is a pipe
    bucket: str = ""  # bucket of checkpoints and logs; empty without one


def build_archive_name(run: str) -> str:
    return f"{run}-source.tar.gz"


HOME = "/opt/gpuplan"
UV = "0.13.9"  # docs.astral.sh/uv/reference/installer
PYTHON = "3.12"  # taken from uv where the image has none that the packages run on
ROOM_GIB = 8  # packages with CUDA, installed, take about 5


def build_startup_script(request: LaunchRequest, candidate: LaunchCandidate, number: int, boot: BootConfig) -> str:
    """Return the start-up script of one attempt.

    Each stage is announced as one line of JSON on the console, and in `outcome.json` of the run's folder in the
    bucket; from the proof on, the supervisor writes that line. Whatever ends the script, its last report says why.
    """
    folder = None if is_in_container(request) else f"{HOME}/code"
    job = build_job(request, candidate, number, work=f"{HOME}/work", folder=folder, notices=boot.notices)
    remote = f"{boot.bucket}/{request.run}" if boot.bucket else ""
    every_s, copy = max(1, int(request.spec.checkpoint_every_s)), _build_copy(boot, source="work", target=remote)
    install, train = _build_training(request, candidate, boot)
    lines = [
        "#!/bin/bash",
        boot.timer,
        "set -euo pipefail",
        *_build_reporting(boot, remote, number),
        "trap end EXIT",
        f"why=$({{ mkdir -p {HOME}/run {HOME}/work {HOME}/code && {_PROBE}; }} 2>&1)",
        f"cd {HOME}",
        f"exec >> work/log-{number}.txt 2>&1",
        "stage boot",
        "free=$(df -Pk . | awk 'NR == 2 {print int($4 / 1048576)}')",
        f'[ "$free" -ge {ROOM_GIB} ] || {{ echo "gpuplan: the disk has $free of {ROOM_GIB} GiB"; exit 1; }}',
        "stage python",
        *_build_python(request),
        f"$py -c {UNPACKING} <<'END'\n{build_agent_archive()}\nEND",
        f"cat > run/params.json <<'END'\n{json.dumps(job, sort_keys=True)}\nEND",
        "stage files",
        *_build_fetching(request, boot, remote),
        "stage packages",
        install,
        "stage proof",
        f'(while sleep {REPORT_S}; do r=$(result) && say "$r" || true; done) &',
        *([f"(while sleep {every_s}; do {copy} || true; done) &"] if remote else []),
        train,
    ]
    return "\n".join(lines) + "\n"


def _build_reporting(boot: BootConfig, remote: str, number: int) -> list[str]:
    """Return the functions that announce a stage, and that report and end at the script's exit.

    Without a bucket the machine stays for `LINGER_S`, so that its console can be read: some clouds delete it then.
    """
    store = ""
    if remote:
        store = f' echo "$1" | {boot.stream.format(source="-", target=quote(f"{remote}/outcome.json"))};'
    running = f'{{"attempt": {number}, "status": "running", "stage": "\'$now\'"}}'
    failed = (
        running.replace("running", "failed_before_training")[:-1] + ', "exit_code": \'$code\', "log": "\'$log\'"}'
    )
    last = f"{_build_copy(boot, source=f'{HOME}/work', target=remote)} || true" if remote else f"sleep {LINGER_S}"
    return [
        "export HOME=${HOME:-/root} now=boot",
        f'say() {{ {{ echo "gpuplan: $1" > /dev/console; }} 2> /dev/null || true;{store} }}',
        f"stage() {{ now=$1; say '{running}'; }}",
        f"result() {{ grep -s '\"attempt\": {number},' {HOME}/work/outcome.json; }}",
        "end() {",
        "code=$? r=; set +e",
        f'log=$({{ cat {HOME}/work/log-{number}.txt || echo "${{why:-}}"; {_FULL}; }} 2> /dev/null | {_TAIL})',
        f"[ $now = proof ] && r=$(result) || r='{failed}'",
        'say "$r"',
        last,
        boot.end,
        "}",
    ]


_PROBE = f"head -c 1000000 /dev/zero > {HOME}/run/probe && rm {HOME}/run/probe"
# The last lines, without control characters, as a JSON string.
_FULL = f"""df -Pk {HOME} | awk 'NR == 2 && $4 < 9999 {{print "gpuplan: the disk is full"}}'"""
_TAIL = r"""tail -n 12 | tail -c 1500 | tr -cd '\n -~' | sed 's/[\"]/\\&/g' | awk '{printf "%s\\n", $0}'"""


def _build_python(request: LaunchRequest) -> list[str]:
    """Return the commands that make an environment of a Python that the packages run on; a container has one."""
    if is_in_container(request):
        return ["py=python3"]
    new_enough = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))"
    return [
        f"if python3 -c '{new_enough}'; then python3 -m venv --system-site-packages venv; else",
        "export UV_PYTHON_INSTALL_DIR=$PWD/python",
        f"curl -LsSf https://astral.sh/uv/{UV}/install.sh | env UV_UNMANAGED_INSTALL=$PWD sh",
        f"./uv venv -q --seed --managed-python --python {PYTHON} venv; fi",
        "py=venv/bin/python",
    ]


def _build_fetching(request: LaunchRequest, boot: BootConfig, remote: str) -> list[str]:
    """Return the commands that fetch the code and the checkpoints of an earlier attempt."""
    kind, _, place = request.spec.source.partition(":")
    if kind == "git":
        lines = build_clone_commands(place, "code")
    elif kind == "image":
        lines = []
    elif kind == "folder":
        archive = quote(f"{boot.bucket}/{build_archive_name(request.run)}")
        lines = [f"{boot.stream.format(source=archive, target='-')} | tar xz -C code"]
    elif place.endswith((".tar.gz", ".tgz")):
        lines = [f"{boot.stream.format(source=quote(_address(kind, place)), target='-')} | tar xz -C code"]
    else:
        lines = [_build_copy(boot, source=_address(kind, place), target="code")]
    if remote:
        lines += [_build_copy(boot, source=remote, target="work"), "rm -f work/outcome.json"]
    return lines


def _address(kind: str, place: str) -> str:
    """Return the address of an object as the cloud's CLI expects it; a place may begin with `//`."""
    return f"{kind}:{place}" if place.startswith("//") else f"{kind}://{place}"


def _build_training(request: LaunchRequest, candidate: LaunchCandidate, boot: BootConfig) -> tuple[str, str]:
    """Return the command that installs packages, or gets the container's image, and the one that trains."""
    kind, _, place = request.spec.source.partition(":")
    if kind == "image":
        run = build_container_command(place, home=HOME, job=f"{HOME}/run", accelerator=candidate.accelerator)
        return f"docker pull -q {quote(place)}", run
    if request.spec.requirements:
        what = f"-r {quote(f'code/{request.spec.requirements}')}"
    else:
        what = quote_all(pin_versions(boot.packages, request.spec.packages))
    return f"$py -m pip install -q --no-cache-dir {what}", "$py -m gpuplan_agent.supervise run"


def _build_copy(boot: BootConfig, *, source: str, target: str) -> str:
    return boot.copy_.format(source=quote(source), target=quote(target))


REPORT_S, LINGER_S = 30, 90
UNPACKING = (
    "'import base64, io, sys, tarfile;"
    " tarfile.open(fileobj=io.BytesIO(base64.b85decode(sys.stdin.read().strip()))).extractall()'"
)


def is_in_container(request: LaunchRequest) -> bool:
    """Whether the code is in a container image."""
    return request.spec.source.startswith("image:")


@functools.cache
def build_agent_archive() -> str:
    """Return the supervisor's files without docstrings and comments, compressed and base85-encoded. Deterministic.

    Cached: a plan has one script for every zone of every candidate.
    """
    packed = io.BytesIO()
    folder = files("gpuplan.launch.agent")
    with tarfile.open(fileobj=packed, mode="w:bz2") as archive:
        for file in sorted(folder.iterdir(), key=lambda file: file.name):
            if file.name.endswith(".py") and file.name != "watchdog.py":
                data = _without_texts(file.read_text(encoding="utf-8")).encode()
                member = tarfile.TarInfo(f"gpuplan_agent/{file.name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return base64.b85encode(packed.getvalue()).decode()


def _without_texts(source: str) -> str:
    """Return a module without docstrings, comments and types of arguments, to fit the size limit of user data."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def build_job(
    request: LaunchRequest,
    candidate: LaunchCandidate,
    number: int,
    *,
    work: str,
    folder: str | None,
    notices: str | None = None,
) -> dict[str, Any]:
    """Return the configuration of the supervisor.

    Args:
        work: Folder of checkpoints, log and outcome.
        folder: Folder in which the script runs; None: the current one.
        notices: Provider whose preemption notices are polled on a spot machine; None: no polling.
    """
    spec, name = request.spec, candidate.accelerator
    chip = "" if name.startswith(("TPU", "MI", "CPU")) else re.sub(r"[^a-z0-9]", "", get_chip_name(name).lower())
    devices = 0 if name == "CPU" else math.ceil(candidate.devices)  # a part of a device is one
    expected = {"accelerator": name, "devices": devices, "chip": chip}
    return {
        "attempt": number,
        "cap_s": candidate.cap_s,
        "work": work,
        "cwd": folder,
        "script": spec.script,
        "arguments": list(spec.arguments),
        "checkpoint_every_s": spec.checkpoint_every_s,
        "restarts": spec.restarts,
        "stop_loss": spec.stop_loss.model_dump(mode="json"),
        "step_s": candidate.step_s.model_dump(mode="json") if candidate.step_s else None,
        "notices": notices if candidate.purchase == "spot" else None,
        "expects": None if request.provider == "local" else expected,
    }
