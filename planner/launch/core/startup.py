"""Start-up script of a rented machine, as text, with the bundle and configuration of its supervisor.

Contains no secret. The first line sets the machine's own timer, and a trap ends the machine on any exit.
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

import jinja2

from ...offers.aliases import get_chip_name
from ...offers.catalog import find_chosen_accelerator
from ...offers.rows import CPU
from .api_call import Data
from .request import LaunchCandidate, LaunchRequest
from .shell import build_container_command, pin_versions, quote, quote_all, split_git_source


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


def build_startup_script(request: LaunchRequest, candidate: LaunchCandidate, number: int, boot: BootConfig) -> str:
    """Return the start-up script of one attempt, from the template `startup.sh.j2`.

    Each stage is announced as one line of JSON on the console, and in `outcome.json` of the run's folder in the
    bucket; from the proof on, the supervisor writes that line. Whatever ends the script, its last report says why.
    """
    spec = request.spec
    kind, _, place = spec.source.partition(":")
    folder = None if kind == "image" else f"{HOME}/code"
    job = build_job(request, candidate, number, work=f"{HOME}/work", folder=folder, notices=boot.notices)
    if kind == "image":
        packages = ""
        train = build_container_command(place, home=HOME, job=f"{HOME}/run", accelerator=candidate.accelerator)
    else:
        pinned = None if spec.requirements else pin_versions(boot.packages, spec.packages)
        packages = quote_all(pinned or ("-r", f"code/{spec.requirements}"))
        train = "$py -m gpuplan_agent.supervise run"
    return _load_template().render(
        boot=boot,
        number=number,
        kind=kind,
        home=HOME,
        remote=f"{boot.bucket}/{request.run}" if boot.bucket else "",
        quote=quote,
        archive=build_agent_archive(),
        job=json.dumps(job, sort_keys=True),
        place=place,
        git=split_git_source(place),
        archive_name=build_archive_name(request.run),
        packages=packages,
        every_s=max(1, int(spec.checkpoint_every_s)),
        train=train,
    )


@functools.cache
def _load_template() -> jinja2.Template:
    loader = jinja2.PackageLoader("gpuplan.launch.core", "")
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    return environment.get_template("startup.sh.j2")


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
    known = find_chosen_accelerator(name)
    has_no_name = name == CPU or (known is not None and known.vendor != "NVIDIA")
    chip = "" if has_no_name else re.sub(r"[^a-z0-9]", "", get_chip_name(name).lower())
    devices = 0 if name == CPU else math.ceil(candidate.devices)  # a part of a device is one
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
