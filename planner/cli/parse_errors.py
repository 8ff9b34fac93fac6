"""Lines that cannot be parsed: what is wrong in one sentence, and the words to type instead."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from itertools import takewhile
from typing import Any

import typer

from ..errors import UsageError


@cache
def read_spellings() -> dict[str, Any]:
    """Read the table."""
    import tomllib

    return tomllib.loads(files("gpuplan.cli").joinpath("spellings.toml").read_text(encoding="utf-8"))


@cache
def map_removed() -> dict[tuple[str, str], str]:
    """Return hints by command, "" for all commands, and the removed option, value or command."""
    rows = read_spellings()["removed"]["rows"]
    return {(command, option): hint for option, commands, hint in rows for command in commands.split(", ")}


def find_replacement(arguments: Sequence[str]) -> str | None:
    """Return the hint for the first removed spelling of a command line; None without one.

    Args:
        arguments: Arguments without the program name; those after `--` belong to the user's script.
    """
    typed = list(takewhile(lambda word: word != "--", arguments))
    words = [part for word in typed for part in word.split("=", 1)]
    names = [one for one in typed if not one.startswith("-")]
    places = (" ".join(names[:1]), " ".join(names[:2]), "")  # the command, its group and command, all commands
    keys = ((place, word) for word in words for place in places)
    return next((map_removed()[key] for key in keys if key in map_removed()), None)


_COUNTED = ("--devices", "--accelerator")
_MODEL = re.compile(r".+\.(py|ipynb|keras|h5|json)$|.+\.py:\w*|keras_hub:.+|[A-Z]\w+\d\w*")
_CLOSE = 0.75  # least share of equal characters of a misspelt option


def describe_parse_error(error: typer.TyperException, arguments: Sequence[str]) -> UsageError:
    """Return what is wrong with a line, without its program name, that typer cannot parse, and what to type."""
    context: Any = getattr(error, "ctx", None)
    path = "gpuplan" if context is None else context.command_path
    text = " ".join(error.format_message().split()).replace("Value error, ", "").rstrip(".")
    message = text[:1].lower() + text[1:]
    usual = UsageError(message, hint=f"see `{path} --help`")
    kind = type(error).__name__
    if context is not None and kind == "NoSuchOption":
        usual = _describe_option(error, context, arguments)
    elif context is not None and kind == "MissingParameter":
        lacked: Any = getattr(error, "param", None)
        options = [option for option in getattr(lacked, "opts", ()) if option.startswith("--")]
        name = f"`{options[0]}`" if options else lacked.metavar or lacked.name.upper()
        usual = UsageError(f"`{context.command_path}` needs {name}", hint=_show_example(context))
    elif context is not None and (unknown := re.match(r"No such command '(.*?)'", error.format_message())):
        usual = _describe_command(unknown[1], context, arguments)
    elif context is not None and (extra := re.search(r"extra argument\(?s?\)? \((.*)\)", message)):
        usual = UsageError(f"`{path}` does not take `{extra[1]}`", hint=_show_example(context))
    elif lacking := re.match(r"option '(--[\w-]+)' requires an argument", message):
        usual = UsageError(f"`{lacking[1]}` needs a value", hint=f"see `gpuplan {arguments[0]} --help`")
    replaced = find_replacement(arguments)
    usual.hint = usual.hint if replaced is None else replaced
    return usual


def _describe_option(error: Any, context: Any, arguments: Sequence[str]) -> UsageError:
    """Describe an option that a command does not have: one of another name, or the script's own."""
    name = error.option_name
    message = f"`{context.command_path}` has no option `{name}`"
    value = _find_value(name, arguments)
    known = [option for parameter in context.command.params for option in getattr(parameter, "opts", ())]
    meant = _find_meant(name, value, known)
    words = meant if " " in meant or not value else f"{meant} {shlex.quote(value)}"
    own = _write_separator(name, known, context, arguments)
    if meant:
        return UsageError(message, hint=f"type `{words}`" + (f"; for the script, `{own}`" if own else ""))
    if own:
        return UsageError(message, hint=f"the script's own arguments come after `--`: `{own}`")
    return UsageError(message, hint=f"see `{context.command_path} --help`")


def _find_value(name: str, arguments: Sequence[str]) -> str:
    """Return the word after an option, or after its equals sign; empty for none."""
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
        if word == name:
            return "" if following.startswith("--") else following
    return ""


def _find_meant(name: str, value: str, known: Sequence[str]) -> str:
    """Return the option of a command that another name stands for, or the closest one; empty for none."""
    options: dict[str, list[str]] = read_spellings()["options"]
    for meant, names in options.items():
        wrong_kind = meant in _COUNTED and value.isdecimal() != (meant == "--devices")
        if name in names and meant.split()[0] in known and not (wrong_kind and name in options["--accelerator"]):
            return meant
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=_CLOSE)), "")


def _write_separator(name: str, known: Sequence[str], context: Any, arguments: Sequence[str]) -> str:
    """Return the line with all words from an unknown option on after `--`, but for the command's own options.

    Empty if there is no script before it.
    """
    from ..workload.reference import SCRIPT_SUFFIXES

    takes = any(parameter.name == "script_arguments" for parameter in context.command.params)
    start = next((place for place, word in enumerate(arguments) if word.partition("=")[0] == name), 0)
    if not takes or "--" in arguments or not any(word.endswith(SCRIPT_SUFFIXES) for word in arguments[:start]):
        return ""
    rest, own = list(arguments[:start]), list[str]()
    target = own
    for word in arguments[start:]:
        if word.startswith("-"):
            target = rest if word.partition("=")[0] in known else own
        target.append(word)
    return shlex.join(["gpuplan", *rest, "--", *own])


def _show_example(context: Any) -> str:
    """Return a hint with the first example of a command's help, or else the way to its help."""
    text = f"{context.command.epilog or ''}\n{context.command.help or ''}"
    example = re.search(rf"^\s*(?:Example: )?({re.escape(context.command_path)} .+)$", text, re.MULTILINE)
    return f"as in `{example[1].strip()}`" if example else f"see `{context.command_path} --help`"


def _describe_command(name: str, context: Any, arguments: Sequence[str]) -> UsageError:
    """Describe a command that does not exist: misspelt, called otherwise, or left out before a MODEL."""
    message = f"`{context.command_path}` has no command `{name}`"
    known = list(context.command.commands)
    called = read_spellings()["commands"].items()
    meant = [command for command, names in called if name in names and command in known]
    meant = meant or difflib.get_close_matches(name, known, n=1)
    if meant:
        line = shlex.join([meant[0] if word == name else word for word in arguments])
        return UsageError(message, hint=f"type `gpuplan {line}`")
    if _MODEL.fullmatch(name) and "estimate" in known:
        return UsageError(message, hint=f"type `{shlex.join(['gpuplan', 'estimate', *arguments])}`")
    return UsageError(message, hint=f"see `{context.command_path} --help`")
