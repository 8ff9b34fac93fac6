"""Memory of compiled steps, cached by the content of the module, the target and the compiler's version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ...files import get_cache_folder, write_atomically

FORMAT = "gpuplan.compiled/2"

Fault = Literal["missing", "does not fit", "timed out", "out of memory", "killed", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledStep:
    """A step as compiled for one device.

    Args:
        compiler: Compiler and package versions.
        needed_bytes: Peak memory including arguments [bytes].
    """

    compiler: str
    needed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileFault:
    """Reason for a missing compiled step.

    Args:
        kind: `does not fit` is a result of the compiler; the others are failures of the compilation.
        message: One-line description.
        hint: Remedy; empty if there is none.
        needed_bytes: Memory needed according to the compiler; None if not stated [bytes].
    """

    kind: Fault
    message: str
    hint: str = ""
    needed_bytes: int | None = None


def compute_result_key(*, module: str, target: str, compiler: str) -> str:
    """Return the cache key of a result: a digest of everything it depends on."""
    return hashlib.sha256(json.dumps([FORMAT, module, target, compiler]).encode()).hexdigest()


def _build_path(key: str) -> Path:
    return get_cache_folder("compiled") / f"{key}.json"


def load_result(key: str) -> CompiledStep | CompileFault | None:
    """Load a cached result; None if there is none or it is unreadable."""
    try:
        return parse_result(json.loads(_build_path(key).read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def store_result(key: str, result: CompiledStep | CompileFault) -> None:
    """Cache a result, unless another attempt may succeed; ignore a folder that cannot be written."""
    if isinstance(result, CompileFault) and result.kind != "does not fit":
        return
    path = _build_path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(result_to_json(result)))
    except OSError:
        return


def result_to_json(result: CompiledStep | CompileFault) -> dict[str, Any]:
    """Return plain JSON types."""
    return {"schema": FORMAT, "fault": isinstance(result, CompileFault), **asdict(result)}


def parse_result(data: Mapping[str, Any]) -> CompiledStep | CompileFault:
    """Parse the output of `result_to_json`; KeyError or TypeError on anything else."""
    facts = {name: value for name, value in data.items() if name not in ("schema", "fault")}
    return CompileFault(**facts) if data["fault"] else CompiledStep(**facts)
