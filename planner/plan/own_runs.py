"""The user's own measured runs, kept in the platform's data folder, so that later estimates know them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError

if TYPE_CHECKING:
    from ..predict.from_profiles import Measurement

__all__ = ["forget_runs", "keep_run", "own_measurements", "read_profile", "runs_folder"]

FILES = "*.profile.json"


def runs_folder() -> Path:
    """Return where runs are kept: below `GPUPLAN_DATA_DIR`, or the platform's data folder."""
    override = os.environ.get("GPUPLAN_DATA_DIR")
    if override:
        return Path(override).expanduser() / "runs"
    import platformdirs

    return Path(platformdirs.user_data_path("gpuplan")) / "runs"


def read_profile(path: Path) -> dict[str, Any]:
    """Return a profile's document.

    Raises:
        UsageError: The file cannot be read, or is no profile.
    """
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read the profile `{path}`: {error}", hint="write it with `gpuplan profile`"
        ) from error
    if not isinstance(document, dict) or "schema" not in document:
        raise UsageError(f"`{path}` is no profile", hint="write it with `gpuplan profile`")
    from ..predict.from_profiles import measurements_of

    measurements_of(document, source=path.name)
    return document


def keep_run(document: Mapping[str, Any]) -> Path:
    """Keep a profile under a name made of its content; return where. Keeping it twice changes nothing."""
    text = json.dumps(document, sort_keys=True)
    folder = runs_folder()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.profile.json"
    temporary = path.with_suffix(".part")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
    return path


def forget_runs() -> int:
    """Delete all that was kept; return how many runs."""
    kept = list(runs_folder().glob(FILES))
    for path in kept:
        path.unlink(missing_ok=True)
    return len(kept)


def own_measurements() -> tuple[Measurement, ...]:
    """Return what was kept; a damaged file is left out."""
    return tuple(_readable())


def _readable() -> Iterator[Measurement]:
    for path in sorted(runs_folder().glob(FILES)):
        try:
            document = read_profile(path)
        except UsageError:
            continue
        from ..predict.from_profiles import measurements_of

        yield from measurements_of(document, source=f"your own run of {document.get('created_at', '')[:10]}")
