"""Step of a MODEL argument, lowered for XLA in the child process."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import GpuplanError, UsageError
from ..options import WorkloadOptions
from ..reference import parse_reference
from .tracing_process import trace_in_child

if TYPE_CHECKING:
    from ..build.assemble import ModelAssembler, RunProperties


class LoweredStep(NamedTuple):
    """A step lowered for a platform.

    Args:
        module: Serialized StableHLO module.
        files: Hash of each user file that it depends on, by path.
    """

    module: bytes
    files: dict[str, str]


def lower_step(
    reference: str, *, options: WorkloadOptions, platform: str, base: Path | None = None, argv: Sequence[str] = ()
) -> LoweredStep:
    """Lower the step of a MODEL argument for a platform.

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
    base = (base or Path.cwd()).absolute()
    if parse_reference(reference, base=base).kind == "json":
        raise UsageError(
            f"`--compile`: `{reference}` contains measurements but no program", hint="give the model or the script"
        )
    with tempfile.TemporaryDirectory(prefix="gpuplan-") as folder:
        path = Path(folder, "module.bin")
        wanted = {"platform": platform, "path": str(path)}
        answer = trace_in_child(reference, base=base, options=options, argv=argv, lower=wanted)
        return LoweredStep(path.read_bytes(), answer["files"])


# --- in the child -----------------------------------------------------------------------------------------


def build_answer(
    assembler: ModelAssembler, *, options: WorkloadOptions, request: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the child's answer: the traced workload; nothing for a lowered step, which is written to its path."""
    wanted = request.get("lower")
    if wanted is None:
        return {"workload": assembler.assemble(options).to_json()}
    module = _lower_model(assembler.model, run=assembler.run, options=options, platform=wanted["platform"])
    Path(wanted["path"]).write_bytes(module)
    return {}


def _lower_model(model: Any, *, run: RunProperties, options: WorkloadOptions, platform: str) -> bytes:
    from ..build.assemble import build_training_state, without_device_pinning
    from ..errors import build_user_code_error
    from ..trace.jax.step import export_step
    from .materialize import build_executable

    ready = build_executable(model, run, options, None)
    specs = (ready.x, ready.y, ready.sample_weight)
    try:
        if options.mode == "train":
            build_training_state(ready.model, ready.y, ready.output)
        with without_device_pinning(ready.model):
            return export_step(
                ready.model, specs=specs, batch_size=ready.batch_size, mode=options.mode, platform=platform
            )
    except (GpuplanError, MemoryError):
        raise
    except Exception as error:
        doing = f"cannot be lowered for {platform}"
        raise build_user_code_error(error, name=run.text, doing=doing, folders=run.folders) from error
