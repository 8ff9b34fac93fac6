"""From a MODEL argument to a workload: from the cache of traced workloads, or by a child process."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ...files import delete_oldest, get_cache_folder, write_atomically
from ...profile_schema import PROFILE_SCHEMA
from ...records import parse_json
from ...units import MIB
from ..backend import find_keras_default
from ..errors import name_place, to_one_line
from ..model import FORMAT, Workload
from ..options import SpecTree, WorkloadOptions, compute_run_steps, get_keras_policy
from ..reference import Reference, parse_reference
from ..script_text import read_source, require_keras
from .tracing_process import trace_in_child

SCHEMA = "gpuplan.cache/2"
LARGEST_CACHE_BYTES = 256 * MIB


def hash_file(path: Path) -> str:
    """Return the SHA-256 digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def compute_entry_key(reference: Reference, *, base: Path, options: WorkloadOptions, argv: Sequence[str]) -> str:
    """Return the key of an entry: a digest of everything the result depends on except file contents."""
    from importlib.metadata import PackageNotFoundError, version

    facts = {
        "reference": reference.text,
        "path": str(reference.path or base),
        "folder": os.getcwd() if reference.kind == "script" else "",
        "options": options.to_json() | {"use_cache": True},
        "variables": {name: os.environ.get(name) for name in options.script.variables},
        "argv": list(argv),
        "backend": os.environ.get("KERAS_BACKEND"),
        "default": find_keras_default() if reference.kind == "script" else None,
        "python": sys.version,
    }
    for package in ("keras", "jax", "keras-hub"):
        with suppress(PackageNotFoundError):
            facts[package] = version(package)
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    files = Path(__file__).parents[1].rglob("*")  # of what traces
    for file in sorted(file for file in files if file.suffix in (".csv", ".py", ".toml")):
        status = file.stat()
        digest.update(f"{file.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def read_entry(key: str) -> dict[str, Any] | None:
    """Return the workload (as JSON) of an entry whose files are unchanged; None if there is none."""
    path = get_cache_folder("workloads") / f"{key}.json"
    try:
        entry = json.loads(path.read_bytes())
        lasts = all(hash_file(Path(file)) == digest for file, digest in entry["files"].items())
        workload: dict[str, Any] = entry["workload"]
        return workload if entry["schema"] == SCHEMA and lasts else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # missing or damaged: trace and rewrite


def write_entry(key: str, *, workload: dict[str, Any], files: dict[str, str]) -> None:
    """Store a workload; if the folder is not writable, only print a warning."""
    entry = {"schema": SCHEMA, "files": files, "workload": workload}
    folder = get_cache_folder("workloads")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / f"{key}.json", json.dumps(entry, separators=(",", ":")))
        delete_oldest(folder, "*.json", size_bytes=LARGEST_CACHE_BYTES)
    except OSError as error:
        sys.stderr.write(f"warning: the trace is not cached: {error.strerror or error} ({folder})\n")


TRACE_AGAIN = "name the model itself, to have it traced again"


def load_workload(
    reference: str, *, options: WorkloadOptions, base: Path | None = None, argv: Sequence[str] = ()
) -> Workload:
    """Return the workload of a MODEL argument without training or allocating weights.

    It is traced in a child process, or loaded from the cache; then neither Keras nor JAX is imported.
    Relative paths start from `base`, by default the current folder; `argv` are arguments of a script.
    UsageError for an invalid reference or option; CaptureError for code that failed before it reached a model.
    """
    folder = (base or Path.cwd()).absolute()
    parsed = parse_reference(reference, base=folder)
    if parsed.text != reference:
        note = f"`{reference}` is taken as `{parsed.text}`"
        workload = load_workload(parsed.text, options=options, base=base, argv=argv)
        return replace(workload, notes=(note, *workload.notes))
    if argv and parsed.kind != "script":
        raise UsageError(f"`{reference}` takes no arguments after `--`", hint="only scripts accept them")
    if parsed.kind == "json":
        return _read_saved(parsed, options)
    if parsed.kind == "script" and parsed.path is not None:
        try:
            compile(read_source(parsed.path), str(parsed.path), "exec")
        except SyntaxError as error:
            place = name_place(str(parsed.path), error.lineno or 0)
            hint = "correct it, then run again"
            raise UsageError(f"{place}: syntax error: {error.msg}", hint=hint) from None
        except (OSError, ValueError) as error:
            name = parsed.path.name
            raise UsageError(f"cannot read `{name}`: {to_one_line(error)}", hint="give a script") from None
        require_keras(parsed.path)
    return _load_or_trace(parsed, options=options, base=folder, argv=argv)


