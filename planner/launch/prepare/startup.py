"""The start-up script of a rented machine, as text: pure, and without a secret in it.

Its first line sets the machine's own timer. Then it unpacks the files of `gpuplan_agent` (they travel inside the
script), fetches the code, installs, runs the script under the supervisor, and ends the machine whatever
happened, by a trap that was set before anything could fail.
"""

from __future__ import annotations

import json

from ...errors import UsageError
from ..core.api_call import Data
from ..core.request import LaunchCandidate, LaunchRequest
from .fetch_code import build_clone_commands, build_container_commands, require_plain_source
from .packages import pin_versions
from .shell import quote, quote_all
from .supervisor_bundle import HOME, UNPACKING, agent_archive, build_job, in_container

__all__ = ["BootConfig", "archive_name", "require_fetchable", "startup_script"]


class BootConfig(Data):
    """What a provider adds to the script.

    Args:
        timer: The first line: ends the machine by itself, whatever comes after.
        end: What ends the machine when the run is over, in shell.
        packages: Names, with extras, installed in the plan's versions when the user names no requirements.
        notices: Whose preemption notices are watched for; None: nobody takes the machine back.
        copy: Copies a folder, `{source}` and `{target}` filled in, to and from the bucket.
        unpack: Writes an archive of the bucket to standard output, `{source}` filled in.
        bucket: Where checkpoints and logs outlive the machine; empty: nowhere.
    """

    timer: str
    end: str
    packages: tuple[str, ...]
    notices: str | None
    copy_: str = ""
    unpack: str = ""
    bucket: str = ""


def archive_name(run: str) -> str:
    """Return the name of a folder of the user's in the bucket, beside the run's own files."""
    return f"{run}-source.tar.gz"


def require_fetchable(source: str, *, kinds: tuple[str, ...], provider: str) -> None:
    """Raise UsageError unless a machine of a provider can fetch the code by itself, without a secret."""
    kind = source.partition(":")[0]
    if kind not in kinds:
        allowed = " or ".join(f"`{one}:`" for one in kinds)
        raise UsageError(
            f"`--source {source}`: a machine of {provider} fetches its code from {allowed}",
            hint="push it, then `--source git:https://…`",
        )
    require_plain_source(source)


def startup_script(request: LaunchRequest, candidate: LaunchCandidate, number: int, boot: BootConfig) -> str:
    """Return the script that runs one attempt on its machine."""
    params = json.dumps(
        build_job(request, candidate, number, code="code", notices=boot.notices), sort_keys=True
    )
    remote = f"{boot.bucket}/{request.run}" if boot.bucket else ""
    lines = [
        "#!/bin/bash",
        boot.timer,
        "set -euo pipefail",
        f"end() {{ {_saved(boot, remote)}{boot.end}; }}",
        "trap end EXIT",
        f"mkdir -p {HOME}/run {HOME}/work {HOME}/code && cd {HOME}",
        f"exec > >(tee -a work/log-{number}.txt) 2>&1",  # an earlier attempt left its own
        f"{UNPACKING} <<'END'\n{agent_archive()}\nEND",
        f"cat > run/params.json <<'END'\n{params}\nEND",
        *_fetching(request, boot, remote),
        *_installing(request, boot),
        *_keeping(request, boot, remote),
        *_running(request, candidate),
    ]
    return "\n".join(lines) + "\n"


def _fetching(request: LaunchRequest, boot: BootConfig, remote: str) -> list[str]:
    """Return the lines that bring the code, and the checkpoints of an attempt before this one."""
    kind, _, place = request.spec.source.partition(":")
    if kind == "git":
        lines = build_clone_commands(place, "code")
    elif kind == "image":
        lines = []
    elif kind == "folder":
        archive = quote(f"{boot.bucket}/{archive_name(request.run)}")
        lines = [f"{boot.unpack.format(source=archive)} | tar xz -C code"]
    elif place.endswith((".tar.gz", ".tgz")):
        lines = [f"{boot.unpack.format(source=quote(_address(kind, place)))} | tar xz -C code"]
    else:
        lines = [_copied(boot, source=_address(kind, place), target="code")]
    if remote:
        lines.append(f"{_copied(boot, source=remote, target='work')} || true")
    return lines


def _address(kind: str, place: str) -> str:
    """Return where something is in a bucket, as the cloud's own program wants it.

    Example:
        >>> _address("gs", "bucket/code"), _address("s3", "//bucket/code")
        ('gs://bucket/code', 's3://bucket/code')
    """
    return f"{kind}:{place}" if place.startswith("//") else f"{kind}://{place}"


def _installing(request: LaunchRequest, boot: BootConfig) -> list[str]:
    """Return the lines that install what the script needs; a container has it."""
    if in_container(request):
        return []
    if request.spec.requirements:
        what = f"-r {quote(f'code/{request.spec.requirements}')}"
    else:
        what = quote_all(pin_versions(boot.packages, request.spec.packages))
    return ["python3 -m venv --system-site-packages venv", f"venv/bin/pip install -q {what}"]


def _running(request: LaunchRequest, candidate: LaunchCandidate) -> list[str]:
    """Return the lines that run the script under the supervisor."""
    if not in_container(request):
        return ["venv/bin/python -m gpuplan_agent.supervise run"]
    image = request.spec.source.partition(":")[2]
    return build_container_commands(image, home=HOME, job=f"{HOME}/run", accelerator=candidate.accelerator)


def _keeping(request: LaunchRequest, boot: BootConfig, remote: str) -> list[str]:
    """Return the line that brings checkpoints and logs to the bucket while the run goes on."""
    if not remote:
        return []
    every_s = max(1, int(request.spec.checkpoint_every_s))
    return [f"(while sleep {every_s}; do {_copied(boot, source='work', target=remote)} || true; done) &"]


def _saved(boot: BootConfig, remote: str) -> str:
    """Return what saves the run's files a last time."""
    return f"{_copied(boot, source=f'{HOME}/work', target=remote)} || true; " if remote else ""


def _copied(boot: BootConfig, *, source: str, target: str) -> str:
    """Return the command that copies a folder."""
    return boot.copy_.format(source=quote(source), target=quote(target))
