"""Files that are there whole, or not at all."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from gpuplan.files import delete_oldest, write_atomically


def test_the_new_file_takes_the_place_of_the_old(tmp_path: Path) -> None:
    """Text and bytes, durable or not; nothing else is left in the folder."""
    path = tmp_path / "plan.json"
    write_atomically(path, "old")
    write_atomically(path, "neu – new", durable=True)
    assert path.read_text(encoding="utf-8") == "neu – new"
    write_atomically(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert list(tmp_path.iterdir()) == [path]


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    """What is no file (a pipe, `/dev/null`) is not replaced by one."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(path.read_text)
        write_atomically(path, "new")
        assert read.result() == "new"
    assert path.is_fifo()


def test_who_may_read_it(tmp_path: Path) -> None:
    """As any file of the user's, or the owner alone."""
    before = os.umask(0o022)
    try:
        write_atomically(tmp_path / "open", "")
        write_atomically(tmp_path / "own", "", private=True)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o600


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    """A folder cannot be replaced by a file; the text that cannot be encoded never gets there."""
    path = tmp_path / "plan.json"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "\ud800")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_atomically(tmp_path / "folder", "text")
    assert path.read_text() == "old"
    assert sorted(child.name for child in tmp_path.iterdir()) == ["folder", "plan.json"]


def test_the_oldest_files_go_first(tmp_path: Path) -> None:
    """With room for two of three equal files, the least recently written one is deleted."""
    for age, name in enumerate(("new", "middle", "old")):
        (tmp_path / f"{name}.json").write_text("x" * 100, encoding="utf-8")
        os.utime(tmp_path / f"{name}.json", (1_000_000 - age, 1_000_000 - age))

    delete_oldest(tmp_path, "*.txt", size_bytes=0)
    delete_oldest(tmp_path, "*.json", size_bytes=300)
    assert len(list(tmp_path.iterdir())) == 3
    delete_oldest(tmp_path, "*.json", size_bytes=200)

    assert sorted(path.stem for path in tmp_path.iterdir()) == ["middle", "new"]
    delete_oldest(tmp_path, "*.json", size_bytes=199)
    assert [path.stem for path in tmp_path.iterdir()] == ["new"]


def test_a_file_that_another_process_deleted_meanwhile_is_no_fault(tmp_path: Path) -> None:
    """A link to nothing is listed and has no status: as an entry is that goes between both."""
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / "kept.json").write_text("x" * 100)
    delete_oldest(tmp_path, "*.json", size_bytes=200)
    assert (tmp_path / "kept.json").exists()
