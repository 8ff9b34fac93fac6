"""Shell commands of a machine: quoting, a git clone or a container, and pinned packages."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from urllib.parse import urlsplit

from ...errors import UsageError
from ...offers.catalog import find_chosen_accelerator
from ...offers.rows import CPU


def quote(text: str) -> str:
    """Return a text as one word of a POSIX shell; UsageError for a NUL character."""
    if "\0" in text:
        raise UsageError(f"{text!r} contains a NUL character, which no argument can", hint="remove it")
    return shlex.quote(text)


def quote_all(words: Iterable[str]) -> str:
    """Return words as a shell command line.

    Example:
        >>> quote_all(["python", "train.py", "--name", "a b"])
        "python train.py --name 'a b'"
    """
    return " ".join(quote(word) for word in words)


# Reads the token in an answer of a metadata service; an image may have no Python.
READ_TOKEN = r"""sed -n 's/.*"access_token" *: *"\([^"]*\)".*/\1/p'"""

_HOW = "`--source git:https://HOST/REPOSITORY@REF`"
_SCHEMES = ("https://", "http://", "ssh://", "git://")
_SCP = re.compile(r"[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:[^:]+")  # user@host:path


def require_plain_source(source: str) -> None:
    """Raise UsageError for a malformed address, or one with a secret: scripts, plans and ledgers contain it."""
    kind, _, place = source.partition(":")
    if kind == "image" and (place.startswith("-") or not place):
        raise UsageError(f"`--source {source}` has no image name", hint="`--source image:NAME`")
    if kind != "git":
        return
    try:
        parts = urlsplit(place)
    except ValueError as error:
        raise UsageError(f"`--source {source}`: {error}", hint=_HOW) from error
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UsageError(
            "`--source git:…` contains a user name, a token or a query, and others can read start-up scripts",
            hint="use a public address, or a bucket that the machine may read",
        )
    url, reference = split_git_source(place)
    if not (url.startswith(_SCHEMES) or _SCP.fullmatch(url)) or reference.startswith("-"):
        raise UsageError(f"`--source {source}` is not the address of a repository", hint=_HOW)


def split_git_source(place: str) -> tuple[str, str]:
    """Split `URL@REF` into address and revision; `USER@HOST` has no revision.

    Example:
        >>> split_git_source("https://host/us/repo.git@v1.2")
        ('https://host/us/repo.git', 'v1.2')
        >>> split_git_source("git@host:us/repo.git")
        ('git@host:us/repo.git', '')
    """
    head, slash, tail = place.rpartition("/")
    name, _, reference = tail.partition("@")
    return f"{head}{slash}{name}", reference


def build_container_command(image: str, *, home: str, job: str, accelerator: str) -> str:
    """Return the command that runs the supervisor within a container that has the code and its packages.

    The image has Python as `python`, Keras, and the script below its working folder; `home`, with the job's
    folder in it, is mounted at the same path. TPUs are passed as devices, GPUs by NVIDIA's container toolkit. The
    container uses the host's network, where preemption notices are served.
    """
    known = find_chosen_accelerator(accelerator)
    devices = "" if accelerator == CPU else "--privileged" if known and known.kind == "tpu" else "--gpus all"
    run = ["docker run --rm --init --network host", devices, f"-v {home}:{home} -e PYTHONPATH={home}"]
    command = f"--entrypoint python {quote(image)} -m gpuplan_agent.supervise {job}"
    return " ".join(filter(None, [*run, command]))


PACKAGES = ("keras", "jax")


def find_pinned_packages(planned: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the packages that every run needs, pinned to the versions installed here, or else to planned ones."""
    known = dict(planned or {})
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            known[name] = version(name)
    return tuple(f"{name}=={known[name].partition('+')[0]}" for name in PACKAGES if known.get(name))


def pin_versions(wanted: tuple[str, ...], packages: tuple[str, ...]) -> list[str]:
    """Return requirements (names with extras) pinned to the versions of a plan; UsageError for one that it lacks.

    Example:
        >>> pin_versions(("keras", "jax[cuda12]"), ("keras==3.15.1", "jax==0.10.2"))
        ['keras==3.15.1', 'jax[cuda12]==0.10.2']
    """
    versions = dict(one.split("==", 1) for one in packages)
    names = {one: one.partition("[")[0] for one in wanted}
    for name in names.values():
        if name not in versions:
            raise UsageError(
                f"`{name}` is not installed here, so its version is unknown",
                hint="install it, or name a file of the source: `GPUPLAN_REQUIREMENTS=requirements.txt`",
            )
    return [f"{one}=={versions[name]}" for one, name in names.items()]
