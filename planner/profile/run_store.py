"""The user's own measured runs, saved in the data folder for later estimates."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ..errors import UsageError
from ..files import get_platform_folder, write_atomically
from ..records import parse_json

if TYPE_CHECKING:
    from ..predict.from_profile.predictor import ProfileRow
    from ..profile_schema import ProfileDocument
    from ..settings import Settings

FILES = "*.profile.json"


def get_runs_folder(settings: Settings) -> Path:
    """Return the folder of saved runs: in `data_dir`, or in the platform's data folder."""
    return (settings.data_dir or get_platform_folder("data")) / "runs"


def read_profile(path: Path) -> ProfileDocument:
    """Read a profile; UsageError if the file cannot be read, or is not one."""
    from ..predict.from_profile.predictor import read_profile_rows

    profile = _parse_profile(path)
    read_profile_rows(profile, source=path.name)  # raises if it is not a valid profile
    return profile


def _parse_profile(path: Path) -> ProfileDocument:
    hint = "write it with `gpuplan profile`"
    try:
        document = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the profile `{path}`: {error}", hint=hint) from error
    if not isinstance(document, dict) or "schema" not in document:
        raise UsageError(f"`{path}` is not a profile", hint=hint)
    return cast("ProfileDocument", document)


def save_run(document: ProfileDocument, settings: Settings) -> Path:
    """Save a profile under the hash of its content, so that saving it twice changes nothing; return its file."""
    text = json.dumps(document, sort_keys=True)
    folder = get_runs_folder(settings)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.profile.json"
    write_atomically(path, text)
    return path


def delete_runs(settings: Settings) -> int:
    """Delete all saved runs; return their number."""
    kept = list(get_runs_folder(settings).glob(FILES))
    for path in kept:
        path.unlink(missing_ok=True)
    return len(kept)


def load_own_measurements(settings: Settings) -> Iterator[ProfileRow]:
    """Yield the measurements of all saved runs; damaged files are skipped."""
    for path in sorted(get_runs_folder(settings).glob(FILES)):
        from ..predict.from_profile.predictor import read_profile_rows

        with suppress(UsageError):
            document = _parse_profile(path)
            yield from read_profile_rows(document, source=f"your own run of {document.get('created_at', '')[:10]}")
