"""Export to a Colab notebook that selects the runtime, runs the script, and releases the runtime."""

from __future__ import annotations

import re
from typing import Any

from ...errors import NoAnswerError
from .task import EngineDocument, ExportTask, build_fetch_commands, build_install_commands, build_run_command

PROVIDERS = ("colab",)
OPEN = "https://colab.research.google.com/#create=true"
# Notebook metadata of Colab's runtimes.
_RUNTIMES = {
    "T4": ("GPU", "T4"), "L4": ("GPU", "L4"), "A100-40GB": ("GPU", "A100"), "A100-80GB": ("GPU", "A100"),
    "H100-SXM": ("GPU", "H100"), "TPU-v5e": ("TPU", "V5E1"), "TPU-v6e": ("TPU", "V6E1"), "CPU": ("", ""),
}  # fmt: skip
_GITHUB = re.compile(r"https://github\.com/([\w.-]+)/([\w.-]+?)(?:\.git)?(?:@([\w./-]+))?")


def build_colab_task(task: ExportTask) -> EngineDocument:
    """Return the notebook (nbformat 4.5)."""
    task.require_source("git", engine="Colab")
    accelerator, kind = _runtime(task)
    file = f"{task.name}.ipynb"
    link = build_colab_link(task.source[1], file)
    document = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {
            "colab": {"name": file, **({"gpuType": kind} if kind else {})},
            **({"accelerator": accelerator} if accelerator else {}),
            "kernelspec": {"name": "python3", "display_name": "Python 3"},
        },
        "cells": _cells(task, link),
    }
    return EngineDocument(
        document=document,
        apply=f"open {link or OPEN}" + ("" if link else " and upload FILE (File > Upload notebook)"),
        stop="Runtime > Disconnect and delete runtime",
        stops=(
            f"the script is stopped {task.offer.cap_s} s after its start (`timeout`)",
            "the last cell releases the runtime (`runtime.unassign`), also after a failure",
            "Colab ends a session at its own limits of time and idleness",
        ),
        open=(
            "the runtime is billed from the connection; nothing ends it if the cells are not run to the end",
            "files that are not saved elsewhere are lost with the runtime",
            "the runtime is not in gpuplan's ledger",
        ),
    )


def build_colab_link(place: str, file: str) -> str:
    """Return the Colab link of a notebook in a GitHub repository; empty for another address.

    Example:
        >>> build_colab_link("https://github.com/me/repo.git@v1", "run.ipynb")
        'https://colab.research.google.com/github/me/repo/blob/v1/run.ipynb'
        >>> build_colab_link("https://example.org/me/repo", "run.ipynb")
        ''
    """
    found = _GITHUB.fullmatch(place)
    if found is None:
        return ""
    owner, name, reference = found.groups()
    return f"https://colab.research.google.com/github/{owner}/{name}/blob/{reference or 'main'}/{file}"


def _runtime(task: ExportTask) -> tuple[str, str]:
    """Return Colab's names of the runtime."""
    name = task.offer.accelerator
    if name not in _RUNTIMES:
        raise NoAnswerError(f"no known name of {name} in Colab", hint="choose another offer: `--rank N`")
    return _RUNTIMES[name]


def _cells(task: ExportTask, link: str) -> list[dict[str, Any]]:
    """Return the cells: description, code, run."""
    offer = task.offer
    badge = (
        f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({link})\n\n"
        if link
        else ""
    )
    about = (
        f"{badge}`{task.spec.script}` on {offer.accelerator}, ${offer.usd_per_hour} an hour, "
        f"{offer.cap_s} s at most. Runtime > Run all."
    )
    run = "\n".join(
        [
            "import subprocess",
            "from google.colab import runtime",
            "try:",
            f"    subprocess.run({['bash', '-c', 'cd code; ' + build_run_command(task)]!r}, check=True)",
            "finally:",
            "    runtime.unassign()  # ends the billing",
        ]
    )
    shell = "\n".join(["%%bash", "set -e", *build_fetch_commands(task), *build_install_commands(task)])
    return [
        {"cell_type": "markdown", "id": "about", "metadata": {}, "source": about},
        _code("prepare", shell),
        _code("run", run),
    ]


def _code(name: str, source: str) -> dict[str, Any]:
    """Return a code cell without outputs."""
    return {
        "cell_type": "code",
        "id": name,
        "metadata": {},
        "source": source,
        "outputs": [],
        "execution_count": None,
    }
