"""Expansion of a command's parameters that are groups of flags."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, TypeVar, get_type_hints

R = TypeVar("R")


def expand_flag_groups(command: Callable[..., R]) -> Callable[..., R]:
    """Expand dataclass parameters of a command into their fields.

    The command line has one flag per field, in their order; the command receives the object. Groups must
    follow the command's positional parameters.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint) and isinstance(hint, type)}

    @wraps(command)
    def flat(*args: Any, **flags: Any) -> R:
        for name, group in groups.items():
            flags[name] = group(**{field.name: flags.pop(field.name) for field in fields(group)})
        return command(*args, **flags)

    signature = inspect.signature(command)
    parameters = [
        one
        for name, parameter in signature.parameters.items()
        for one in (
            _iter_parameters(groups[name])
            if name in groups
            else [parameter.replace(annotation=hints.get(name, parameter.annotation))]
        )
    ]
    flat.__signature__ = signature.replace(parameters=parameters, return_annotation=None)  # type: ignore[attr-defined]
    return flat


def _iter_parameters(group: type) -> Iterator[inspect.Parameter]:
    """Yield a keyword parameter for each field of a dataclass."""
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[field.name]
        )
