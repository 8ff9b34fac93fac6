"""The notebook for Colab, held to nbformat's own schema; it has not been run on Colab."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from gpuplan.errors import UsageError
from gpuplan.launch.core.shell import find_pinned_packages
from gpuplan.render.launch import format_export
from launch.export.plans import export_of

SOURCE = "git:https://github.com/me/repo@v1"


def test_the_notebook_is_one_and_asks_for_its_runtime(tmp_path: Path) -> None:
    """Valid, with the runtime of the plan, a link that opens it, and an end that gives the runtime back."""
    found = export_of(tmp_path, "colab", "colab", source=SOURCE, arguments=("--name", "it's"))
    notebook = nbformat.reads(format_export(found), as_version=4)
    nbformat.validate(notebook)

    assert (notebook.metadata.accelerator, notebook.metadata.colab.gpuType) == ("GPU", "T4")
    about, prepare, run = (cell.source for cell in notebook.cells)
    link = f"https://colab.research.google.com/github/me/repo/blob/v1/{found['name']}.ipynb"
    assert f"]({link})" in about
    assert found["apply"] == f"open {link}"
    assert prepare.splitlines()[:2] == ["%%bash", "set -e"]
    assert "git clone -q -- https://github.com/me/repo code" in prepare
    tree = ast.parse(run)
    (guarded,) = [node for node in tree.body if isinstance(node, ast.Try)]
    assert ast.unparse(guarded.finalbody[0]) == "runtime.unassign()"
    assert "timeout --signal=TERM --kill-after=60 9900 python train.py --name" in run


def test_the_printed_notebook_is_the_reviewed_one(golden: Callable[[str, str], None], tmp_path: Path) -> None:
    """To the letter: the code at its revision, the deadline, the runtime given back in any case, no secret."""
    text = format_export(export_of(tmp_path, "colab", "colab", source=SOURCE))
    for package in find_pinned_packages():  # the versions of this environment
        text = text.replace(package.partition("==")[2], f"({package.partition('==')[0]} here)")

    golden("launch-colab.ipynb", text)


def test_elsewhere_than_on_github_it_is_to_be_uploaded(tmp_path: Path) -> None:
    found = export_of(tmp_path, "colab", "colab", source="git:https://example.org/me/repo")

    assert "upload f.yaml" in found["apply"]


def test_a_script_of_this_folder_travels_in_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running the cell writes the very script, quotes and all; an image is refused with the way out."""
    script = 'print("it\'s")\n'
    (tmp_path / "train.py").write_text(script)
    found = export_of(tmp_path, "colab", "colab", source=str(tmp_path))
    (tmp_path / "colab").mkdir()
    monkeypatch.chdir(tmp_path / "colab")
    exec(found["document"]["cells"][1]["source"])

    assert Path("code/train.py").read_text() == script
    assert any("only the script is in the notebook" in line for line in found["open"])
    with pytest.raises(UsageError, match="Colab takes its code from a folder or git:URL@REF"):
        export_of(tmp_path, "colab", "colab", source="image:python")
