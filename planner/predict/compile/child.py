"""Child process that compiles a lowered step for an accelerator that is not present.

python -m gpuplan.predict.compile.child request.json answer.json
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...files import write_atomically
from .compiled_predictor import CompiledStep

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
        needed_bytes = _compute_needed_bytes(_compile(request).memory_analysis())
        answer = CompiledStep(compiler=request["compiler"], needed_bytes=needed_bytes)
    except Exception as error:
        answer = _build_fault(error)
    write_atomically(Path(answer_path), json.dumps(asdict(answer)))


def _compile(request: Mapping[str, Any]) -> Any:
    """Return the compiled step."""
    import jax
    from jax import export
    from jax.experimental import topologies
    from jax.sharding import SingleDeviceSharding

    topology, platform = request["topology"], request["platform"]
    if platform == "tpu":
        devices = topologies.get_topology_desc(topology, "tpu").devices
    else:
        devices = topologies.get_topology_desc(
            platform="cuda", target_config=request["description"], topology=topology
        ).devices
    place = SingleDeviceSharding(devices[0])
    exported = export.deserialize(bytearray(Path(request["module"]).read_bytes()))
    arrays = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=place) for a in exported.in_avals]
    arguments, named = jax.tree.unflatten(exported.in_tree, arrays)
    step = jax.jit(exported.call, donate_argnums=0)  # the updated state is the first argument
    lowered = step.trace(*arguments, **named).lower()
    return lowered.compile(compiler_options=FAST_OPTIONS[platform])


def _compute_needed_bytes(analysis: Any) -> int:
    """Return the memory of a step [bytes]: arguments + outputs + temporaries + code - aliased."""
    names = ("argument", "output", "temp", "generated_code")
    size = {name: int(getattr(analysis, f"{name}_size_in_bytes")) for name in (*names, "alias")}
    return sum(size[name] for name in names) - size["alias"]


def _build_fault(error: Exception) -> CompiledStep:
    text = str(error)
    if "RESOURCE_EXHAUSTED" not in text and "Ran out of memory" not in text:
        line = text.strip().splitlines()[0] if text.strip() else type(error).__name__
        return CompiledStep(fault="failed", message=f"the compiler failed: {line[:300]}")
    return CompiledStep(
        fault="does not fit",
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
