"""Child process that compiles a lowered step for an accelerator that is not present.

python -m gpuplan.predict.compile.child request.json answer.json
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...files import write_atomically
from .compiled import CompiledStep, CompileFault, result_to_json

# Options that speed up compilation without changing the program or its memory: kernel code is not optimized,
# since it is not run. ResNet-50 for an A100: 18 s of processor time instead of 24.
UNOPTIMIZED = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
FAST_OPTIONS: dict[str, dict[str, Any]] = {"cuda": UNOPTIMIZED, "tpu": {}}
PREFIXES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# Memory in libtpu's error for a step that is too large, in binary units; possibly temporaries only.
_NEEDED = re.compile(r"(?:Used |temporaries \()([\d.]+)([KMGT]?)")


def main(request_path: str, answer_path: str) -> None:
    """Answer one compilation request."""
    request = json.loads(Path(request_path).read_text(encoding="utf-8"))
    try:
        answer: CompiledStep | CompileFault = _build_compiled(request)
    except Exception as error:
        answer = _build_fault(error)
    write_atomically(Path(answer_path), json.dumps(result_to_json(answer)))


def _build_compiled(request: Mapping[str, Any]) -> CompiledStep:
    needed_bytes = _compute_needed_bytes(_compile(request).memory_analysis())
    return CompiledStep(compiler=request["compiler"], needed_bytes=needed_bytes)


def _compile(request: Mapping[str, Any]) -> Any:
    """Return the compiled step."""
    import jax
    from jax import export

    exported = export.deserialize(bytearray(Path(request["module"]).read_bytes()))
    places = _build_shardings(exported, _list_devices(request), request["mesh"])
    arrays = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=place)
        for a, place in zip(exported.in_avals, places, strict=True)
    ]
    arguments, named = jax.tree.unflatten(exported.in_tree, arrays)
    step = jax.jit(exported.call, donate_argnums=0)  # the updated state is the first argument
    lowered = step.trace(*arguments, **named).lower()
    return lowered.compile(compiler_options=FAST_OPTIONS[request["platform"]])


def _build_shardings(exported: Any, devices: Sequence[Any], axes: Sequence[tuple[str, int]]) -> Sequence[Any]:
    """Return the placement of each argument: on the first device, or the module's own sharding."""
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

    count = exported.nr_devices
    if count == 1:
        return [SingleDeviceSharding(devices[0])] * len(exported.in_avals)
    if count != len(devices):
        raise ValueError(f"the model is sharded over {count} devices, but the slice has {len(devices)}")
    mesh = Mesh(np.array(devices).reshape([size for _, size in axes]), tuple(name for name, _ in axes))
    everywhere = NamedSharding(mesh, PartitionSpec())
    return [place or everywhere for place in exported.in_shardings_jax(mesh)]


def _list_devices(request: Mapping[str, Any]) -> Any:
    """Return the devices to compile for."""
    from jax.experimental import topologies

    if request["platform"] == "tpu":
        return topologies.get_topology_desc(request["topology"], "tpu").devices
    return topologies.get_topology_desc(
        platform="cuda", target_config=request["description"], topology=request["topology"]
    ).devices


def _compute_needed_bytes(analysis: Any) -> int:
    """Return the memory of a step [bytes]: arguments + outputs + temporaries + code - aliased."""
    names = ("argument", "output", "temp", "generated_code")
    size = {name: int(getattr(analysis, f"{name}_size_in_bytes")) for name in (*names, "alias")}
    return sum(size[name] for name in names) - size["alias"]


def _build_fault(error: Exception) -> CompileFault:
    text = str(error)
    if "RESOURCE_EXHAUSTED" not in text and "Ran out of memory" not in text:
        line = text.strip().splitlines()[0] if text.strip() else type(error).__name__
        return CompileFault(kind="failed", message=f"the compiler failed: {line[:300]}")
    return CompileFault(
        kind="does not fit",
        message="the compiler reports that it does not fit",
        needed_bytes=_parse_needed_bytes(text),
    )


def _parse_needed_bytes(text: str) -> int | None:
    """Parse the memory that a step needs at least from a compiler error [bytes]; None if not stated.

    Example:
        >>> _parse_needed_bytes("memory required for HLO temporaries (2.00G) exceeds available HBM (1.75G).")
        2147483648
        >>> _parse_needed_bytes("Ran out of memory in memory space hbm. Used 20.00G of 15.75G hbm.") == 20 * 2**30
        True
    """
    found = _NEEDED.search(text)
    return None if found is None else int(float(found[1]) * PREFIXES[found[2]])


if __name__ == "__main__":
    main(*sys.argv[1:3])
