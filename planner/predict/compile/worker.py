"""Compilation of a lowered step for an accelerator that is not present, in a child process with limits."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...child_process import ChildLimitError, ChildOutput, ChildProcess, Parent
from ...units import GIB
from .compiled_predictor import CompiledStep, CompileTarget

LIMIT_S = 600.0
LIMIT_BYTES = 12 * GIB  # of the child's resident memory
# No accelerators of this machine, and no logs outside of the child's own folder.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "KERAS_BACKEND": "jax",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_LOG_DIR": "disabled",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TPU_MIN_LOG_LEVEL": "2",
    "JAX_ENABLE_COMPILATION_CACHE": "false",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # libtpu locks chips; there are none
}
MODULE, LOWERED = f"{__package__}.worker", "module.bin"
# Options that speed up compilation without changing the program or its memory: kernel code is not optimized,
# since it is not run. ResNet-50 for an A100: 18 s of processor time instead of 24.
UNOPTIMIZED = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
FAST_OPTIONS: dict[str, dict[str, Any]] = {"cuda": UNOPTIMIZED, "tpu": {}}
PREFIXES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# Memory in libtpu's error for a step that is too large, in binary units; possibly temporaries only.
_NEEDED = re.compile(r"(?:Used |temporaries \()([\d.]+)([KMGT]?)")


def compile_step(
    module: bytes,
    *,
    target: CompileTarget,
    compiler: str,
    limit_s: float = LIMIT_S,
    limit_bytes: int = LIMIT_BYTES,
) -> CompiledStep:
    """Compile a lowered step, a serialized StableHLO module, in a child process of limited time [s] and memory.

    `compiler` names the versions of the compiler's packages.
    """
    request = {name: getattr(target, name) for name in ("platform", "topology", "description")}
    request["compiler"] = compiler

    def prepare(folder: Path) -> dict[str, str]:
        (folder / LOWERED).write_bytes(module)
        return os.environ | ENVIRONMENT | {"TMPDIR": str(folder)}

    limits: dict[str, Any] = {"limit_s": limit_s, "limit_bytes": limit_bytes}
    child = ChildProcess(MODULE, request, build_environment=prepare, **limits)
    try:
        answer = child.receive()
    except ChildLimitError as limit:
        if limit.memory:
            message = f"the compiler took more than {limit_bytes / GIB:.0f} GiB here and was stopped"
            return CompiledStep(fault="out of memory", message=message, hint="use a machine with more memory")
        message = f"the compiler took more than {limit_s:.0f} s and was stopped"
        return CompiledStep(fault="timed out", message=message, hint="use a smaller model, or allow more time")
    finally:
        child.stop()
    if answer is not None:
        return CompiledStep(**answer["step"])
    return _build_exit_fault(child.process.returncode, f"the compiler for {target.accelerator}", child.output)


def _build_exit_fault(code: int, which: str, output: ChildOutput) -> CompiledStep:
    """Return the fault for a compiler that ended, maybe by a signal, its own (SIGABRT, SIGSEGV) or another's."""
    lines, number = output.read_lines(), -code
    if code >= 0:
        last = lines[-1].strip() if lines else "it printed nothing"
        return CompiledStep(fault="failed", message=f"{which} ended with exit code {code}: {last[:200]}")
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    if number in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE):
        why = next((f": {line.strip()[:200]}" for line in lines if "Check fail" in line), "")
        return CompiledStep(fault="killed", message=f"{which} crashed ({name}){why}", hint="another batch size")
    hint = "out of memory?" if number == signal.SIGKILL else ""
    return CompiledStep(fault="killed", message=f"{which} was killed by {name}", hint=hint)


# --- in the child ---------------------------------------------------------------------------------------------


def main(folder: str) -> None:
    """Answer one compilation request."""
    parent = Parent(folder)
    parent.end_with()
    try:
        analysis = _compile(parent.request, parent.folder).memory_analysis()
        parts = ("argument", "output", "temp", "generated_code")
        needed_bytes = sum(int(getattr(analysis, f"{part}_size_in_bytes")) for part in parts)
        needed_bytes -= int(analysis.alias_size_in_bytes)
        step = CompiledStep(compiler=parent.request["compiler"], needed_bytes=needed_bytes)
    except Exception as error:
        step = _build_fault(error)
    parent.finish("compiled", step=asdict(step))


def _compile(request: Mapping[str, Any], folder: Path) -> Any:
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
    exported = export.deserialize(bytearray((folder / LOWERED).read_bytes()))
    arrays = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=place) for a in exported.in_avals]
    arguments, named = jax.tree.unflatten(exported.in_tree, arrays)
    step = jax.jit(exported.call, donate_argnums=0)  # the updated state is the first argument
    lowered = step.trace(*arguments, **named).lower()
    return lowered.compile(compiler_options=FAST_OPTIONS[platform])


def _build_fault(error: Exception) -> CompiledStep:
    text = str(error)
    if "RESOURCE_EXHAUSTED" not in text and "Ran out of memory" not in text:
        line = text.strip().splitlines()[0] if text.strip() else type(error).__name__
        return CompiledStep(fault="failed", message=f"the compiler failed: {line[:300]}")
    message, needed_bytes = "the compiler reports that it does not fit", _parse_needed_bytes(text)
    return CompiledStep(fault="does not fit", message=message, needed_bytes=needed_bytes)


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
    main(sys.argv[1])
