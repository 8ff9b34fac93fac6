"""The page on the published rows counts what is there."""

from __future__ import annotations

import csv
import re
from collections import Counter
from importlib import resources
from pathlib import Path

FOLDER = Path(str(resources.files("gpuplan.profiles.published")))
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_file_is_listed_with_its_rows() -> None:
    """Training on one device, on several, inference: as in the files, none missing, none too many."""
    listed = {
        name: tuple(map(int, counts.split(", ")))
        for name, counts in re.findall(r"^\| (\w+\.csv) \| (\d+, \d+, \d+) \|", PAGE, flags=re.MULTILINE)
    }
    counted = {}
    for path in FOLDER.glob("*.csv"):
        if not path.name.startswith("left_out"):
            kinds = Counter(
                "infer" if row["mode"] == "infer" else "one" if row["devices"] == "1" else "several"
                for row in rows_of(path)
            )
            counted[path.name] = (kinds["one"], kinds["several"], kinds["infer"])
    assert listed == counted


def test_every_reason_is_listed_with_its_rows() -> None:
    """Rows left out, by reason; a repeated row and an unknown accelerator count under one reason each."""
    table = PAGE.split("## Left out")[1]
    listed = {reason: int(n) for reason, n in re.findall(r"^\| (.+) \| (\d+) \|$", table, flags=re.MULTILINE)}
    counted: Counter[str] = Counter()
    for name in ("left_out_language.csv", "left_out_vision.csv"):
        for row in rows_of(FOLDER / name):
            reason = re.sub(r"^repeats nvidia_dle:.*", "repeats another row of the same source", row["reason"])
            reason = re.sub(r"^(no catalog entry for the accelerator) .*", r"\1 (see below)", reason)
            counted[reason] += 1
    assert listed == counted
    assert f"{counted.total()} published rows" in table


def test_every_column_is_described() -> None:
    """Nothing in a header that the page does not name, beyond the columns of every measurement file."""
    common = set(rows_of(FOLDER / "profet_keras_aws.csv")[0])
    own = {
        name
        for path in FOLDER.glob("*.csv")
        if not path.name.startswith("left_out")
        for name in set(rows_of(path)[0]) - common
    }
    assert own
    assert {name for name in own if f"`{name}`" not in PAGE} == set()
