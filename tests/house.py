"""Size and shape of planner/, against its record in house.toml.

    python tests/house.py            # what differs from the record
    python tests/house.py --record   # lower the record of what has shrunk; nothing is raised

A raise is written by hand, one line of `[[raised]]` a feature.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from import_graph import ROOT, folder_graph, graph_of, mutual_pairs, one_importer_modules

RECORD = Path(__file__).with_name("house.toml")
LONGEST, SHORTEST = 600, 40  # lines of a file
SLACK = 150  # lines by which a room may lie below its record
EXEMPT = {"__init__.py", "__main__.py", "_version.py"}
HEADER = """\
# Size and shape of planner/, held by tests/test_house.py. `python tests/house.py --record` lowers it.
# A raise takes one line of [[raised]] in the change that needs it: room, lines, files, and the feature it buys.
# The last such line of a room replaces its row below [rooms].
"""


def load() -> dict[str, Any]:
    """Read the record."""
    return tomllib.loads(RECORD.read_text(encoding="utf-8"))


def measure(root: Path = ROOT) -> dict[str, Any]:
    """Measure a package, in the form of the record: rooms, small files, pairs of folders, one-importer modules."""
    lengths = {path.relative_to(root): path.read_bytes().count(b"\n") for path in sorted(root.rglob("*.py"))}
    rooms: dict[str, dict[str, int]] = {}
    for path, lines in lengths.items():
        room = rooms.setdefault(path.parts[0] if len(path.parts) > 1 else "root", {"lines": 0, "files": 0})
        room["lines"] += lines
        room["files"] += 1
    graph = graph_of(sorted(root.rglob("*.py")))
    return {
        "rooms": rooms,
        "small": {str(p): n for p, n in lengths.items() if n < SHORTEST and p.name not in EXEMPT},
        "long": {str(p): n for p, n in lengths.items() if n > LONGEST},
        "folder_pairs": sorted(map(list, mutual_pairs(folder_graph(graph)))),
        "one_importer_modules": len(one_importer_modules(graph)),
    }


def recorded_rooms(record: Mapping[str, Any]) -> dict[str, Mapping[str, int]]:
    """Return the recorded lines and files of each room: its last raise, or its row."""
    return record["rooms"] | {row["room"]: row for row in record.get("raised", ())}


def differences(now: Mapping[str, Any], record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the differences of a measured house from its record, one sentence each."""
    rooms = recorded_rooms(record)
    for room in sorted(now["rooms"].keys() ^ rooms.keys()):
        yield f"room `{room}`: in planner/ or in tests/house.toml alone"
    for room in sorted(now["rooms"].keys() & rooms.keys()):
        yield from _room_differences(room, now["rooms"][room], rooms[room])
    for unit, budget in record["budget"].items():
        total = sum(room[unit] for room in now["rooms"].values())
        if total > budget:
            yield f"planner/ has {total:,} {unit}, and the budget of tests/house.toml is {budget:,}"
    for path, lines in now["long"].items():
        yield f"planner/{path} has {lines} lines: at most {LONGEST}"
    for path in sorted(now["small"].keys() ^ record.get("small", {}).keys()):
        reason = f"give its reason in tests/house.toml below [small], for files under {SHORTEST} lines alone"
        yield f"planner/{path}: merge it, or {reason}"
    for pair in now["folder_pairs"]:
        if pair not in record["folder_pairs"]:
            yield f"{pair[0]} and {pair[1]} import each other"
    yield from _stale_differences(now, record)


def _room_differences(room: str, now: Mapping[str, int], record: Mapping[str, int]) -> Iterator[str]:
    if any(now[unit] > record[unit] for unit in ("lines", "files")):
        yield (
            f"room `{room}` has {now['lines']:,} lines in {now['files']} files, and its record is "
            f"{record['lines']:,} in {record['files']}: remove lines, or add to tests/house.toml\n"
            f'[[raised]]\nroom = "{room}"\nlines = {now["lines"]}\nfiles = {now["files"]}\n'
            'feature = "the feature that this buys, in one line"'
        )
    elif now["lines"] < record["lines"] - SLACK:
        yield (
            f"room `{room}` has {now['lines']:,} lines, {record['lines'] - now['lines']} below its record: "
            "run `python tests/house.py --record`"
        )


def _stale_differences(now: Mapping[str, Any], record: Mapping[str, Any]) -> Iterator[str]:
    for pair in record["folder_pairs"]:
        if pair not in now["folder_pairs"]:
            yield f"{pair[0]} and {pair[1]} no longer import each other: run `python tests/house.py --record`"
    modules, most = now["one_importer_modules"], record["one_importer_modules"]
    if modules > most:
        yield f"{modules} modules have one importer, in their own folder; the record is {most}: merge them"
    elif modules < most:
        yield f"{modules} modules have one importer, {most} on record: run `python tests/house.py --record`"


def lowered(now: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record with the numbers of what has shrunk, and without what is gone."""
    rooms = {room: dict(record["rooms"][room]) for room in record["rooms"] if room in now["rooms"]}
    raised = [dict(row) for row in record.get("raised", ()) if row["room"] in now["rooms"]]
    holders = rooms | {row["room"]: row for row in raised}
    for room, holder in holders.items():
        for unit in ("lines", "files"):
            holder[unit] = min(holder[unit], now["rooms"][room][unit])
    return {
        "budget": record["budget"],
        "one_importer_modules": min(record["one_importer_modules"], now["one_importer_modules"]),
        "folder_pairs": [pair for pair in record["folder_pairs"] if pair in now["folder_pairs"]],
        "rooms": rooms,
        "small": {path: why for path, why in record.get("small", {}).items() if path in now["small"]},
        "raised": raised,
    }


def text_of(record: Mapping[str, Any]) -> str:
    """Return the record as TOML."""
    row = "{{ lines = {lines}, files = {files} }}".format
    parts = [
        f"{HEADER}one_importer_modules = {record['one_importer_modules']}",
        "folder_pairs = [" + "".join(f"\n  {json.dumps(pair)}," for pair in record["folder_pairs"]) + "\n]",
        f"budget = {row(**record['budget'])}",
        "\n[rooms]",
        *(f"{room} = {row(**size)}" for room, size in sorted(record["rooms"].items())),
        "\n[small]",
        *(f"{json.dumps(path)} = {json.dumps(why)}" for path, why in sorted(record["small"].items())),
    ]
    for raise_ in record["raised"]:
        parts += ["\n[[raised]]", *(f"{key} = {json.dumps(value)}" for key, value in raise_.items())]
    return "\n".join(parts) + "\n"


def main() -> int:
    """Print the differences; with `--record`, lower the record first."""
    now, record = measure(), load()
    if sys.argv[1:] == ["--record"]:
        record = lowered(now, record)
        RECORD.write_text(text_of(record), encoding="utf-8")
    wrong = list(differences(now, record))
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