def _load_or_trace(reference: Reference, *, options: WorkloadOptions, base: Path, argv: Sequence[str]) -> Workload:
    # Run length and compilation do not affect the trace: one entry serves all.
    traced = replace(options, samples=None, epochs=None, steps=None, tokens=None, compiled=None)
    key = compute_entry_key(reference, base=base, options=traced, argv=argv)
    known = read_entry(key) if options.use_cache else None
    if known is None and options.use_cache and not options.measures_input:
        more = replace(traced, measures_input=True)
        known = read_entry(compute_entry_key(reference, base=base, options=more, argv=argv))
    if known is None:
        if find_spec("keras") is None:
            raise ModuleNotFoundError("No module named 'keras'", name="keras")
        answer = trace_in_child(reference.text, base=base, options=traced, argv=argv)
        known = answer["workload"]
        lasts = not answer.get("as_stated") and not known["unplanned"]  # what was in the way may go away
        if options.use_cache and lasts:
            write_entry(key, workload=answer["workload"], files=answer["files"])
    workload = Workload.from_json(known)
    if reference.kind == "script" and reference.path is not None and workload.backend == "torch":
        text = read_source(reference.path)
        wrapper = next((name for name in WRAPPERS if name in text), "")
        workload = replace(workload, distribution=workload.distribution or wrapper)
    return _apply_options(workload, options)


# What a script of PyTorch distributes its model with, as its text says.
WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel")


