"""What a compiler says of a step, and where it is kept: by content of the module, target and compiler version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from ...files import cache_folder, keep_newest, write_whole

__all__ = [
    "CompileFault", "Compiled", "answer_path", "drop_oldest", "recall", "result_from", "result_key",
    "result_to_json", "retain",
]  # fmt: skip

FORMAT = "gpuplan.compiled/1"

Fault = Literal["missing", "does not fit", "timed out", "out of memory", "killed", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A step as the compiler would run it on one device.

    Args:
        compiler: Its versions.
        compile_s: How long it took [s].
        needed_bytes: Memory at its peak, arguments included [bytes].
        cycles: By kind of instruction, over the step; empty where the compiler estimates none [cycles].
        unestimated: Instructions that run and have no estimate, by opcode, with how often [-].
        collective_bytes: What its collectives work on, by opcode [bytes].
        sent_bytes: What a device of a program for several sends to others, on rings [bytes].
        kernels: Rows of `predict.kernels.Kernel`, as its fields; empty where cycles are known.
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
        """Sum of the compiler's estimates, one after the other [cycles]."""
        return sum(self.cycles.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileFault:
    """Why there is no compiled step, in a line.

    Args:
        kind: `does not fit` is an answer of the compiler's; the others are faults of the compilation.
        message: What happened.
        hint: How to mend it; empty when nothing can be done.
        needed_bytes: What the compiler says that the step needs; None when it does not say [bytes].
    """

    kind: Fault
    message: str
    hint: str = ""
    needed_bytes: int | None = None


ANSWERS_KEPT = 128  # some 0.1 to 1 MB each


def answer_path(*, module: str, target: str, compiler: str) -> Path:
    """Return where the compiler's own answer is kept, from which results are read: by what it depends on."""
    digest = hashlib.sha256(json.dumps([FORMAT, module, target, compiler]).encode()).hexdigest()
    return _folder() / f"{digest}.answer.gz"


def drop_oldest() -> None:
    """Forget the compilers' oldest answers; results that were read of them stay."""
    keep_newest(_folder(), "*.answer.gz", files=ANSWERS_KEPT)


def result_key(*, module: str, target: str, compiler: str) -> str:
    """Return the name of a result: everything that it depends on."""
    readers = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        if file.name in ("child.py", "hlo.py", "gpu_kernels.py", "reading.py"):
            readers.update(file.read_bytes())
    facts = [FORMAT, module, target, compiler, readers.hexdigest()]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _folder() -> Path:
    return cache_folder("compiled")


def _path(key: str) -> Path:
    return _folder() / f"{key}.json"


def recall(key: str) -> Compiled | CompileFault | None:
    """Return a result that was kept; None when there is none, or none that can be read."""
    try:
        return result_from(json.loads(_path(key).read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def retain(key: str, result: Compiled | CompileFault) -> None:
    """Keep a result, unless another attempt may end otherwise; a folder that cannot be written keeps nothing."""
    if isinstance(result, CompileFault) and result.kind != "does not fit":
        return
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(result_to_json(result)))
    except OSError:
        return


def result_to_json(result: Compiled | CompileFault) -> dict[str, Any]:
    """Return plain JSON types."""
    return {"schema": FORMAT, "fault": isinstance(result, CompileFault), **asdict(result)}


def result_from(data: Mapping[str, Any]) -> Compiled | CompileFault:
    """Read what `result_to_json` wrote; KeyError or TypeError on anything else."""
    facts = {name: value for name, value in data.items() if name not in ("schema", "fault")}
    if data["fault"]:
        return CompileFault(**facts)
    return Compiled(**{**facts, "kernels": tuple(facts["kernels"])})
