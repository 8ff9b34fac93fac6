"""Values of options: what people write, conversion without pydantic, and completion without network access.

Typer builds a pydantic adapter for every parameter of a command, given or not, and imports pydantic for it:
with the forty flags of `gpuplan estimate` this takes 0.12 s, a quarter of an estimate of a saved workload.
Values that no adapter would change bypass it here; all others, including errors, are left to typer.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from ..errors import UsageError
from .parse_errors import find_replacement, read_spellings

if TYPE_CHECKING:
    from ..offers.catalog import Catalog

LONGEST_NUMBER = 15  # digits
MONEY = ("budget", "hour_value", "wait_value", "max_usd", "price")
EXAMPLES = {
    "batch_size": "64",
    "samples": "50k",
    "steps": "10k",
    "tokens": "1B",
    **dict.fromkeys(MONEY, "20"),
    "price": "2500",
}
MULTIPLES = {"k": 3, "K": 3, "m": 6, "M": 6, "b": 9, "B": 9, "G": 9, "T": 12}  # powers of ten
WRITTEN = re.compile(
    r"(?P<sign>\$?)(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*(?:[eE]\+?\d{1,3})?|\.\d+) ?"
    r"(?P<multiple>[kKmMbBGT]?) ?(?P<unit>\$?|usd|USD|dollars?)"
)


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
        try:
            value = read_written(parameter, value)
        except UsageError as error:
            error.hint = find_replacement(context.obj or ()) or error.hint
            raise
        passes, taken = convert_plain_value(parameter, value)
        if not passes:
            return usual(context, value)
        return taken if parameter.callback is None else parameter.callback(context, parameter, taken)

    parameter.process_value = process_value


def read_written(parameter: Any, value: Any) -> Any:
    """Return the texts of numbers and choices as typer takes them: `1.28M` as `1280000`, `$20` as `20`.

    Raises:
        UsageError: Text that is no number, or none of the choices.
    """
    annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    if isinstance(value, (list, tuple)):
        kind = next(iter(get_args(annotation)), None)
        return type(value)(_read_one(parameter, kind, one) for one in value)
    return _read_one(parameter, annotation, value)


def _read_one(parameter: Any, kind: Any, value: Any) -> Any:
    if type(value) is not str:
        return value
    flag = max(parameter.opts, key=len)
    if kind in (int, float):
        return _read_number(value, kind, name=parameter.name, flag=flag)
    return _read_choice(value, get_args(kind), flag=flag) if get_origin(kind) is Literal else value


def _read_number(text: str, kind: type, *, name: str, flag: str) -> str:
    """Return a number without groups, multiples and currency; numbers that Python reads as they are."""
    try:
        kind(text)
    except ValueError:
        written = WRITTEN.fullmatch(text.strip())
    else:
        return text
    if written and (name in MONEY or not (written["sign"] or written["unit"])):
        number = Decimal(written["number"].replace(",", "")).scaleb(MULTIPLES.get(written["multiple"], 0))
        if kind is float:
            return str(number)
        if number == number.to_integral_value():
            return str(int(number))
    what = "an amount in dollars" if name in MONEY else "a whole number" if kind is int else "a number"
    raise UsageError(f"`{flag} {text}` is not {what}", hint=f"type `{flag} {_suggest_number(text, kind, name)}`")


def _suggest_number(text: str, kind: type, name: str) -> str:
    """Return the number that a text begins with, a percentage as a share; else an example."""
    start = re.match(r"(\d+(?:\.\d+)?)\s*(%|\D*)$", text)
    if start is None or name in MONEY:
        return EXAMPLES.get(name, "1")
    number = Decimal(start[1])
    return str(int(number) if kind is int else number / 100 if start[2] == "%" else number)


def _read_choice(text: str, choices: tuple[str, ...], *, flag: str) -> str:
    """Return the choice that a text spells in another way."""
    plain = {re.sub(r"[\s_-]", "", choice): choice for choice in choices}
    key = re.sub(r"[\s_-]", "", text.lower())
    if text in choices or key in plain:
        return text if text in choices else plain[key]
    if (called := read_spellings()["choices"].get(key)) in choices:
        return str(called)
    close = difflib.get_close_matches(key, plain, n=1)
    words = " or ".join(f"`{flag} {choice}`" for choice in ([plain[close[0]]] if close else choices))
    raise UsageError(f"`{flag} {text}` is none of {', '.join(choices)}", hint=f"type {words}")


def convert_plain_value(parameter: Any, value: Any) -> tuple[bool, Any]:
    """Convert a value that needs no adapter: success, and the result.

    Args:
        parameter: Typer parameter; without type information, its adapter is always used.
        value: Value from the command line, the environment or the default.
    """
    annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    several = bool(getattr(parameter, "multiple", False)) or parameter.nargs == -1
    if annotation is None or not (several or value is None or type(value) is str):
        return False, None
    if value is None:
        return not parameter.required, () if several else None
    if several:
        wanted = get_args(annotation)
        texts = isinstance(value, (list, tuple)) and all(type(one) is str for one in value)
        return bool(texts and value) and wanted == (str,), list(value) if texts else None
    if annotation is str:
        return True, value
    if get_origin(annotation) is Literal:
        return value in get_args(annotation), value
    digits = value.isascii() and value.isdecimal() and len(value) <= LONGEST_NUMBER
    return (True, int(value)) if annotation is int and digits else (False, None)


def _complete_from(find_names: Callable[[Catalog], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a function that lists the catalog's distinct names that start with a text, sorted."""

    def complete(incomplete: str) -> list[str]:
        from ..offers.catalog import load_catalog

        return sorted({name for name in find_names(load_catalog()) if name.startswith(incomplete)})

    return complete


complete_accelerators = _complete_from(lambda catalog: (*catalog.accelerators, *catalog.names.families))
complete_providers = _complete_from(lambda catalog: catalog.providers)
complete_regions = _complete_from(lambda catalog: (region for _, region in catalog.costs.regions))
