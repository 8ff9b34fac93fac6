"""Shell lines by which a machine gets its code: from git at a revision, or within a container. Pure."""

from __future__ import annotations

import shlex

__all__ = ["cloning", "containing", "git_place"]


def git_place(place: str) -> tuple[str, str]:
    """Return the address and the revision of `URL@REF`; a user's name before a host is no revision.

    Example:
        >>> git_place("https://host/us/repo.git@v1.2")
        ('https://host/us/repo.git', 'v1.2')
        >>> git_place("git@host:us/repo.git")
        ('git@host:us/repo.git', '')
    """
    head, slash, tail = place.rpartition("/")
    name, _, reference = tail.partition("@")
    return f"{head}{slash}{name}", reference


def cloning(place: str, folder: str) -> list[str]:
    """Return the lines that clone `URL@REF` into a folder, at that revision.

    Example:
        >>> cloning("https://host/repo@v1", "code")
        ['git clone -q -- https://host/repo code', 'git -C code checkout -q v1']
    """
    url, reference = git_place(place)
    clone = f"git clone -q -- {shlex.quote(url)} {folder}"
    return [clone, f"git -C {folder} checkout -q {shlex.quote(reference)}"] if reference else [clone]


def containing(image: str, *, home: str, job: str, accelerator: str) -> list[str]:
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
    name = shlex.quote(image)
    run = ["docker run --rm --init --network host", devices, f"-v {home}:{home} -e PYTHONPATH={home}"]
    command = f"--entrypoint python {name} -m onboard.supervise {job}"
    return [f"docker pull -q {name}", " ".join(filter(None, [*run, command]))]
