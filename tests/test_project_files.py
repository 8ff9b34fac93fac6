"""The files around the code: what a person, PyPI or GitHub reads of the project."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any

import gpuplan
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("wrong-*.yml"))
# https://docs.github.com/en/communities/using-templates-to-encourage-useful-issues-and-pull-requests/syntax-for-githubs-form-schema
# Packages that are part of the interface of a declared one, which brings them.
PARTS = {
    "botocore": "boto3",
    "h5py": "keras",
    "markupsafe": "jinja2",
    "pydantic_core": "pydantic",
    "urllib3": "requests",
}
FIELD_TYPES = {"checkboxes", "dropdown", "input", "markdown", "textarea"}


def _yaml(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def test_there_are_forms_for_a_wrong_price_and_a_wrong_time() -> None:
    """The two reports that the catalog and the model live from."""
    assert [path.stem for path in TEMPLATES] == ["wrong-price", "wrong-time"]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_a_form_asks_for_the_doctor(path: Path) -> None:
    """As GitHub's form syntax has it: known fields, unique ids, and the doctor's output is required."""
    form = _yaml(path)
    fields = {field["id"]: field for field in form["body"] if "id" in field}

    assert {"name", "description", "body"} <= set(form)
    assert {field["type"] for field in form["body"]} <= FIELD_TYPES
    assert len(fields) == sum(field["type"] != "markdown" for field in form["body"])
    assert "`gpuplan doctor" in fields["doctor"]["attributes"]["label"]
    assert fields["doctor"]["validations"]["required"] is True


def test_the_citation_is_of_this_version() -> None:
    """The fields that Citation File Format 1.2.0 requires, and what pyproject.toml says too."""
    citation = _yaml(ROOT / "CITATION.cff")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    assert [author["name"] for author in citation["authors"]] == [a["name"] for a in project["authors"]]


def test_type_checkers_are_told_that_the_package_has_types() -> None:
    """PEP 561."""
    assert files(gpuplan).joinpath("py.typed").is_file()


def test_every_imported_package_is_declared() -> None:
    """Whatever the package imports comes with a dependency or an extra of its own, not by way of another's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    test_only = {"test", "test-engines", "docs"}
    groups = [names for extra, names in extras.items() if extra not in test_only]
    declared = {canonicalize_name(Requirement(text).name) for text in chain(project["dependencies"], *groups)}
    providers = packages_distributions()
    missing = {
        name
        for name in _imported(ROOT / "planner") & set(providers)
        if not declared & {canonicalize_name(provider) for provider in providers[name]}
    }

    assert missing == set(PARTS)
    assert set(PARTS.values()) <= declared


def _imported(folder: Path) -> set[str]:
    """Names of the packages that any module below a folder imports, wherever in it."""
    found: set[str] = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.partition(".")[0])
    return found - {"gpuplan"} - sys.stdlib_module_names


def test_installing_in_colab_moves_no_framework() -> None:
    """What such a runtime has satisfies every requirement of gpuplan but typer's, which nothing there imports.

    So pip replaces nothing that a kernel has loaded, and no restart is asked for. `.ci/colab` asks a resolver.
    """
    lines = (ROOT / ".ci" / "colab-constraints.txt").read_text().splitlines()
    there = dict(line.lower().split("==") for line in lines if line and not line.startswith("#"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = [Requirement(text) for text in project["dependencies"]]

    assert {"tensorflow", "jax", "torch", "keras", "numpy"} <= set(there)
    assert [r.name for r in required if r.name not in there or there[r.name] not in r.specifier] == ["typer"]


def test_the_release_tests_the_wheel_before_it_publishes_it() -> None:
    """Built once; the job that publishes waits for those that install it, on every Python that is promised."""
    jobs = _yaml(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    promised = [c.rpartition(" ")[2] for c in project["classifiers"] if "Python :: 3." in c]

    assert jobs["publish"]["needs"] == ["test-wheel", "colab"]
    assert jobs["test-wheel"]["strategy"]["matrix"]["python"] == promised
    assert any(".ci/wheel" in step.get("run", "") for step in jobs["test-wheel"]["steps"])


def test_scripts_of_ci_can_be_read_by_their_shell() -> None:
    """`bash -n`: no run of a release is spent on a quotation mark."""
    scripts = [path for path in (ROOT / ".ci").iterdir() if path.read_bytes().startswith(b"#!/usr/bin/env bash")]

    assert {path.name for path in scripts} >= {"run", "wheel", "colab"}
    for script in scripts:
        subprocess.run(["bash", "-n", str(script)], check=True)


def test_every_package_is_built_into_the_wheel() -> None:
    """Folders with an `__init__.py` below planner/, and the list in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = project["tool"]["setuptools"]["packages"]
    found = {
        ".".join(("gpuplan", *path.parent.relative_to(ROOT / "planner").parts))
        for path in (ROOT / "planner").rglob("__init__.py")
    }
    assert found <= set(listed)
