"""Lowered step of a MODEL argument for XLA: created in the child process, cached by content."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import GpuplanError, UsageError
from ...files import delete_oldest, get_cache_folder, write_atomically
from ..cache import compute_entry_key, hash_file, read_entry, write_entry
from ..capture.tracing_process import trace_in_child
from ..device_mesh import Mesh, get_device_mesh
from ..options import WorkloadOptions
from ..reference import Reference, parse_reference

if TYPE_CHECKING:
    from .assemble import ModelAssembler, RunProperties

MODULES_KEPT = 32  # 0.1 to 3 MB each


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredStep:
    """A step lowered for a platform.

    Args:
        digest: SHA-256 of the module.
        path: Path of the module.
        batch_size: Samples of its batch [-].
        mesh: Device mesh over which it is sharded; empty for one device.
    """

    digest: str
    path: Path
    batch_size: int
    mesh: Mesh = ()


def load_or_lower_step(
    reference: str,
    *,
    options: WorkloadOptions,
    platform: str,
    base: Path | None = None,
    argv: Sequence[str] = (),
) -> LoweredStep:
    """Lower the step of a MODEL argument for a platform, or load it from the cache.

    Args:
        reference: A script, function, application or saved model.
        options: The user's options for the run, including the batch size.
        platform: `tpu` or `cuda`.
        base: Base folder of relative paths; by default the current one.
        argv: Arguments of a script.

    Raises:
        UsageError: The reference is a saved workload or profile, which contains no program.
        CaptureError: The user's code failed before it reached a model, or its step cannot be lowered.
    """
    folder = (base or Path.cwd()).absolute()
    parsed = parse_reference(reference, base=folder)
    if parsed.kind == "json":
        raise UsageError(
            f"`--compile`: `{reference}` contains measurements but no program",
            hint="give the model or the script",
        )
    kept = replace(options, samples=None, epochs=None, steps=None, compiled=None)
    key = f"{platform}-{compute_entry_key(parsed, base=folder, options=kept, argv=argv)}"
    found = _find_cached(read_entry(key)) if options.use_cache else None
    return found or _lower(parsed, options=kept, platform=platform, base=folder, argv=argv, key=key)


def _find_cached(entry: Mapping[str, Any] | None) -> LoweredStep | None:
    if entry is None:
        return None
    path = _get_modules_folder() / f"{entry['digest']}.bin"
    known = path.is_file() and hash_file(path) == entry["digest"]
    if not known:
        return None
    mesh = tuple((name, size) for name, size in entry["mesh"])
    return LoweredStep(digest=entry["digest"], path=path, batch_size=entry["batch_size"], mesh=mesh)


def _get_modules_folder() -> Path:
    return get_cache_folder("lowered")


def _lower(
    reference: Reference,
    *,
    options: WorkloadOptions,
    platform: str,
    base: Path,
    argv: Sequence[str],
    key: str,
) -> LoweredStep:
    with tempfile.TemporaryDirectory(prefix="gpuplan-") as folder:
        path = Path(folder, "module.bin")
        wanted = {"platform": platform, "path": str(path)}
        answer = trace_in_child(reference.text, base=base, options=options, argv=argv, lower=wanted)
        module = path.read_bytes()
    mesh = tuple((name, size) for name, size in answer["lowered"]["mesh"])
    lowered = _store(module, batch_size=answer["lowered"]["batch_size"], mesh=mesh)
    if options.use_cache:
        facts = {"digest": lowered.digest, "batch_size": lowered.batch_size, "mesh": mesh}
        write_entry(key, workload=facts, files=answer["files"])
    return lowered


def _store(module: bytes, *, batch_size: int, mesh: Mesh) -> LoweredStep:
    digest = hashlib.sha256(module).hexdigest()
    path = _get_modules_folder() / f"{digest}.bin"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, module)
        delete_oldest(path.parent, "*.bin", files=MODULES_KEPT)
    except OSError as error:
        raise GpuplanError(
            f"the lowered step cannot be written: {error.strerror or error} ({path.parent})",
            hint="set GPUPLAN_CACHE_DIR to a writable folder",
        ) from error
    return LoweredStep(digest=digest, path=path, batch_size=batch_size, mesh=mesh)


# --- in the child -----------------------------------------------------------------------------------------


def build_answer(
    assembler: ModelAssembler, *, options: WorkloadOptions, request: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the child's answer: the traced workload, or the lowered step (written to its path)."""
    wanted = request.get("lower")
    if wanted is None:
        return {"workload": assembler.assemble(options).to_json()}
    module, batch_size = _lower_model(
        assembler.model, run=assembler.run, options=options, platform=wanted["platform"]
    )
    Path(wanted["path"]).write_bytes(module)
    return {"lowered": {"batch_size": batch_size, "mesh": get_device_mesh()}}


def _lower_model(
    model: Any, *, run: RunProperties, options: WorkloadOptions, platform: str
) -> tuple[bytes, int]:
    from ..errors import build_user_code_error
    from ..trace.jax.stablehlo import lower_step
    from .assemble import build_training_state, without_device_pinning
    from .materialize import build_executable

    ready = build_executable(model, run, options, None)
    specs = (ready.x, ready.y, ready.sample_weight)
    try:
        if options.mode == "train":
            build_training_state(ready.model, ready.y, ready.output)
        with without_device_pinning(ready.model):
            module = lower_step(
                ready.model, specs=specs, batch_size=ready.batch_size, mode=options.mode, platform=platform
            )
    except (GpuplanError, MemoryError):
        raise
    except Exception as error:
        doing = f"cannot be lowered for {platform}"
        raise build_user_code_error(error, name=run.text, doing=doing, folders=run.folders) from error
    return module, ready.batch_size
