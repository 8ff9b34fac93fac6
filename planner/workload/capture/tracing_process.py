"""Parent's side of the child process that runs the user's code and traces the model."""

from __future__ import annotations

import contextlib
import json
import os
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import GpuplanError, UsageError
from ..backend import KERAS_DEFAULT, LAST_TRACE, OTHER_BACKENDS, TRACED_ON, find_keras_default
from ..errors import BackendError, CaptureError, DeviceCountError
from ..options import WorkloadOptions
from ..reference import parse_reference
from .process import (
    ScriptProcess,
    ScriptTimeoutError,
    build_process_environment,
    rebuild_error,
    show_script_output,
)

INTERRUPTED = 130
MOST_DEVICES = 4096  # JAX takes 3 s to start with so many devices of the host [-]
MOST_STARTS = 3  # with other numbers of devices, for a script that asks for more and more [-]


def trace_in_child(
    text: str,
    *,
    base: Path,
    options: WorkloadOptions,
    argv: Sequence[str],
    backend: str | None = None,
    lower: str | None = None,
) -> dict[str, Any]:
    """Trace a MODEL reference in a separate process, so that its backend and global settings do not leak.

    Without a stated backend it is traced on JAX, else on that which the user's code names, else on the others that
    are installed. If none can trace all of a script, those of its phases that one can are the answer. An error is
    that of the backend that the user's code names, or GpuplanError if the child was killed.

    Returns `workload` (see `Workload.from_json`), or the `module` lowered for the platform `lower` (on JAX) in
    Base64, and `files`: hashes by path.
    """
    how: dict[str, Any] = {"base": base, "options": options, "argv": argv, "lower": lower}
    if backend is not None or lower is not None:
        return _trace_on_mesh(text, backend=backend or "jax", runs_on=backend, **how)
    errors: dict[str, GpuplanError] = {}
    named: dict[str, None] = {}
    backend = "jax"
    while backend is not None:
        try:
            return _trace_on_mesh(text, backend=backend, runs_on=backend if backend in named else None, **how)
        except GpuplanError as error:
            errors[backend] = error
            if not isinstance(error, BackendError):
                break
            named |= {} if error.backend is None else {error.backend: None}
        rest = (name for name in (*named, *OTHER_BACKENDS) if name not in errors)
        backend = next((name for name in rest if find_spec(name) is not None), None)
    partly = next((name for name, error in errors.items() if getattr(error, "reached", False)), None)
    if partly is not None:
        runs_on = partly if partly in named else None
        return _trace_on_mesh(text, backend=partly, runs_on=runs_on, is_last=True, **how)
    raise errors.get(next(iter(named), "jax"), errors["jax"])


def _trace_on_mesh(text: str, *, options: WorkloadOptions, **how: Any) -> dict[str, Any]:
    """Trace with the requested number of devices, and again with as many as the user's code asks for."""
    states_devices = False
    for _ in range(MOST_STARTS - 1):
        try:
            return _trace(text, options=options, states_devices=states_devices, **how)
        except DeviceCountError as error:
            if error.devices > MOST_DEVICES:
                message = f"{error}: up to {MOST_DEVICES} can be traced"
                raise CaptureError(message, hint="trace it with a smaller mesh") from None
            options, states_devices = replace(options, devices=error.devices), not error.takes_all
    return _trace(text, options=options, states_devices=states_devices, **how)


def _trace(
    text: str,
    *,
    base: Path,
    options: WorkloadOptions,
    argv: Sequence[str],
    backend: str,
    runs_on: str | None,
    lower: str | None,
    states_devices: bool = False,
    is_last: bool = False,
) -> dict[str, Any]:
    reference = parse_reference(text, base=base)
    kept = kept_models.get() if backend == "jax" and lower is None and reference.kind != "script" else None
    # The model depends on its reference and all options but those of the step.
    fixed = {name: value for name, value in options.to_json().items() if name not in OF_STEP}
    variables = {name: os.environ.get(name) for name in ("KERAS_BACKEND", *options.script.variables)}
    key = json.dumps([text, str(base), list(argv), fixed, variables], sort_keys=True)
    if kept is not None and (answer := kept.ask(key, options)) is not None:
        return _unwrap(answer)
    default = find_keras_default() if reference.kind == "script" and runs_on is None else None
    request = {
        "trace_on": backend,
        "reference": text,
        "base": str(base),
        "options": options.to_json(),
        "argv": list(argv),
        "backend": runs_on or os.environ.get("KERAS_BACKEND"),
        "lower": lower,
        "states_devices": states_devices,
        "keeps": kept is not None,
        "data": vars(options.script.data),
    }
    child = ScriptProcess(
        f"{__package__}.child",
        request,
        terms=options.script,
        build_environment=partial(_build_environment, backend, options, default, is_last=is_last),
        shows_output=show_script_output.get(),
    )
    with contextlib.ExitStack() as stack:
        stack.callback(child.stop)
        with child.output_on_failure():
            answer = _unwrap((None if kept is None else child.receive()) or _run_to_end(child, text))
        if kept is not None:
            kept[key] = child
            stack.pop_all()
        return answer


