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
import tarfile
from importlib.resources import files
from typing import Any

from ...errors import UsageError
from .api_call import Data
from .request import LaunchCandidate, LaunchRequest
from .shell import (
    build_clone_commands,
    build_container_commands,
    pin_versions,
    quote,
    quote_all,
    require_plain_source,
)


class BootConfig(Data):
    """Provider-specific parts of the script.

    Args:
        timer: First line: sets the timer that ends the machine.
        end: Command that ends the machine when the run is over.
        packages: Names with extras, installed in the plan's versions unless the user gives requirements.
        notices: Provider whose preemption notices are polled; None without preemption.
        copy_: Command that copies a folder to or from the bucket, with `{source}` and `{target}`.
        unpack: Command that writes an archive of the bucket to standard output, with `{source}`.
        bucket: Bucket of checkpoints and logs; empty without one.
    """

    timer: str
    end: str
    packages: tuple[str, ...]
    notices: str | None
    copy_: str = ""
    unpack: str = ""
    bucket: str = ""


def build_archive_name(run: str) -> str:
    """Return the name of the uploaded source archive in the bucket."""
    return f"{run}-source.tar.gz"


def require_fetchable(source: str, *, kinds: tuple[str, ...], provider: str) -> None:
    """Raise UsageError unless a machine of a provider can fetch the code without a secret."""
    kind = source.partition(":")[0]
    if kind not in kinds:
        allowed = " or ".join(f"`{one}:`" for one in kinds)
        raise UsageError(
            f"`--source {source}`: a machine of {provider} fetches its code from {allowed}",
            hint="push the code, then use `--source git:https://…`",
        )
    require_plain_source(source)


def build_startup_script(request: LaunchRequest, candidate: LaunchCandidate, number: int, boot: BootConfig) -> str:
    """Return the start-up script of one attempt."""
    spec = request.spec
    folder = None if is_in_container(request) else f"{HOME}/code"
    job = build_job(request, candidate, number, work=f"{HOME}/work", folder=folder, notices=boot.notices)
    params = json.dumps(job, sort_keys=True)
    remote, syncing, last_copy = f"{boot.bucket}/{request.run}" if boot.bucket else "", [], ""
    if remote:  # checkpoints and logs are copied to the bucket during the run, and a last time
        copy = _build_copy(boot, source="work", target=remote)
        syncing = [f"(while sleep {max(1, int(spec.checkpoint_every_s))}; do {copy} || true; done) &"]
        last_copy = f"{_build_copy(boot, source=f'{HOME}/work', target=remote)} || true; "
    lines = [
        "#!/bin/bash",
        boot.timer,
        "set -euo pipefail",
        f"end() {{ {last_copy}{boot.end}; }}",
        "trap end EXIT",
        f"mkdir -p {HOME}/run {HOME}/work {HOME}/code && cd {HOME}",
        f"exec > >(tee -a work/log-{number}.txt) 2>&1",  # an earlier attempt left its own
        f"{UNPACKING} <<'END'\n{build_agent_archive()}\nEND",
        f"cat > run/params.json <<'END'\n{params}\nEND",
        *_build_fetching(request, boot, remote),
        *_build_installing(request, boot),
        *syncing,
        *_build_running(request, candidate),
    ]
    return "\n".join(lines) + "\n"


def _build_fetching(request: LaunchRequest, boot: BootConfig, remote: str) -> list[str]:
    """Return the commands that fetch the code and the checkpoints of an earlier attempt."""
    kind, _, place = request.spec.source.partition(":")
    if kind == "git":
        lines = build_clone_commands(place, "code")
    elif kind == "image":
        lines = []
    elif kind == "folder":
        archive = quote(f"{boot.bucket}/{build_archive_name(request.run)}")
        lines = [f"{boot.unpack.format(source=archive)} | tar xz -C code"]
    elif place.endswith((".tar.gz", ".tgz")):
        lines = [f"{boot.unpack.format(source=quote(_address(kind, place)))} | tar xz -C code"]
    else:
        lines = [_build_copy(boot, source=_address(kind, place), target="code")]
    if remote:
        lines.append(f"{_build_copy(boot, source=remote, target='work')} || true")
    return lines


def _address(kind: str, place: str) -> str:
    """Return the address of an object as the cloud's CLI expects it.

    Example:
        >>> _address("gs", "bucket/code"), _address("s3", "//bucket/code")
        ('gs://bucket/code', 's3://bucket/code')
    """
    return f"{kind}:{place}" if place.startswith("//") else f"{kind}://{place}"


def _build_installing(request: LaunchRequest, boot: BootConfig) -> list[str]:
    """Return the commands that install packages; none for a container."""
    if is_in_container(request):
        return []
    if request.spec.requirements:
        what = f"-r {quote(f'code/{request.spec.requirements}')}"
    else:
        what = quote_all(pin_versions(boot.packages, request.spec.packages))
    return ["python3 -m venv --system-site-packages venv", f"venv/bin/pip install -q {what}"]


def _build_running(request: LaunchRequest, candidate: LaunchCandidate) -> list[str]:
    """Return the commands that run the script under the supervisor."""
    if not is_in_container(request):
        return ["venv/bin/python -m gpuplan_agent.supervise run"]
    image = request.spec.source.partition(":")[2]
    return build_container_commands(image, home=HOME, job=f"{HOME}/run", accelerator=candidate.accelerator)


def _build_copy(boot: BootConfig, *, source: str, target: str) -> str:
    """Return the command that copies a folder."""
    return boot.copy_.format(source=quote(source), target=quote(target))


HOME = "/opt/gpuplan"
UNPACKING = (
    "python3 -c 'import base64, io, sys, tarfile;"
    " tarfile.open(fileobj=io.BytesIO(base64.b85decode(sys.stdin.read().strip()))).extractall()'"
)


def is_in_container(request: LaunchRequest) -> bool:
    """Whether the code is in a container image."""
    return request.spec.source.startswith("image:")


@functools.cache
def build_agent_archive() -> str:
    """Return the supervisor's files without docstrings and comments, compressed and base85-encoded. Deterministic.

    The result is cached: a plan has one script for every zone of every candidate. `UNPACKING` extracts it.
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
    """Return a module's code without docstrings, comments and argument types, to fit the size limit of user data.

    Example:
        >>> _without_texts('def f(x: int) -> int:\\n    "A text."\\n    return x # x')
        'def f(x):\\n    return x'
    """
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
        request, candidate, number: The attempt.
        work: Folder of checkpoints, log and outcome.
        folder: Folder in which the script runs; None: the current one.
        notices: Provider whose preemption notices are polled on a spot machine; None: no polling.
    """
    spec = request.spec
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
        "at_end": [],
    }
