"""Names in docstrings and pages exist: arguments, modules, files, flags of commands."""

from __future__ import annotations

import ast

import pytest
from named_things import (
    PAGES,
    ROOT,
    Node,
    classes_of,
    docstrings,
    documented,
    lost_names,
    project_files,
    trees,
    typed,
    unknown_arguments,
    unknown_flags,
)


def test_arguments_that_docstrings_name_exist() -> None:
    """Each name below `Args:` is a parameter of the function, or a field of the class."""
    classes = classes_of(trees())
    wrong = [
        f"{path.relative_to(ROOT)}, {one}"
        for path, tree in trees().items()
        for one in unknown_arguments(tree, classes)
    ]

    nodes = (node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, Node))
    assert sum(len(documented(ast.get_docstring(node) or "")) for node in nodes) > 500
    assert "\n".join(wrong) == ""


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ('def f(a, *rest):\n    """F.\n\n    Args:\n        a: A.\n        *rest: R.\n        b: B."""', "b"),
        ('class F(G):\n    """F.\n\n    Args:\n        a, c: A.\n    """\n    a: int', "c"),
        (
            'class F(G):\n    """F.\n\n    Args:\n        x: A.\n    """\n    def __init__(self, y): self.x = y',
            "x",
        ),
        ('class F(G):\n    """F.\n\n    Attributes:\n        x, d: A.\n    """\n    def f(self): self.x = 1', "d"),
    ],
)
def test_an_argument_that_does_not_exist_is_found(source: str, name: str) -> None:
    """Beside one that exists; a field of the base class exists too."""
    tree, base = ast.parse(source), ast.parse(f"class G:\n    {name}: int").body[0]
    assert isinstance(base, ast.ClassDef)

    (wrong,) = unknown_arguments(tree, {})

    assert wrong.endswith(f"has no `{name}`")
    if isinstance(tree.body[0], ast.ClassDef):
        assert list(unknown_arguments(tree, {"G": base})) == []


def test_files_and_modules_that_are_named_exist() -> None:
    """In pages and docstrings; `name.py` without its folder is a user's own in pages for users."""
    pages = [(page.name, page.read_text(encoding="utf-8")) for page in PAGES]
    wrong = [
        f"{place}: `{name}`"
        for place, text in (*pages, *docstrings())
        for name in lost_names(text, bare=not place.endswith(".md") or place == "CONTRIBUTING.md")
    ]

    assert len(PAGES) > 15
    assert len(project_files()) > 300
    assert sum(text.count(".py`") for _, text in pages) > 20
    assert "\n".join(wrong) == ""


@pytest.mark.parametrize(
    "name", ["planner/gone.py", "gone.py", "offers/gone.py", "gpuplan.gone", "gpuplan.offers.rows.Gone"]
)
def test_a_lost_name_is_found(name: str) -> None:
    """Beside names that exist, and a file of settings that is no module."""
    there = "`planner/offers/rows.py`, `rows.py`, `gpuplan.offers.rows.Row`, `gpuplan.estimate()`, `gpuplan.toml`"

    assert list(lost_names(there, bare=True)) == []
    assert list(lost_names(f"{there} and `{name}`", bare=True)) == [name]
    assert list(lost_names("`train.py`", bare=False)) == []


def test_flags_that_pages_name_exist() -> None:
    """Of the command where one is named, of any command in prose; CHANGELOG.md tells of earlier ones."""
    texts = [(page.name, text) for page in PAGES for text in typed(page.read_text(encoding="utf-8"))]
    wrong = [f"{page}: {one}" for page, text in texts for one in unknown_flags(text)]

    assert sum("--" in text for _, text in texts) > 300
    assert "\n".join(wrong) == ""


@pytest.mark.parametrize(
    "line",
    [
        "`gpuplan estimate train.py --gone`",
        "`gpuplan catalog refresh --deadline 12h`",
        "`ps --gone`",
        "`--gone`",
        "```console\n$ gpuplan estimate a \\\n  --gone\n```",
        "`python docs/_tools/snippets.py --gone`",
    ],
)
def test_a_flag_that_no_command_has_is_found(line: str) -> None:
    """A flag of another command is one too; those of another program and of a user's script are not."""
    there = "`gpuplan estimate train.py --deadline 12h -- --gone`, `docker run --gone`, `--deadline`"

    assert [one for text in typed(there) for one in unknown_flags(text)] == []
    assert len([one for text in typed(line) for one in unknown_flags(text)]) == 1