def _run_to_end(child: ScriptProcess, text: str) -> dict[str, Any]:
    """Return the last message of a child: of a script stopped after its first `fit()`, the phases until then."""
    last = late = None
    try:
        while (message := child.receive()) is not None:
            last = message
    except ScriptTimeoutError as error:
        if last is None:
            raise
        late = str(error)
    finally:
        child.stop()
    code = child.process.returncode
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    killed = f"was killed by signal {-code}" if code < 0 else ""
    if last is None:
        how = killed or f"ended with exit code {code}"
        hint = "out of memory?" if code == -9 else "see its output above, or all of it with `gpuplan --debug`"
        raise GpuplanError(f"the process that ran `{text}` {how} and left no result", hint=hint)
    if last.get("partial"):
        ended = late or f"the process of `{text}` {killed or f'ended by itself (exit code {code})'}"
        last["workload"]["unplanned"].append(ended)
    return last


def _build_environment(
    backend: str, options: WorkloadOptions, default: str | None, folder: Path, *, is_last: bool
) -> dict[str, str]:
    """Build the child's environment: backends, no accelerator, and the requested number of devices."""
    environment = build_process_environment(options.script.variables, folder)
    if default is not None:
        environment[KERAS_DEFAULT] = default
    if is_last:
        environment[LAST_TRACE] = "true"
    environment |= {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", TRACED_ON: backend}
    if backend != "jax":
        environment["CUDA_VISIBLE_DEVICES"] = "-1"
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    environment.setdefault("MPLBACKEND", "Agg")  # no window that waits to be closed
    if (options.devices or 1) > 1:
        known = environment.get("XLA_FLAGS", "")
        environment["XLA_FLAGS"] = f"{known} --xla_force_host_platform_device_count={options.devices}".strip()
    return environment


def _unwrap(answer: dict[str, Any]) -> dict[str, Any]:
    if error := rebuild_error(answer):
        raise error
    return answer


class LoweredStep(NamedTuple):
    """A step lowered for a platform."""

    module: bytes  # serialized StableHLO module
    files: dict[str, str]  # hash of each user file that it depends on, by path


def lower_step(
    reference: str, *, options: WorkloadOptions, platform: str, base: Path | None = None, argv: Sequence[str] = ()
) -> LoweredStep:
    """Lower the step of a MODEL argument for `tpu` or `cuda`; `base` is by default the current folder.

    UsageError for a saved workload or profile, which contains no program; CaptureError for the user's code.
    """
    base = (base or Path.cwd()).absolute()
    if parse_reference(reference, base=base).kind == "json":
        message = f"`--compile`: `{reference}` contains measurements but no program"
        raise UsageError(message, hint="give the model or the script")
    answer = trace_in_child(reference, base=base, options=options, argv=argv, lower=platform)
    return LoweredStep(b64decode(answer["module"]), answer["files"])


# Options that change the trace and not the model.
OF_STEP = ("batch_size", "remat", "tensor", "derives", "use_cache")
kept_models: ContextVar[KeptModels | None] = ContextVar("kept_models", default=None)


class KeptModels(dict[str, ScriptProcess]):
    """Processes that have answered a request, and answer others, by what their models depend on."""

    def ask(self, key: str, options: WorkloadOptions) -> dict[str, Any] | None:
        """Return the answer of a process for other options of the step; None if there is none, or if it ended."""
        if (child := self.get(key)) is None:
            return None
        with child.output_on_failure():
            answer = child.receive() if child.ask(options.to_json()) else None
        if answer is None:
            self.pop(key).stop()
        return answer


@contextlib.contextmanager
def keep_models_built() -> Iterator[None]:
    """Context in which a model that was traced in a process of its own is not built again for another trace.

    Scripts and models that are not traced on JAX are run again for each. Contexts may be nested.
    """
    if kept_models.get() is not None:
        yield
        return
    token = kept_models.set(kept := KeptModels())
    try:
        yield
    finally:
        kept_models.reset(token)
        for child in kept.values():
            child.stop()
