"""The child process that compiles a lowered step for an accelerator that is not there.

python -m gpuplan.predict.compile.child request.json answer.json
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...files import write_whole
from .compiled import Compiled, CompileFault, result_to_json

__all__ = ["main"]

# What makes compilers quicker and changes neither the program nor its memory: what kernels consist of is not
# optimized, for it is neither run nor read. ResNet-50 for an A100: 18 s of a processor, not 24, and the same text.
QUICK: dict[str, dict[str, Any]] = {
    "cuda": {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True},
    "tpu": {},
}
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

    said = _said_before(request["kept"]) or _ask(request)
    return Compiled(
        compiler=request["compiler"], compile_s=said["compile_s"], needed_bytes=said["needed_bytes"],
        **facts_of(said["text"], request["platform"]),
    )  # fmt: skip


def _said_before(path: str) -> dict[str, Any] | None:
    """Return what the compiler said of this step, target and version once; None when it was not kept."""
    try:
        found: dict[str, Any] = json.loads(gzip.decompress(Path(path).read_bytes()))
    except (OSError, EOFError, ValueError):
        return None
    return found


def _ask(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the compiler's answer, and keep it: what is read of it may change without it."""
    started_s = time.monotonic()
    step = _compile(request)
    said = {
        "compile_s": time.monotonic() - started_s, "needed_bytes": _needed_bytes(step.memory_analysis()),
        "text": step.as_text(),
    }  # fmt: skip
    if request["kept"]:
        with suppress(OSError):
            Path(request["kept"]).parent.mkdir(parents=True, exist_ok=True)
            write_whole(Path(request["kept"]), gzip.compress(json.dumps(said).encode(), compresslevel=6))
    return said


def _compile(request: Mapping[str, Any]) -> Any:
    import jax
    from jax import export

    exported = export.deserialize(bytearray(Path(request["module"]).read_bytes()))
    places = _places(exported, _topology(request).devices, request["mesh"])
    arrays = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=place)
        for a, place in zip(exported.in_avals, places, strict=True)
    ]
    arguments, named = jax.tree.unflatten(exported.in_tree, arrays)
    step = jax.jit(exported.call, donate_argnums=0)  # what is replaced comes first
    return step.trace(*arguments, **named).lower().compile(compiler_options=QUICK[request["platform"]])


def _places(exported: Any, devices: Sequence[Any], axes: Sequence[tuple[str, int]]) -> Sequence[Any]:
    """Return where each argument lies: on the first device, or as the module was laid out over several."""
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

    count = exported.nr_devices
    if count == 1:
        return [SingleDeviceSharding(devices[0])] * len(exported.in_avals)
    if count != len(devices):
        raise ValueError(f"the model is laid out over {count} devices, and the slice has {len(devices)}")
    mesh = Mesh(np.array(devices).reshape([size for _, size in axes]), tuple(name for name, _ in axes))
    everywhere = NamedSharding(mesh, PartitionSpec())
    return [place or everywhere for place in exported.in_shardings_jax(mesh)]


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
