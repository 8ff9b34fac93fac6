"""Mutants of Python files: small changes of places that calculate."""

from __future__ import annotations

import ast
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

FUNCTION = "()"  # mark of a function in a scope
IMPORT = "<module>"  # scope of code outside functions
OPERATORS = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"), ast.Pow: ("**", "*"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
    ast.Lt: ("<", "<=", ">="), ast.LtE: ("<=", "<", ">"), ast.Gt: (">", ">=", "<="), ast.GtE: (">=", ">", "<"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "ceil": "floor", "floor": "ceil"}
SKIPPED = (ast.Raise, ast.Assert, ast.arg, ast.JoinedStr)  # messages and annotations
NO_EFFECT = {"strict", "maxsize", "encoding", "hint", "help"}  # arguments that calculate nothing
TEXTS = (ast.JoinedStr, ast.List, ast.Tuple)
Edit = tuple[int, int, str]


class Mutant(NamedTuple):
    """A change of one place; `start` and `end` are offsets into the file, `scope` is the function around it."""

    file: str
    line: int
    scope: str
    start: int
    end: int
    new: str

    def apply(self, source: str) -> str:
        """Return the file's text with the change."""
        return source[: self.start] + self.new + source[self.end :]

    def lines(self, source: str) -> tuple[str, str]:
        """Return the changed lines before and after, joined to one."""
        first, last = source.rfind("\n", 0, self.start) + 1, (source + "\n").find("\n", self.end)
        before, after = source[first:last], source[first : self.start] + self.new + source[self.end : last]
        return " ".join(before.split()), " ".join(after.split())


class _Text:
    """Source text with the offsets of its nodes."""

    def __init__(self, source: str) -> None:
        self.source, self._lines = source, source.split("\n")
        self._starts = [0, *accumulate(len(line) + 1 for line in self._lines)]

    def locate(self, node: Any) -> tuple[int, int]:
        """Return start and end of a node."""
        places = ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
        start, end = (
            self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())
            for line, column in places
        )
        return start, end

    def swap(self, left: Any, right: Any, operator: Any, ending: str = "") -> Iterator[Edit]:
        """Yield the exchanges of the operator between two nodes."""
        old, *news = OPERATORS.get(type(operator), ("",))
        start, end = self.locate(left)[1], self.locate(right)[0]
        place = re.search(re.escape(old + ending).replace(r"\ ", r"\s+"), self.source[start:end])
        return iter([(start + place.start(), start + place.end(), new + ending) for new in news if place])


def find_mutants(file: str, source: str) -> list[Mutant]:
    """Return all mutants of a file."""
    text, found = _Text(source), []
    for node, scope in _walk(ast.parse(source), ()):
        name = ".".join(scope[:-1]) if scope[-1:] == (FUNCTION,) else IMPORT
        for start, end, new in (*_edit_operators(node, text), *_edit_values(node, text)):
            found.append(Mutant(file, source.count("\n", 0, start) + 1, name, start, end, new))
    return found


def _edit_operators(node: ast.AST, text: _Text) -> Iterator[Edit]:
    match node:
        case ast.BinOp(left=left, op=operator, right=right):
            if not _is_text(left) and not _is_text(right):
                yield from text.swap(left, right, operator)
        case ast.AugAssign(target=left, op=operator, value=right):
            yield from text.swap(left, right, operator, "=")
        case ast.Compare(left=left, ops=operators, comparators=others):
            for one, operator, other in zip([left, *others], operators, others, strict=False):
                yield from text.swap(one, other, operator)
        case ast.BoolOp(op=operator, values=[left, right, *_]):
            yield from text.swap(left, right, operator)
        case ast.UnaryOp(op=ast.Not() | ast.USub() as operator):
            start = text.locate(node)[0]
            yield start, start + (3 if isinstance(operator, ast.Not) else 1), ""


def _edit_values(node: ast.AST, text: _Text) -> Iterator[Edit]:
    match node:
        case ast.Constant(value=bool(value)):
            yield *text.locate(node), str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield *text.locate(node), repr(value + 1 if isinstance(value, int) or not value else 2 * value)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in NAMES:
            end = text.locate(node.func)[1]
            yield end - len(name), end, NAMES[name]
        case ast.Return(value=ast.Call() as value):
            yield *text.locate(value), "None"
        case ast.If(test=test) | ast.IfExp(test=test) if isinstance(test, (ast.Name, ast.Attribute, ast.Call)):
            start, end = text.locate(test)
            yield start, end, f"not ({text.source[start:end]})"


def _is_text(node: ast.expr) -> bool:
    """Return whether a node is a string, list or tuple, whose `+` and `*` are no arithmetic."""
    return isinstance(node, TEXTS) or isinstance(getattr(node, "value", None), str)


def _walk(node: Any, scope: tuple[str, ...]) -> Iterator[tuple[ast.AST, tuple[str, ...]]]:
    """Yield the nodes that may calculate, with the names of the classes and the outermost function around each."""
    if isinstance(node, SKIPPED) or getattr(node, "arg", None) in NO_EFFECT:
        return
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith(("TYPE_CHECKING", "__main__'")):
        return
    children: Any = ast.iter_child_nodes(node)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        is_class = isinstance(node, ast.ClassDef)
        children = node.body if is_class else [node.args, *node.body]
        if scope[-1:] != (FUNCTION,):
            scope = (*scope, node.name) if is_class else (*scope, node.name, FUNCTION)
    elif isinstance(node, ast.AnnAssign):
        children = filter(None, [node.value])
    yield node, scope
    for child in children:
        yield from _walk(child, scope)


def pick_mutants(package: Path, rooms: Sequence[str], *, count: int, seed: int) -> list[Mutant]:
    """Return as many mutants of each room, drawn evenly over its lines, at most one of a line.

    Raises:
        SystemExit: A folder or file of a room is not there.
    """
    drawn, by_room = random.Random(seed), list[list[Mutant]]()
    for room in rooms:
        by_line: dict[tuple[str, int], list[Mutant]] = defaultdict(list)
        for place in room.split():
            paths = [*sorted((package / place).rglob("*.py")), *package.glob(f"{place}.py")]
            if not paths:
                raise SystemExit(f"error: no `{place}` in {package}: change ROOMS")
            for path in paths:
                for one in find_mutants(path.relative_to(package).as_posix(), path.read_text("utf-8")):
                    by_line[one.file, one.line].append(one)
        by_room.append([drawn.choice(several) for several in by_line.values()])
        drawn.shuffle(by_room[-1])
    picked: list[Mutant] = []
    while len(picked) < count and any(by_room):
        for mutant in [room.pop() for room in by_room if room]:
            with suppress(SyntaxError):
                ast.parse(mutant.apply((package / mutant.file).read_text("utf-8")))
                picked.append(mutant)
    return picked[:count]
