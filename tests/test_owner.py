"""The installation's id: random, made once, private, the same for all who ask at the same time."""

from __future__ import annotations

import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from gpuplan.errors import UsageError
from gpuplan.owner import load_or_create_owner, load_owner, require_owner


def test_the_id_is_made_once_and_is_private(tmp_path: Path) -> None:
    """64 random bits; the file is its owner's only; nothing is left beside it."""
    assert load_owner(tmp_path / "data") is None
    owner = load_or_create_owner(tmp_path / "data")

    assert re.fullmatch("own-[0-9a-f]{16}", owner)
    assert load_or_create_owner(tmp_path / "data") == load_owner(tmp_path / "data") == owner
    (file,) = (tmp_path / "data").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert load_or_create_owner(tmp_path / "other") != owner


def test_whoever_asks_at_the_same_time_gets_the_same_id(tmp_path: Path) -> None:
    """Of many that find no file, one links its own."""
    with ThreadPoolExecutor(16) as pool:
        owners = set(pool.map(lambda _: load_or_create_owner(tmp_path), range(64)))

    assert len(owners) == 1


def test_a_file_that_holds_something_else_is_not_replaced(tmp_path: Path) -> None:
    """Machines carry the old id: a new one would hide them."""
    (tmp_path / "owner").write_text("root")
    with pytest.raises(UsageError, match="contains no owner's ID"):
        load_or_create_owner(tmp_path)
    assert (tmp_path / "owner").read_text() == "root"


@pytest.mark.parametrize("text", ["", "A", "a b", "-x", "../x", "x" * 64])
def test_an_owner_that_no_tag_can_hold_is_refused(text: str) -> None:
    """Before any cloud is asked."""
    with pytest.raises(UsageError, match="is not an owner's ID"):
        require_owner(text)
