"""The size and the shape of planner/ against tests/house.toml: a raise says which feature it buys."""

from __future__ import annotations

import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
from house import RECORD, SLACK, differences, load, lowered, measure, text_of
from import_graph import ROOT, folder_graph, graph_of, mutual_pairs, without_edges

ROOM = {"lines": 1_000, "files": 10}
PAIR = ["gpuplan.a", "gpuplan.b"]
SMALL_HOUSE: dict[str, Any] = {
    "rooms": {"cli": ROOM},
    "small": {"cli/a.py": "a table"},
    "long": {},
    "folder_pairs": [PAIR],
    "one_importer_modules": 2,
}
RECORDED: dict[str, Any] = SMALL_HOUSE | {"budget": {"lines": 5_000, "files": 50}, "raised": []}


def test_the_house_is_as_recorded() -> None:
    """Rooms, budget, long and short files, pairs of folders, modules with one importer."""
    now = measure()

    assert {"root", "cli", "launch", "offers", "plan", "predict", "workload"} <= now["rooms"].keys()
    assert sum(room["files"] for room in now["rooms"].values()) == len(list(ROOT.rglob("*.py"))) > 200
    assert "\n".join(differences(now, load())) == ""


def test_a_grown_room_names_the_file_to_edit() -> None:
    """One line more than recorded: the row to write, with a place for the feature."""
    assert list(differences(SMALL_HOUSE, RECORDED)) == []
    (wrong,) = differences(_house(lines=1_001), RECORDED)

    assert "room `cli` has 1,001 lines in 10 files, and its record is 1,000 in 10" in wrong
    assert 'tests/house.toml\n[[raised]]\nroom = "cli"\nlines = 1001\nfiles = 10\nfeature = "' in wrong
    assert len(list(differences(_house(files=11), RECORDED))) == 1


def _house(**size: int) -> dict[str, Any]:
    return SMALL_HOUSE | {"rooms": {"cli": ROOM | size}}


def test_a_shrunk_room_lowers_its_record() -> None:
    """150 lines below stay unsaid, 151 do not; what `--record` writes then holds."""
    assert list(differences(_house(lines=1_000 - SLACK), RECORDED)) == []

    now = _house(lines=1_000 - SLACK - 1)
    (wrong,) = differences(now, RECORDED)
    assert "python tests/house.py --record" in wrong
    assert list(differences(now, lowered(now, RECORDED))) == []


def test_recording_raises_nothing() -> None:
    """A grown room, a new pair and a new small file are wrong after `--record` too."""
    now = _house(lines=1_001) | {"folder_pairs": [PAIR, ["gpuplan.a", "gpuplan.c"]], "small": {"b.py": 3}}

    assert lowered(now, RECORDED)["rooms"] == RECORDED["rooms"]
    assert len(list(differences(now, lowered(now, RECORDED)))) == 3


def test_a_raise_replaces_the_row_of_its_room() -> None:
    """The last of two raises of a room; it survives writing and reading."""
    rows = [{"room": "cli", "lines": 1_100 + n, "files": 10, "feature": f'feature "{n}"'} for n in (1, 2)]
    record = {key: value for key, value in RECORDED.items() if key != "long"} | {"raised": rows}

    assert list(differences(_house(lines=1_102), record)) == []
    assert len(list(differences(_house(lines=1_103), record))) == 1
    assert tomllib.loads(text_of(record)) == record


def test_every_raise_says_what_it_buys() -> None:
    """The record is in the form that `--record` writes, and each raise names a feature."""
    record = {"raised": []} | load()

    assert RECORD.read_text(encoding="utf-8") == text_of(record)
    assert [row["room"] for row in record["raised"] if not row["feature"].strip()] == []


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ({"long": {"plan/a.py": 601}}, "plan/a.py has 601 lines"),
        ({"small": {"cli/a.py": 3, "plan/a.py": 3}}, "plan/a.py: merge"),
        ({"small": {}}, "cli/a.py: merge"),
        ({"folder_pairs": [PAIR, ["gpuplan.c", "gpuplan.d"]]}, "gpuplan.c and gpuplan.d import each other"),
        ({"folder_pairs": []}, "no longer import each other"),
        ({"one_importer_modules": 3}, "3 modules have one importer"),
        ({"one_importer_modules": 1}, "--record"),
        ({"rooms": {"cli": ROOM, "attic": ROOM}}, "room `attic`"),
        ({"rooms": {}}, "room `cli`"),
    ],
)
def test_a_planted_fault_is_found(fault: dict[str, Any], named: str) -> None:
    """Each of the other rules, broken."""
    (wrong,) = differences(SMALL_HOUSE | fault, RECORDED)

    assert named in wrong


def test_a_budget_holds_over_all_rooms() -> None:
    """No room has grown, and the sum is above the budget."""
    (wrong,) = differences(SMALL_HOUSE, RECORDED | {"budget": {"lines": 999, "files": 10}})

    assert wrong == "planner/ has 1,000 lines, and the budget of tests/house.toml is 999"


def test_folders_import_one_way() -> None:
    """No circle between folders, but for the pairs on record."""
    folders = folder_graph(graph_of(sorted(ROOT.rglob("*.py"))))
    allowed = {(a, b) for a, b in load()["folder_pairs"]}

    assert len(folders) > 30
    assert folders["gpuplan.cli"] >= {"gpuplan.plan", "gpuplan.errors"}
    try:
        TopologicalSorter(without_edges(folders, allowed)).prepare()
    except CycleError as circle:
        pytest.fail(" -> ".join(circle.args[1]))


def test_a_pair_of_folders_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two folders that import each other by different modules, where no module is in a circle."""
    monkeypatch.setattr("import_graph.ROOT", tmp_path)
    for path, text in {
        "a/__init__.py": "",
        "a/one.py": "from ..b.two import x",
        "a/three.py": "",
        "b/__init__.py": "",
        "b/two.py": "def f():\n    from ..a import three",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)

    folders = folder_graph(graph_of(sorted(tmp_path.rglob("*.py"))))

    assert mutual_pairs(folders) == {("gpuplan.a", "gpuplan.b")}
    assert mutual_pairs(without_edges(folders, mutual_pairs(folders))) == set()
