"""Arguments and flags that commands share: the model and its run, offers, limits, values of hours, output."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from functools import wraps
from inspect import Parameter
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import typer

from ..plan.estimate_request import OUTPUT, USUAL
from ..records import Flag, Frozen, iter_field_parameters
from ..render.output import Answer, write_document
from .option_values import complete_accelerators, complete_providers, complete_regions

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="Script, notebook, function, Keras application or preset, .keras or .json file."
    ),
]


def _require_separator(context: typer.Context, values: list[str] | None) -> list[str] | None:
    """Return a script's arguments; UsageError without `--` before them, such as two values after one flag."""
    line = context.obj  # as typed; None when a command is called from Python
    if not values or line is None or "--" in line:
        return values
    from ..errors import UsageError
    from ..workload.reference import SCRIPT_SUFFIXES

    first = values[0]
    flag, value = ("", *line[: line.index(first)])[-2:]
    named = value.partition("=")[0] if "=" in value else flag
    if named.startswith("--"):
        repeats = any(named in one.opts for one in context.command.params if getattr(one, "multiple", False))
        given = value.partition("=")[2] or value
        hint = f"repeat it: `{named} {first}`" if repeats else f"type `{named} {','.join((given, *values))}`"
        raise UsageError(f"`{named}` takes one value, and `{first}` is another", hint=hint)
    if value.startswith("--") and not any(word.endswith(SCRIPT_SUFFIXES) for word in line):
        raise UsageError(f"`{value}` takes no value", hint="leave out the word after it")
    raise UsageError(
        f"`{first}`: arguments for the script come after `--`",
        hint=f"write `-- {' '.join(values)}` at the end of the line",
    )


ScriptArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- ARGS]", help="Arguments that the script receives in sys.argv.", callback=_require_separator
    ),
]
Backend = Annotated[
    Literal["jax", "tensorflow", "torch"] | None,
    Flag("Keras's backend. Default: KERAS_BACKEND; of a script Keras's own; else jax."),
]
Device = Annotated[Literal["cpu", "gpu", "tpu"] | None, Flag("Device to compute on.")]
AsJson = Annotated[bool, Flag("Print JSON instead of a table.", name="json")]

LAUNCH = ("rank", "script", "source", "max_usd", "max_hours")
RUN = ("batch_size", "samples", "epochs", "steps", "precision")
OFFERS = ("accelerators", "providers", "regions", "purchase", "devices")
VALUES = ("deadline", "budget", "hour_value", "wait_value", "assume")
COMPLETIONS = {"accelerator": complete_accelerators, "provider": complete_providers, "region": complete_regions}
SHORT = {"output": ["-o"], "option": ["-O"], "yes": ["-y"], "device": ["--on"]}


def _build_parameter(parameter: Parameter) -> Parameter:
    """Return a flag of a command or a field of a request as typer takes it; other parameters as they are."""
    flag = next((one for one in getattr(parameter.annotation, "__metadata__", ()) if isinstance(one, Flag)), None)
    if flag is None:
        return parameter
    value, several = _find_value_type(parameter.annotation.__origin__)
    name = flag.name or parameter.name.replace("_", "-")
    option = typer.Option(
        f"--{name}",
        *SHORT.get(name, ()),
        help=f"{flag.help.rstrip('.')}; repeatable." if several else flag.help,
        metavar=flag.metavar or None,
        rich_help_panel=flag.panel,
        autocompletion=COMPLETIONS.get(name),
    )
    return parameter.replace(annotation=Annotated[value, option], default=None if several else parameter.default)


def _find_value_type(kind: Any) -> tuple[Any, bool]:
    """Return the type of a field on the command line, the first of several, and whether its flag repeats."""
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if get_origin(members[0]) is Sequence:
        (inner,) = get_args(members[0])
        return list[_find_value_type(inner)[0]] | None, True  # type: ignore[misc]
    return (members[0] | None if NoneType in members else members[0]), False


class OutputFlags(Frozen):
    """Output besides a table on standard output."""

    output: Annotated[Path | None, Flag("Also write the JSON here.", USUAL)] = None
    json_: Annotated[bool, Flag("Print JSON instead of a table.", OUTPUT, "json")] = False

    def emit(self, answer: Answer) -> None:
        """Write an answer to the file, if one is given, and to standard output."""
        write_document(self.output, answer.document)
        answer.emit(as_json=self.json_)


R = TypeVar("R")


def expand_flag_groups(command: Callable[..., R]) -> Callable[..., R]:
    """Return a command as typer takes it: `Flag`s as options, and its dataclasses as their fields.

    The command line has one flag per field, in their order; the command receives the object. Of an annotation
    `Annotated[RECORD, (NAME, ...)]` only the named fields are flags. Groups must follow the command's positional
    parameters. What is not given has the default of the command or of the field.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: parts for name, hint in hints.items() if (parts := _find_fields(hint))}

    @wraps(command)
    def flat(*args: Any, **flags: Any) -> R:
        given = {key: value for key, value in flags.items() if value is not None}
        for name, (record, parameters) in groups.items():
            fields = [one.name for one in parameters if one.name in given]
            given[name] = record(**{key: given.pop(key) for key in fields})
        return command(*args, **given)

    signature = inspect.signature(command)
    parameters = [
        _build_parameter(one)
        for name, parameter in signature.parameters.items()
        for one in (
            groups[name][1]
            if name in groups
            else [parameter.replace(annotation=hints.get(name, parameter.annotation))]
        )
    ]
    flat.__signature__ = signature.replace(parameters=parameters, return_annotation=None)  # type: ignore[attr-defined]
    return flat


def _find_fields(hint: Any) -> tuple[type, list[Parameter]] | None:
    """Return the record of an annotation and its fields that are flags; None for another annotation."""
    record, names = getattr(hint, "__origin__", hint), getattr(hint, "__metadata__", (None,))[0]
    if not (isinstance(record, type) and is_dataclass(record)):
        return None
    return record, [one for one in iter_field_parameters(record) if names is None or one.name in names]
