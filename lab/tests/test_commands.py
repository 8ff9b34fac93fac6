"""The command line of the lab: the record and its page, laws, and which options go together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.laws import laws as surface_laws

Run = Callable[..., Any]
ROOT = Path(__file__).parents[2]


def test_the_record_is_printed_at_once(lab: Run) -> None:
    """The table of `gpuplan accuracy`."""
    done = lab("accuracy", "--recorded", "--setting", "profet")
    assert done.code == 0
    assert [line for line in done.out.splitlines() if line.startswith("profet\tall\tgpuplan\t849\t")]


def test_the_page_comes_from_the_record(lab: Run) -> None:
    """The same text as the page in the documentation."""
    done = lab("accuracy", "--recorded", "--markdown")
    assert done.out == (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--recorded", "--check"), "`--recorded` computes nothing, so `--check` has no effect"),
        (("--recorded", "--output", "x.json"), "`--recorded` computes nothing, so `--output` has no effect"),
        (("--recorded", "--markdown", "--json"), "`--markdown` and `--json`"),
        (("--laws", "--recorded"), "`--laws` scores nothing, so `--recorded` has no effect"),
        (("--laws", "--json"), "`--laws` scores nothing, so `--json` has no effect"),
        (("--from", "T4", "--setting", "profet"), "`--from` is a separate setting and excludes `--setting`"),
        (("--from", "T5"), "no published rows on `T5` in `--from`"),
        (("--setting", "sorce"), "unknown setting `sorce`"),
    ],
)
def test_contradictions_are_usage_errors(lab: Run, arguments: tuple[str, ...], says: str) -> None:
    """Exit 2 and one line on stderr, nothing on stdout, before anything is computed."""
    done = lab("accuracy", *arguments)
    assert (done.code, done.out) == (2, "")
    assert says in done.err


def test_it_runs_in_a_clone_alone(lab: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Elsewhere: exit 2, one line and a hint."""
    monkeypatch.chdir(tmp_path)
    done = lab("accuracy", "--recorded")
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: there is no folder `profiles` here\n\nhint: run it in the root of a clone\n"


def test_laws_are_printed_and_a_broken_one_exits_with_3(lab: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two laws, of which one is broken: rows, its worst case, and the exit code; 0 without a violation."""
    one = surface_laws.Violation("tf32", "m", "T4", "float32", 8, "tf32", True, "train", 2.0, 1.0)
    laws = [law for law, _ in surface_laws.LAWS[:2]]
    reports = [surface_laws.LawReport(law=law, cases=5, violations=()) for law in laws]
    monkeypatch.setattr(surface_laws, "check_all_laws", lambda *_, **__: reports)
    assert lab("accuracy", "--laws").out.splitlines()[1].split("\t")[:3] == ["chips", "5", "0"]

    reports[1] = surface_laws.LawReport(law=laws[1], cases=5, violations=(one,))
    printed = lab("accuracy", "--laws")
    assert printed.code == 3
    assert printed.out.splitlines()[-1].startswith("generations\tm\tT4\t") or "\tm\tT4\t" in printed.out
    assert "laws broken: generations" in printed.err


def test_calibrate_wants_a_folder_and_scores_what_is_installed(lab: Run, tmp_path: Path) -> None:
    """Exit 2 before anything is traced."""
    missing = lab("calibrate", "-o", str(tmp_path / "nowhere"))
    assert (missing.code, missing.out) == (2, "")
    assert "is not a folder" in missing.err
    other = lab("calibrate", "--accuracy", "-o", str(tmp_path))
    assert (other.code, other.out) == (2, "")
    assert "`--accuracy` scores what is installed" in other.err
