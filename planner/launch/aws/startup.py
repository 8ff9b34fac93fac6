"""The start-up script of an instance, as text. Its first command arms the timer; its last, whatever happens,
powers off.

It carries the supervisor itself (standard library and Keras only), so that nothing of gpuplan must be
installed. No secret is in it: what it may do in AWS comes from the instance profile, code of a private
repository from a bucket.
"""

from __future__ import annotations

import json
import math
import shlex

from ...errors import UsageError
from ..boarding import HOME, job_of, onboard_archive
from ..fetching import cloning, containing
from ..request import Candidate, LaunchRequest
from .options import AwsOptions

__all__ = ["USER_DATA_BYTES", "startup_script"]

USER_DATA_BYTES = (
    16 * 1024
)  # docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-add-user-data.html, raw form
DEFAULT_PACKAGES = "keras 'jax[cuda12]'"


def startup_script(request: LaunchRequest, candidate: Candidate, number: int, options: AwsOptions) -> str:
    """Return the script.

    Raises:
        UsageError: The code cannot be had from where it is.
    """
    params = json.dumps(job_of(request, candidate, number, code="source", notices="aws"))
    lines = [
        "#!/bin/bash",
        f"shutdown -h +{math.floor(candidate.cap_s / 60)} # the cap of {request.run}, before anything can fail",
        "trap 'shutdown -h now' EXIT # whatever becomes of the rest, nothing runs on for nothing",
        "set -euo pipefail",
        "exec > >(tee -a /var/log/gpuplan.log) 2>&1",
        f"mkdir -p {HOME}/source {HOME}/machine {HOME}/work && cd {HOME}",
        f"base64 -d <<'END' | tar xz\n{onboard_archive()}\nEND",
        f"cat > machine/params.json <<'END'\n{params}\nEND",
        *_fetch(request, options),
        *_install(request),
        *_storage(request, options),
        *_run(request, candidate),
        *_keep(request, options),
    ]
    script = "\n".join(lines) + "\n"
    if len(script.encode()) > USER_DATA_BYTES:
        raise UsageError(
            f"the start-up script has {len(script.encode())} bytes, and EC2 takes {USER_DATA_BYTES}",
            hint="shorten the script's arguments",
        )
    return script


def _fetch(request: LaunchRequest, options: AwsOptions) -> list[str]:
    """Return the lines that bring the code."""
    kind, _, place = request.spec.source.partition(":")
    if kind == "git":
        return cloning(place, "source")
    if kind == "image":
        return []
    if kind == "s3":
        return [f"aws s3 cp --only-show-errors s3://{shlex.quote(place)} - | tar xz -C source"]
    if kind == "folder" and options.bucket:
        where = f"s3://{options.bucket}/{request.run}/source.tar.gz"
        return [f"aws s3 cp --only-show-errors {where} - | tar xz -C source"]
    why = "cannot read a folder of this computer" if kind == "folder" else f"fetches no `{kind}:`"
    raise UsageError(
        f"`--source {request.spec.source}`: a machine at AWS {why}",
        hint="add `-O bucket=NAME -O profile=NAME`, or `--source git:URL@REF`, `s3:BUCKET/KEY` or `image:NAME`",
    )


def _install(request: LaunchRequest) -> list[str]:
    """Return the lines that install what the script needs; a container has it."""
    if request.spec.source.startswith("image:"):
        return []
    what = DEFAULT_PACKAGES
    if request.spec.requirements:
        what = f"-r source/{shlex.quote(request.spec.requirements)}"
    return [
        "python3 -m venv --system-site-packages environment",
        f"environment/bin/pip install -q {what}",
    ]


def _run(request: LaunchRequest, candidate: Candidate) -> list[str]:
    """Return the lines that run the script under the supervisor; what comes after them comes in any case."""
    kind, _, image = request.spec.source.partition(":")
    if kind != "image":
        return ["environment/bin/python -m onboard.supervise machine || true"]
    pull, run = containing(image, home=HOME, job=f"{HOME}/machine", accelerator=candidate.accelerator)
    return [pull, f"{run} || true"]


def _storage(request: LaunchRequest, options: AwsOptions) -> list[str]:
    """Return the lines that bring the checkpoints, and keep new ones while it runs."""
    if not options.bucket:
        return []
    there = f"s3://{options.bucket}/{request.run}/work"
    every = max(10, int(request.spec.checkpoint_every_s))
    return [
        f"aws s3 sync --only-show-errors {there} work",
        f"(while sleep {every}; do aws s3 sync --only-show-errors work {there}; done) &",
    ]


def _keep(request: LaunchRequest, options: AwsOptions) -> list[str]:
    """Return the lines that keep the end: checkpoints, outcome and log."""
    if not options.bucket:
        return []
    there = f"s3://{options.bucket}/{request.run}"
    return [
        f"aws s3 sync --only-show-errors work {there}/work",
        f"aws s3 cp --only-show-errors /var/log/gpuplan.log {there}/gpuplan.log",
    ]
