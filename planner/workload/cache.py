"""Content-addressed cache of traced workloads in the platform's cache folder.

An entry's key covers the reference, its arguments, the options, the backend, and the versions of gpuplan,
Keras and JAX. The entry lists all user files involved with their hashes, and is valid only while they are
unchanged. Data files read by a script are not tracked.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..files import delete_oldest, get_cache_folder, write_atomically
from ..units import MIB
from .options import WorkloadOptions
from .reference import Reference

SCHEMA = "gpuplan.cache/2"
LARGEST_CACHE_BYTES = 256 * MIB


def hash_file(path: Path) -> str:
    """Return the SHA-256 digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def compute_entry_key(
    reference: Reference, *, base: Path, options: WorkloadOptions, argv: Sequence[str]
) -> str:
    """Return the key of an entry: a digest of everything the result depends on except file contents."""
    facts = {
        "reference": reference.text,
        "path": str(reference.path or base),
        "folder": os.getcwd() if reference.kind == "script" else "",
        "options": options.to_json() | {"use_cache": True},
        "variables": {name: os.environ.get(name) for name in options.script.variables},
        "argv": list(argv),
        "backend": os.environ.get("KERAS_BACKEND"),
        "versions": _read_versions(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _read_versions() -> dict[str, str]:
    """Return the versions of the tracing packages without importing them, and a digest of gpuplan's sources."""
    from importlib.metadata import PackageNotFoundError, version

    known = {"python": sys.version}
    for package in ("keras", "jax", "keras-hub"):
        try:
            known[package] = version(package)
        except PackageNotFoundError:
            known[package] = ""
    return known | {"gpuplan": _compute_source_digest()}


def _compute_source_digest() -> str:
    """Return a digest of the sizes and modification times of all tracing modules."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        status = file.stat()
        digest.update(f"{file.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def read_entry(key: str) -> dict[str, Any] | None:
    """Return the workload (as JSON) of an entry whose files are unchanged; None if there is none."""
    path = get_cache_folder("workloads") / f"{key}.json"
    try:
        entry = json.loads(path.read_bytes())
        if entry["schema"] != SCHEMA:
            return None
        if any(hash_file(Path(file)) != digest for file, digest in entry["files"].items()):
            return None
        workload: dict[str, Any] = entry["workload"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # missing or damaged: trace and rewrite
    return workload


def write_entry(key: str, *, workload: dict[str, Any], files: dict[str, str]) -> None:
    """Store a workload; if the folder is not writable, only print a warning."""
    entry = {"schema": SCHEMA, "files": files, "workload": workload}
    folder = get_cache_folder("workloads")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / f"{key}.json", json.dumps(entry, separators=(",", ":")))
        delete_oldest(folder, "*.json", size_bytes=LARGEST_CACHE_BYTES)
    except OSError as error:
        sys.stderr.write(f"warning: the trace is not cached: {error.strerror or error} ({folder})\n")
