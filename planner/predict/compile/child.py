"""The child process that compiles a lowered step for an accelerator that is not there.

python -m gpuplan.predict.compile.child request.json answer.json
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...files import write_whole
from .compiled import Compiled, CompileFault, result_to_json

__all__ = ["main"]

PREFIXES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# What libtpu writes of a step that is too large, in binary units; what it counts may be the temporaries alone.
_NEEDED = re.compile(r"(?:Used |temporaries \()([\d.]+)([KMGT]?)")


def main(request_path: str, answer_path: str) -> None:
    """Answer one request."""
    request = json.loads(Path(request_path).read_text(encoding="utf-8"))
    try:
        answer: Compiled | CompileFault = _compiled(request)
    except Exception as error:
        answer = _fault(error)
    write_whole(Path(answer_path), json.dumps(result_to_json(answer)))


def _compiled(request: Mapping[str, Any]) -> Compiled:
    from .reading import facts_of

    started_s = time.monotonic()
    step = _compile(request)
    return Compiled(
        compiler=request["compiler"], compile_s=time.monotonic() - started_s,
        needed_bytes=_needed_bytes(step.memory_analysis()), **facts_of(step.as_text(), request["platform"]),
    )  # fmt: skip


def _compile(request: Mapping[str, Any]) -> Any:
    import jax
    from jax import export
    from jax.sharding import SingleDeviceSharding

    place = SingleDeviceSharding(_topology(request).devices[0])
    exported = export.deserialize(bytearray(Path(request["module"]).read_bytes()))
    arrays = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=place) for a in exported.in_avals]
    arguments, named = jax.tree.unflatten(exported.in_tree, arrays)
    step = jax.jit(exported.call, donate_argnums=0)  # what is replaced comes first
    return step.trace(*arguments, **named).lower().compile()


def _topology(request: Mapping[str, Any]) -> Any:
    from jax.experimental import topologies

    if request["platform"] == "tpu":
        return topologies.get_topology_desc(request["topology"], "tpu")
    return topologies.get_topology_desc(
        platform="cuda", target_config=request["description"], topology=request["topology"]
    )


def _needed_bytes(analysis: Any) -> int:
    """Return the memory of a step: what comes in, what goes out beside it, and what lives in between [bytes]."""
    names = ("argument", "output", "temp", "generated_code")
    size = {name: int(getattr(analysis, f"{name}_size_in_bytes")) for name in (*names, "alias")}
    return sum(size[name] for name in names) - size["alias"]


def _fault(error: Exception) -> CompileFault:
    text = str(error)
    if "RESOURCE_EXHAUSTED" not in text and "Ran out of memory" not in text:
        line = text.strip().splitlines()[0] if text.strip() else type(error).__name__
        return CompileFault(kind="failed", message=f"the compiler failed: {line[:300]}")
    return CompileFault(
        kind="does not fit", message="the compiler finds no room for it", needed_bytes=_needed(text)
    )


def _needed(text: str) -> int | None:
    """Return what a refusal says that the step needs, at least; None where it does not say [bytes].

    Example:
        >>> _needed("memory required for HLO temporaries (2.00G) exceeds available HBM (1.75G).") == 2 * 2**30
        True
        >>> _needed("Ran out of memory in memory space hbm. Used 20.00G of 15.75G hbm.") == 20 * 2**30
        True
    """
    found = _NEEDED.search(text)
    return None if found is None else int(float(found[1]) * PREFIXES[found[2]])


if __name__ == "__main__":
    main(*sys.argv[1:3])
