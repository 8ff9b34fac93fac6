"""A broken row stops a command with one line: file, line, field."""

from __future__ import annotations

import shutil
from importlib.resources import as_file, files
from pathlib import Path

import pytest
from gpuplan.errors import UsageError
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.catalog_files import CatalogError, Table


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the packaged catalog that may be spoiled."""
    with as_file(files("gpuplan.catalog")) as packaged:
        shutil.copytree(packaged, tmp_path / "catalog", ignore=shutil.ignore_patterns("__pycache__", "*.py"))
    return tmp_path / "catalog"


def spoil(folder: Path, file: str, old: str, new: str) -> None:
    """Replace text once in a file of a catalog."""
    path = folder / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (",0.11,", ",0.1l,", "prices/vast.csv, line 48, `usd_per_hour`: .*decimal.* \\(got `0.1l`\\)"),
        (",any,on_demand,0.11", ",any,ondemand,0.11", "line 48, `purchase`: .*'on_demand' or 'spot'"),
        (
            "x Tesla V100 32GB [lowest],V100-32GB,1",
            "x Tesla V100 32GB [lowest],V100-32GB,-1",
            "line 48, `devices`: .*greater than 0",
        ),
        ("1x Tesla V100 32GB [lowest],V100-32GB", "1x Tesla V100 32GB", "line 48, `columns`: 13 cells where 14"),
        ("0.11,2026-10-04", "0.11,yesterday", "line 48, `as_of`: "),
        (",true,active,", ",true,sold out,", "line 2, `status`: "),
    ],
)
def test_a_broken_price_names_its_place(folder: Path, old: str, new: str, message: str) -> None:
    """The error of a price that cannot be read has file, line and column, and what was given."""
    rows = (folder / "prices/vast.csv").read_text().splitlines()
    last = rows[-1].split(",")
    last[7] = "0.11"
    (folder / "prices/vast.csv").write_text("\n".join([*rows[:-1], ",".join(last)]) + "\n")
    spoil(folder, "prices/vast.csv", old, new)

    with pytest.raises(CatalogError, match=message) as caught:
        _ = load_catalog(folder).offers
    assert caught.value.exit_code == 2
    assert "catalog check" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            "accelerators.toml",
            "memory_gib = 12\n",
            'memory_gib = "much"\n',
            "accelerators.toml, line \\d+, `memory_gib`: .*got `much`",
        ),
        ("accelerators.toml", "memory_gib = 12\n", "memory = 12\n", "`memory`: is not a known field"),
        ("accelerators.toml", 'vendor = "NVIDIA"\n', "", "`vendor`: is missing"),
        ("accelerators.toml", '"P100" = [', '"P100" = 3 # [', "line \\d+, `P100`: is not a list of strings"),
        ("accelerators.toml", '"GK210" = "K80"', '"GK210" = 80', "line \\d+, `GK210`: is not a string"),
        ("accelerators.toml", "[[accelerator]]", "[[accelerator]", "accelerators.toml, line \\d+, `TOML`"),
    ],
)
def test_a_broken_accelerator_names_its_place(folder: Path, file: str, old: str, new: str, message: str) -> None:
    """So does the error of a hand-written row, down to the line of the field."""
    spoil(folder, file, old, new)

    with pytest.raises(CatalogError, match=message):
        _ = load_catalog(folder).names


def test_the_line_of_a_field_is_its_own(folder: Path) -> None:
    """The line that is named carries the value that is wrong."""
    spoil(folder, "accelerators.toml", "memory_gib = 12\n", "memory_gib = -12\n")

    with pytest.raises(CatalogError) as caught:
        _ = load_catalog(folder).accelerators
    lines = (folder / "accelerators.toml").read_text().splitlines()
    assert lines[caught.value.findings[0].line - 1] == "memory_gib = -12"


def test_patterns_must_be_regular_expressions(folder: Path) -> None:
    """A pattern that is none is an error of the catalog, not a traceback."""
    spoil(folder, "hosts.toml", "pattern = 'c5\\..+'", "pattern = 'c5(.+'")

    with pytest.raises(CatalogError, match=r"hosts.toml, line \d+, `pattern`: .*regular expression"):
        _ = load_catalog(folder).host_series


def test_a_series_on_an_unknown_family_is_an_error(folder: Path) -> None:
    """A misspelled family is found when the series are read."""
    spoil(folder, "hosts.toml", 'host = "AMD Turin"', 'host = "AMD Torino"')

    with pytest.raises(CatalogError, match="`host`: unknown family `AMD Torino`"):
        _ = load_catalog(folder).host_series


def test_no_prices_folder(folder: Path) -> None:
    """A catalog without prices says what is missing."""
    shutil.rmtree(folder / "prices")

    with pytest.raises(CatalogError, match="prices, line 1, `folder`: is missing"):
        _ = load_catalog(folder).offers


def test_no_catalog_folder(tmp_path: Path) -> None:
    """A folder that does not exist is a usage error."""
    with pytest.raises(UsageError, match="no catalog folder"):
        load_catalog(tmp_path / "nowhere")


def test_accelerators_are_read_without_prices(folder: Path) -> None:
    """Parts are read on demand: a broken price does not stop who asks for accelerators."""
    (folder / "prices/vast.csv").write_text("nonsense\n")

    assert load_catalog(folder).accelerators == load_catalog().accelerators


def test_a_copy_of_the_catalog_is_the_same_catalog(folder: Path) -> None:
    """A user's folder with the packaged files gives equal offers, hosts and accelerators."""
    mine, packaged = load_catalog(folder), load_catalog()

    assert mine.offers == packaged.offers
    assert mine.hosts == packaged.hosts
    assert mine.accelerators == packaged.accelerators


TOML = """as_of = 2026-01-01

[[chip]]
name = "one"
memory = 1

[[chip]]
"name" = "two"
[other]
memory = 3
"""


@pytest.mark.parametrize(
    ("array", "index", "field", "line"),
    [
        ("chip", 0, None, 3),
        ("chip", 0, "memory", 5),
        ("chip", 1, None, 7),
        ("chip", 1, "name", 8),
        ("chip", 1, "memory", 7),  # the one in line 10 is of another table
        ("chip", 2, None, 1),  # written inline, or not there
        ("none", 0, "name", 1),
    ],
)
def test_the_line_of_a_row_and_of_its_field(array: str, index: int, field: str | None, line: int) -> None:
    """Counted by hand in a file of ten lines; a field that is missing has the line of its row."""
    assert Table("made-up.toml", TOML).line_of(array, index, field) == line


def test_the_line_of_a_key() -> None:
    """The first of that name; the first line of the file for one that is missing."""
    table = Table("made-up.toml", TOML)

    assert [table.line_of_key(key) for key in ("as_of", "memory", "name", "none")] == [1, 5, 4, 1]
