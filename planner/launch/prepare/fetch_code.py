"""Shell lines by which a machine gets its code: from git at a revision, or within a container. Pure."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from ...errors import UsageError
from .shell import quote

__all__ = ["build_clone_commands", "build_container_commands", "require_plain_source", "split_git_source"]


_HOW = "`--source git:https://HOST/REPOSITORY@REF`"
_SCHEMES = ("https://", "http://", "ssh://", "git://")
_SCP = re.compile(r"[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:[^:]+")  # user@host:path


def require_plain_source(source: str) -> None:
    """Raise UsageError for an address with something secret in it, or that is none.

    Args:
        source: With its kind in front. Start-up scripts, plans and ledgers hold it in plain text.
    """
    kind, _, place = source.partition(":")
    if kind == "image" and (place.startswith("-") or not place):
        raise UsageError(f"`--source {source}` names no image", hint="`--source image:NAME`")
    if kind != "git":
        return
    try:
        parts = urlsplit(place)
    except ValueError as error:
        raise UsageError(f"`--source {source}`: {error}", hint=_HOW) from error
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UsageError(
            "`--source git:…` holds a user name, a token or a query, and start-up scripts can be read by others",
            hint="leave it out of the address: a public address, or a bucket that the machine may read",
        )
    url, reference = split_git_source(place)
    if not (url.startswith(_SCHEMES) or _SCP.fullmatch(url)) or reference.startswith("-"):
        raise UsageError(
            f"`--source {source}` is no address of a repository",
            hint=_HOW,
        )


def split_git_source(place: str) -> tuple[str, str]:
    """Return the address and the revision of `URL@REF`; a user's name before a host is no revision.

    Example:
        >>> split_git_source("https://host/us/repo.git@v1.2")
        ('https://host/us/repo.git', 'v1.2')
        >>> split_git_source("git@host:us/repo.git")
        ('git@host:us/repo.git', '')
    """
    head, slash, tail = place.rpartition("/")
    name, _, reference = tail.partition("@")
    return f"{head}{slash}{name}", reference


def build_clone_commands(place: str, folder: str) -> list[str]:
    """Return the lines that clone `URL@REF` into a folder, at that revision.

    Example:
        >>> build_clone_commands("https://host/repo@v1", "code")
        ['git clone -q -- https://host/repo code', 'git -C code checkout -q v1']
    """
    url, reference = split_git_source(place)
    clone = f"git clone -q -- {quote(url)} {folder}"
    return [clone, f"git -C {folder} checkout -q {quote(reference)}"] if reference else [clone]


def build_container_commands(image: str, *, home: str, job: str, accelerator: str) -> list[str]:
    """Return the lines that run the supervisor within a container: the code and its packages are in it.

    Args:
        image: Its name; it must hold Python as `python`, Keras, and the script below its working folder.
        home: Folder of the machine with the supervisor's files; the container sees it at the same place.
        job: Folder of the job, within that.
        accelerator: The catalog's name: TPUs are reached as devices, GPUs by NVIDIA's container toolkit.

    The network is the machine's own, so that notices of preemption are heard within.
    """
    devices = (
        "--privileged" if accelerator.startswith("TPU") else "" if accelerator == "CPU" else "--gpus all"
    )
    name = quote(image)
    run = ["docker run --rm --init --network host", devices, f"-v {home}:{home} -e PYTHONPATH={home}"]
    command = f"--entrypoint python {name} -m gpuplan_agent.supervise {job}"
    return [f"docker pull -q {name}", " ".join(filter(None, [*run, command]))]
