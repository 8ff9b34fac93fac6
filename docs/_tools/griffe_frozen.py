"""Griffe extension: signatures of classes derived from `gpuplan.records.Frozen`, and of `gpuplan.estimate`.

Their constructor takes the annotated fields as keyword arguments, as `typing.dataclass_transform` tells type
checkers. Griffe knows the decorator `dataclass` but not this transform, and would miss every documented argument.
What a field means is said in a comment beside or above it.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import griffe

BASES, TAKER = ("Frozen", "UnpricedRun"), "takes_fields"


class FrozenSignatures(griffe.Extension):
    """Adds `__init__` with the fields of a class as keyword-only parameters."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Add the constructor, and what its arguments mean, if the class is such a record."""
        if not any(str(base).rpartition(".")[2] in BASES for base in cls.bases):
            return
        keyword_only = griffe.ParameterKind.keyword_only
        own_fields = [one for one in cls.members.values() if isinstance(one, griffe.Attribute) and _is_field(one)]
        fields = [
            griffe.Parameter(one.name, annotation=one.annotation, kind=keyword_only, default=one.value)
            for one in own_fields
        ]
        meanings = [
            f"    {one.name}: {text[:1].upper()}{text[1:]}." for one in own_fields if (text := _find_comment(one))
        ]
        if meanings and cls.docstring is not None and "Args:" not in cls.docstring.value:
            cls.docstring.value += "\n\nArgs:\n" + "\n".join(meanings)
        own = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
        init = griffe.Function("__init__", parameters=griffe.Parameters(own, *fields), returns="None")
        init.lineno, init.endlineno = cls.lineno, cls.endlineno
        cls.set_member("__init__", init)

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Give a function that takes the fields of a record their parameters and help, as at run time."""
        if not any(TAKER in str(one.value) for one in func.decorators):
            return
        taken = getattr(import_module(func.path.rpartition(".")[0]), func.name)
        func.parameters = griffe.Parameters(*map(_convert_parameter, inspect.signature(taken).parameters.values()))
        if func.docstring is not None:
            func.docstring.value = inspect.getdoc(taken)


def _convert_parameter(one: inspect.Parameter) -> griffe.Parameter:
    """Return a parameter of a function at run time as griffe's."""
    kind = griffe.ParameterKind[one.kind.name.lower()]
    default = None if one.default is one.empty else repr(one.default)
    annotation = one.annotation if isinstance(one.annotation, str) else inspect.formatannotation(one.annotation)
    return griffe.Parameter(one.name, annotation=annotation, kind=kind, default=default)


def _find_comment(attribute: griffe.Attribute) -> str:
    """Return the comment beside an attribute, or else the lines of comment above it; empty for none."""
    lines, above = attribute.lines_collection[attribute.filepath], []
    beside = lines[(attribute.endlineno or 1) - 1].partition("  # ")[2]
    place = (attribute.lineno or 1) - 2
    while not beside and lines[place].strip().startswith("# "):
        above.insert(0, lines[place].strip()[2:])
        place -= 1
    return beside or " ".join(above)


def _is_field(attribute: griffe.Attribute) -> bool:
    """Return whether an attribute is an instance field: annotated, neither a property nor a class variable."""
    annotated = attribute.annotation is not None and "ClassVar" not in str(attribute.annotation)
    return annotated and "property" not in attribute.labels
