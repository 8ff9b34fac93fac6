"""Rows that were read before: the same as those that are read now, or read now."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from gpuplan.files import get_cache_folder
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.catalog_files import Table, _compute_digest, cache_rows, load_table
from gpuplan.offers.rows import Row
from hypothesis import given, settings
from hypothesis import strategies as st


class Made(Row):
    """A row with every kind of value that the catalog has."""

    text: str
    usd: Decimal | None = None
    number: float | int | bool | None = None
    day: date | None = None
    names: tuple[str, ...] = ()


rows = st.builds(
    Made,
    text=st.sampled_from(["a", "b"]) | st.text(),
    usd=st.none() | st.decimals(allow_nan=False, allow_infinity=False),
    number=st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False),
    day=st.none() | st.dates(),
    names=st.lists(st.text(), max_size=3).map(tuple),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own."""
    monkeypatch.setenv("GPUPLAN_CACHE_DIR", str(tmp_path))
    return get_cache_folder("catalog")


def never() -> Iterator[Made]:
    """Fail when something is read that was kept."""
    raise AssertionError("read again")


@settings(max_examples=50)
@given(made=st.lists(rows, max_size=30).map(tuple))
def test_what_comes_back_is_what_was_kept(
    made: tuple[Made, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Law: equal rows, of equal types, in order; 1, 1.0 and true stay what they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUPLAN_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        first = cache_rows(Made, "text", make=lambda: made)
        again = cache_rows(Made, "text", make=never)

    assert first == again == made
    assert [type(row.number) for row in again] == [type(row.number) for row in made]
    assert [str(row.usd) for row in again] == [str(row.usd) for row in made]


def test_another_text_is_another_entry(folder: Path) -> None:
    """The text that rows are made of names them; neither takes the other's place."""
    one, other = Made(text="one"), Made(text="other")

    assert cache_rows(Made, "1", make=lambda: [one]) == (one,)
    assert cache_rows(Made, "2", make=lambda: [other]) == (other,)
    assert cache_rows(Made, "1", make=never) == (one,)
    assert load_table(Table("t", "1"), "names", lambda *_: {"a": ("b",)}) == {"a": ("b",)}
    assert load_table(Table("t", "1"), "names", lambda *_: {"": ("c",)}) == {"a": ("b",)}


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-7],
        lambda text: text.replace("1.25", "1.35"),
        lambda text: "",
        lambda text: "{}",
        lambda text: json.dumps({"text": [1, 2]}),
    ],
    ids=["cut off", "another price", "empty", "no digest", "another form"],
)
def test_a_damaged_entry_is_read_anew_and_mended(folder: Path, damage: object) -> None:
    """It is ignored without a message, and the next start finds it whole."""
    one = Made(text="x", usd=Decimal("1.25"))
    cache_rows(Made, "1", make=lambda: [one])
    (entry,) = folder.iterdir()
    entry.write_text(damage(entry.read_text()))  # type: ignore[operator]

    assert cache_rows(Made, "1", make=lambda: [one]) == (one,)
    assert cache_rows(Made, "1", make=never) == (one,)


def test_what_cannot_be_read_is_not_kept(folder: Path) -> None:
    """An error is raised each time, and leaves no entry."""
    for _ in range(2):
        with pytest.raises(AssertionError, match="read again"):
            cache_rows(Made, "1", make=never)
    assert not folder.exists()


def test_a_folder_that_cannot_be_made_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file stands where the folder would be: rows are read each time."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("GPUPLAN_CACHE_DIR", str(tmp_path / "file"))

    assert cache_rows(Made, "1", make=lambda: [Made(text="x")]) == (Made(text="x"),)


def test_the_second_start_checks_nothing_and_finds_the_same_catalog(folder: Path) -> None:
    """Two processes: the first reads the files with pydantic, the second has every part without it."""
    code = (
        "import sys; from gpuplan.offers.catalog import load_catalog;"
        "from gpuplan.offers.spot import load_preemption_data;"
        "from gpuplan.offers.compat import load_compatibility; c = load_catalog();"
        "print([c.accelerators, c.names, c.offers, c.hosts, c.host_series, c.links, c.notebooks,"
        "c.costs.providers, c.costs.assumptions, c.costs.regions,"
        "load_preemption_data(), load_compatibility()]);"
        "print('pydantic' in sys.modules, file=sys.stderr)"
    )
    first, second = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)
    )

    assert [first.stderr, second.stderr] == ["True\n", "False\n"]
    assert first.stdout == second.stdout
    assert len(load_catalog().offers) > 3000


def test_texts_are_kept_apart() -> None:
    """The same letters in other texts are something else."""
    assert len({_compute_digest(*texts) for texts in (("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""))}) == 4
    assert _compute_digest("ab", "c") == _compute_digest("ab", "c")
