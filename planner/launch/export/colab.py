"""A handover as a notebook for Colab: it asks for the runtime, runs the script, and gives the runtime back."""

from __future__ import annotations

import re
from typing import Any

from ...errors import NoAnswerError
from .shell import fetching, installing, running
from .task import Export, Handover

__all__ = ["PROVIDERS", "colab", "link_of"]

PROVIDERS = ("colab",)
OPEN = "https://colab.research.google.com/#create=true"
# What Colab's menu keeps in a notebook for each of its runtimes.
_RUNTIMES = {
    "T4": ("GPU", "T4"), "L4": ("GPU", "L4"), "A100-40GB": ("GPU", "A100"), "A100-80GB": ("GPU", "A100"),
    "H100-SXM": ("GPU", "H100"), "TPU-v5e": ("TPU", "V5E1"), "TPU-v6e": ("TPU", "V6E1"), "CPU": ("", ""),
}  # fmt: skip
_GITHUB = re.compile(r"https://github\.com/([\w.-]+)/([\w.-]+?)(?:\.git)?(?:@([\w./-]+))?")


def colab(handover: Handover) -> Export:
    """Return the notebook, in the form of nbformat 4.5."""
    handover.require_source("git", engine="Colab")
    accelerator, kind = _runtime(handover)
    file = f"{handover.name}.ipynb"
    link = link_of(handover.source[1], file)
    document = {
        "nbformat": 4, "nbformat_minor": 5,
        "metadata": {
            "colab": {"name": file, **({"gpuType": kind} if kind else {})},
            **({"accelerator": accelerator} if accelerator else {}),
            "kernelspec": {"name": "python3", "display_name": "Python 3"},
        },
        "cells": _cells(handover, link),
    }  # fmt: skip
    return Export(
        document=document,
        apply=f"open {link or OPEN}" + ("" if link else " and upload FILE (File > Upload notebook)"),
        stop="Runtime > Disconnect and delete runtime",
        stops=(
            f"the script is ended {handover.offer.cap_s} s after it began (`timeout`)",
            "the last cell gives the runtime back (`runtime.unassign`), also when the script has failed",
            "Colab ends a session at its own limits of time and of idleness",
        ),
        open=(
            "the runtime is paid for from connecting on; nothing ends it when the cells are not run to the end",
            "what the script does not save elsewhere is lost with the runtime",
            "gpuplan's ledger does not know the runtime",
        ),
    )  # fmt: skip


def link_of(place: str, file: str) -> str:
    """Return the link that opens a notebook of a repository on GitHub in Colab; empty for another place.

    Example:
        >>> link_of("https://github.com/me/repo.git@v1", "run.ipynb")
        'https://colab.research.google.com/github/me/repo/blob/v1/run.ipynb'
        >>> link_of("https://example.org/me/repo", "run.ipynb")
        ''
    """
    found = _GITHUB.fullmatch(place)
    if found is None:
        return ""
    owner, name, reference = found.groups()
    return f"https://colab.research.google.com/github/{owner}/{name}/blob/{reference or 'main'}/{file}"


def _runtime(handover: Handover) -> tuple[str, str]:
    """Return what Colab calls the runtime."""
    name = handover.offer.accelerator
    if name not in _RUNTIMES:
        raise NoAnswerError(
            f"nobody knows here what Colab calls a {name}", hint="choose another offer: `--rank N`"
        )
    return _RUNTIMES[name]


def _cells(handover: Handover, link: str) -> list[dict[str, Any]]:
    """Return the cells: what it is, the code, the run, the end."""
    offer = handover.offer
    badge = (
        f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({link})\n\n"
        if link
        else ""
    )
    about = (
        f"{badge}`{handover.spec.script}` on {offer.accelerator}, ${offer.usd_per_hour} an hour, "
        f"{offer.cap_s} s at most. Runtime > Run all."
    )
    run = "\n".join(
        [
            "import subprocess",
            "from google.colab import runtime",
            "try:",
            f"    subprocess.run({['bash', '-c', 'cd code; ' + running(handover)]!r}, check=True)",
            "finally:",
            "    runtime.unassign()  # from here on nothing is charged",
        ]
    )
    shell = "\n".join(["%%bash", "set -e", *fetching(handover), *installing(handover)])
    return [
        {"cell_type": "markdown", "id": "about", "metadata": {}, "source": about},
        _code("prepare", shell),
        _code("run", run),
    ]


def _code(name: str, source: str) -> dict[str, Any]:
    """Return a cell that has not been run."""
    return {
        "cell_type": "code", "id": name, "metadata": {}, "source": source, "outputs": [], "execution_count": None,
    }  # fmt: skip
