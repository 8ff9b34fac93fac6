"""Values of options: conversion without pydantic, and shell completion without network access.

Typer builds a pydantic adapter for every parameter of a command, given or not, and imports pydantic for it:
with the forty flags of `gpuplan estimate` this takes 0.12 s, a quarter of an estimate of a saved workload.
Values that no adapter would change bypass it here; all others, including errors, are left to typer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

if TYPE_CHECKING:
    from ..offers.catalog import Catalog

LONGEST_NUMBER = 15  # digits


def bypass_adapters(command: Any) -> None:
    """Let plain values bypass pydantic, in a typer command and its subcommands."""
    for parameter in getattr(command, "params", ()):
        _bypass_adapter(parameter)
    if hasattr(command, "get_help_option"):  # built when a line is parsed, and cached
        command.get_help_option = _bypass_help_adapter(command.get_help_option)
    for below in getattr(command, "commands", {}).values():
        bypass_adapters(below)


def _bypass_help_adapter(usual: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def get_help_option(context: Any) -> Any:
        option = usual(context)
        if option is not None and "process_value" not in vars(option):
            _bypass_adapter(option)
        return option

    return get_help_option


def _bypass_adapter(parameter: Any) -> None:
    usual = parameter.process_value

    def process_value(context: Any, value: Any) -> Any:
        passes, taken = convert_plain_value(parameter, value)
        if not passes:
            return usual(context, value)
        return taken if parameter.callback is None else parameter.callback(context, parameter, taken)

    parameter.process_value = process_value


def convert_plain_value(parameter: Any, value: Any) -> tuple[bool, Any]:
    """Convert a value that needs no adapter: success, and the result.

    Args:
        parameter: Typer parameter; without type information, its adapter is always used.
        value: Value from the command line, the environment or the default.
    """
    annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    info = getattr(getattr(parameter, "type_descriptor", None), "parameter_info", None)
    if annotation is None or getattr(info, "parser", None) is not None:
        return False, None
    several = bool(getattr(parameter, "multiple", False)) or parameter.nargs == -1
    if value is None:
        return not parameter.required, () if several else None
    if several:
        wanted = get_args(annotation)
        texts = isinstance(value, (list, tuple)) and all(type(one) is str for one in value)
        return bool(texts and value) and wanted == (str,), list(value) if texts else None
    return _plain(annotation, info, value)


def _plain(annotation: Any, info: Any, value: Any) -> tuple[bool, Any]:
    """Return whether a value is plain text, one of the choices, or a decimal number of the expected type."""
    if type(value) is not str:
        return False, None
    if annotation is str:
        return True, value
    if get_origin(annotation) is Literal:
        return value in get_args(annotation), value
    digits = value.isascii() and value.isdecimal() and len(value) <= LONGEST_NUMBER
    unlimited = getattr(info, "min", None) is None and getattr(info, "max", None) is None
    if annotation is int and digits and unlimited:
        return True, int(value)
    return False, None


def _complete_from(find_names: Callable[[Catalog], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a function that lists the catalog's distinct names that start with a text, sorted."""

    def complete(incomplete: str) -> list[str]:
        from ..offers.catalog import load_catalog

        return sorted({name for name in find_names(load_catalog()) if name.startswith(incomplete)})

    return complete


complete_accelerators = _complete_from(lambda catalog: (*catalog.accelerators, *catalog.names.families))
complete_providers = _complete_from(lambda catalog: catalog.providers)
complete_regions = _complete_from(lambda catalog: (region for _, region in catalog.costs.regions))