def _read_saved(reference: Reference, options: WorkloadOptions) -> Workload:
    """Read a saved workload; of a profile, that of the requested batch size and precision, or the first."""
    path = reference.path or Path()
    try:
        data = parse_json(path.read_bytes())
        schema = data["schema"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"`{path.name}` is not a saved workload: {to_one_line(error)}"
        raise UsageError(message, hint=f"give a file of schema `{FORMAT}`") from None
    if schema == PROFILE_SCHEMA:
        workloads = data.get("workloads")
        if not isinstance(workloads, list) or not workloads:
            hint = "name the model itself, and add `--profile` with this file"
            raise UsageError(f"`{path.name}` contains no traced workload", hint=hint)
        wanted = options.precision and get_keras_policy(options.precision)
        fitting = (
            one
            for one in workloads
            if options.batch_size in (None, one.get("batch_size"))
            and wanted in (None, get_keras_policy(one.get("precision")))
        )
        data = next(fitting, workloads[0])
    elif schema == "gpuplan.estimate/1":
        raise UsageError(f"`{path.name}` is a plan, not a model", hint=f"`gpuplan report {path.name}` shows it")
    elif schema != FORMAT:
        raise UsageError(f"`{path.name}` has the unknown schema `{schema}`", hint=f"`{FORMAT}` can be read")
    try:
        workload = Workload.from_json(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"`{path.name}` is corrupt: {to_one_line(error)}", hint="save it again") from None
    _require_as_traced(workload, options, name=path.name)
    return _apply_options(workload, options)


def _require_as_traced(workload: Workload, options: WorkloadOptions, *, name: str) -> None:
    batches = ("--batch-size", options.batch_size, workload.batch_size)
    precision = options.precision and get_keras_policy(options.precision)
    for flag, asked, traced in (batches, ("--precision", precision, get_keras_policy(workload.precision))):
        if asked not in (None, traced):
            raise UsageError(f"{flag} {asked}: `{name}` was traced with {traced}", hint=TRACE_AGAIN)
    if options.remat:
        raise UsageError(f"--remat: `{name}` was traced already", hint=TRACE_AGAIN)
    ways = None if workload.divided is None else workload.divided.layout.devices
    if options.tensor not in (None, ways):
        raise UsageError(f"--shard tensor:{options.tensor}: `{name}` was traced without it", hint=TRACE_AGAIN)


def _apply_options(workload: Workload, options: WorkloadOptions) -> Workload:
    """Return the workload with the requested run length and execution mode; UsageError for tokens of no text."""
    if options.tokens is not None:
        if workload.tokens_per_sample is None:
            why = "it does not return a vector for each of the integers that it takes"
            message = f"`--tokens`: `{workload.model}` is no language model: {why}"
            raise UsageError(message, hint="give `--samples` and `--epochs`")
        wanted = -(-options.tokens // workload.tokens_per_sample)
        options = replace(options, samples=wanted, epochs=1, tokens=None)
    is_given = bool(options.epochs or options.steps) or options.mode == "infer"
    if is_given:
        note = f"the length of the run is as given: of {len(workload.phases)} phases, the longest alone is planned"
        notes = (*workload.notes, note) if workload.further else workload.notes
        workload = replace(workload, notes=notes, further=(), calls=1, programs=1)
    if options.mode == "infer":
        workload = replace(workload, passes=())
    further = tuple(_apply_options(one, options) for one in workload.further)
    samples = options.samples or workload.samples
    epochs = replace(options, mode=workload.mode).passes or workload.epochs
    counted = compute_run_steps(samples=samples, batch_size=workload.batch_size, epochs=epochs)
    changed = options.samples is not None or options.epochs is not None
    steps = options.steps or (counted if changed else workload.steps)
    compiled = workload.compiled if options.compiled is None else options.compiled
    precision = options.precision or workload.precision
    workload = replace(workload, samples=samples, epochs=epochs, steps=steps, further=further)
    return replace(workload, compiled=compiled, precision=precision)


@contextmanager
def restore_environment() -> Iterator[None]:
    """Context that restores the environment variables at its end."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


# Errors of Keras for objects that cannot be serialized or deserialized.
NOT_SERIALIZABLE = (NotImplementedError, TypeError, ValueError, KeyError, AttributeError)


@restore_environment()
def trace_keras_model(
    model: Any, *, options: WorkloadOptions, input_spec: SpecTree = None, target_spec: SpecTree = None
) -> Workload:
    """Trace a `keras.Model` of this process, without modifying it.

    A copy without weights is built from the model's configuration, in a child process on other backends than JAX;
    a model without one is traced itself. `input_spec` and `target_spec` are `ArraySpec`, nested like the data; if
    None, those of the model. UsageError for inputs without a fixed shape; CaptureError if it cannot be traced.
    """
    import keras

    if not isinstance(model, keras.Model):
        raise UsageError(f"{type(model).__name__} is not a keras.Model", hint="pass a model, or a MODEL string")
    if keras.backend.backend() != "jax":
        return _apply_options(_trace_configuration(model, options), options)
    from ..build.assemble import ModelAssembler, RunProperties
    from ..build.fit_inputs import FitInputs
    from .materialize import NOT_ABSTRACT, abstract_variables

    feed = FitInputs() if input_spec is None else FitInputs(x=input_spec, y=target_spec)
    with abstract_variables() as works, ExitStack() as stack:
        stack.callback(keras.config.set_dtype_policy, keras.config.dtype_policy())
        if options.precision is not None:
            keras.config.set_dtype_policy(get_keras_policy(options.precision))
        run = RunProperties(text=model.name, feed=feed, notes=() if works else (NOT_ABSTRACT,))
        return _apply_options(ModelAssembler(_copy(model, options), run=run).assemble(options), options)


def _copy(model: Any, options: WorkloadOptions) -> Any:
    """Return a copy of a model; itself where it has none, and tracing has no side effects on it."""
    import keras

    from ..build.from_reference import replace_dtype_policy

    try:
        config = keras.saving.serialize_keras_object(model)
        if options.precision is not None:
            config = replace_dtype_policy(config, get_keras_policy(options.precision))
        known = {type(layer).__name__: type(layer) for layer in model._flatten_layers()}
        copy = keras.saving.deserialize_keras_object(config, custom_objects=known, safe_mode=False)
    except NOT_SERIALIZABLE as error:
        if options.precision is not None or options.loss or options.optimizer or options.remat:
            message = f"`{model.name}` cannot be copied, so it cannot be changed: {to_one_line(error)}"
            way = "build it with the intended precision, loss, optimizer and recomputation"
            raise UsageError(message, hint=f"{way}, or add a get_config() method") from error
        if options.mode == "train" and not model.compiled:
            raise UsageError(f"`{model.name}` is not compiled", hint="call `model.compile(...)` first") from error
        return model
    # No configuration holds `keras.RematScope`; layers correspond by order, since a copy may have new names.
    for layer, twin in zip(model._flatten_layers(), copy._flatten_layers(), strict=False):
        if type(layer) is type(twin) and getattr(layer, "_remat_mode", None) is not None:
            object.__setattr__(twin, "_remat_mode", layer._remat_mode)
    return copy


def _trace_configuration(model: Any, options: WorkloadOptions) -> Workload:
    import keras

    backend = keras.backend.backend()
    try:
        config = json.dumps(keras.saving.serialize_keras_object(model))
    except NOT_SERIALIZABLE as error:
        needs = f"needs the {backend} backend, which this version cannot trace"
        hint = "run with KERAS_BACKEND=jax, or add a get_config() method to the model"
        raise UsageError(f"`{model.name}` {needs}: {to_one_line(error)}", hint=hint) from error
    with tempfile.TemporaryDirectory(prefix="gpuplan-") as folder:
        path = Path(folder, "model.keras")
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("config.json", config)
        answer = trace_in_child(str(path), base=Path(folder), options=options, argv=())
    return replace(Workload.from_json(answer["workload"]), model=model.name)
