"""Compilation results and their cache, keyed by content of the module, target and compiler version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from ...files import delete_oldest, get_cache_folder, write_atomically

FORMAT = "gpuplan.compiled/1"

Fault = Literal["missing", "does not fit", "timed out", "out of memory", "killed", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledStep:
    """A step as compiled for one device.

    Args:
        compiler: Compiler and package versions.
        compile_s: Compilation time [s].
        needed_bytes: Peak memory including arguments [bytes].
        cycles: Estimated cycles of a step by kind of instruction; empty if the compiler gives none [cycles].
        unestimated: Executions of instructions without an estimate, by opcode [-].
        collective_bytes: Data of collectives by opcode [bytes].
        sent_bytes: Data sent by each device in ring collectives of a sharded program [bytes].
        kernels: Fields of `predict.kernels.Kernel` rows; empty if cycles are known.
    """

    compiler: str
    compile_s: float
    needed_bytes: int
    cycles: Mapping[str, float] = field(default_factory=dict)
    unestimated: Mapping[str, float] = field(default_factory=dict)
    collective_bytes: Mapping[str, float] = field(default_factory=dict)
    kernels: tuple[Mapping[str, Any], ...] = ()
    sent_bytes: float = 0.0

    @property
    def total_cycles(self) -> float:
        """Sum of the compiler's estimates [cycles]."""
        return sum(self.cycles.values())


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


ANSWERS_KEPT = 128  # 0.1 to 1 MB each


def build_answer_path(*, module: str, target: str, compiler: str) -> Path:
    """Return the cache path of a compiler answer, from which results are parsed."""
    digest = hashlib.sha256(json.dumps([FORMAT, module, target, compiler]).encode()).hexdigest()
    return _folder() / f"{digest}.answer.gz"


def drop_oldest() -> None:
    """Delete the oldest compiler answers; results parsed from them stay."""
    delete_oldest(_folder(), "*.answer.gz", files=ANSWERS_KEPT)


def compute_result_key(*, module: str, target: str, compiler: str) -> str:
    """Return the cache key of a result: a digest of everything it depends on."""
    readers = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        if file.name in ("child.py", "hlo.py", "gpu_kernels.py", "parse.py"):
            readers.update(file.read_bytes())
    facts = [FORMAT, module, target, compiler, readers.hexdigest()]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _folder() -> Path:
    return get_cache_folder("compiled")


def _build_path(key: str) -> Path:
    return _folder() / f"{key}.json"


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
    if data["fault"]:
        return CompileFault(**facts)
    return CompiledStep(**{**facts, "kernels": tuple(facts["kernels"])})
