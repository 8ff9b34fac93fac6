"""Runs in a process of its own, with a home folder of its own: what real SkyPilot makes of our exports.

    python sky_program.py DOCUMENTS.json      each document through `sky.Task.from_yaml_config`

Prints one JSON object on its last line.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any


def load(documents: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return what SkyPilot understood, or its complaint."""
    import sky

    found = {}
    for key, document in documents.items():
        try:
            (resources,) = sky.Task.from_yaml_config(document).resources
            found[key] = str(resources)
        except Exception as error:
            found[key] = f"{type(error).__name__}: {error}"
    return found


if __name__ == "__main__":
    told = json.loads(Path(sys.argv[1]).read_text())
    with contextlib.redirect_stdout(io.StringIO()):
        answer = load(told)
    print(json.dumps(answer))
