"""Export of a chosen offer as a file for another launcher, with that launcher's own way to stop.

    task        from `plan.json` to what all engines need: machine, code, deadline, commands
    engines     the values that an engine's template needs besides the task; `names` of accelerators there
    templates   the engines' documents, with the commands that start and end them and the limits of their stop

Only `engines.launch_with_sky` starts a machine. Exported runs are not in gpuplan's ledger: the engine's own tools
list and end them.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import jinja2
import yaml

from ..arguments import LaunchArgs
from .engines import ENGINES
from .task import ExportTask, build_export_task


def export_offer(args: LaunchArgs, *, engine: str, file: str) -> dict[str, Any]:
    """Return a plan's offer as the document of one of ``ENGINES``, to be in a file, with commands and limits.

    Raises:
        UsageError, NoAnswerError: The request cannot be exported; see each check.
    """
    chosen = ENGINES[engine]
    task = build_export_task(args, chosen)
    task.require_source(*chosen.sources, engine=chosen.title)
    found = _fill_template(engine, task, chosen.find_values(task))
    return {
        "engine": engine,
        "name": task.name,
        "provider": task.provider,
        "hosts": task.hosts,
        "offer": task.offer.model_dump(mode="json"),
        "instead_of": task.instead_of,
        "sharding": task.offer.describe_layout(hosts=task.hosts),
        "worst_case_usd": task.worst_case_usd,
        **found,
        "apply": found["apply"].replace("FILE", shlex.quote(file)),
    }


_UNPRINTABLE = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")  # JSON has them as they are


def _to_yaml(value: Any) -> str:
    """Return a value as YAML in one line: as JSON.

    Example:
        >>> print(_to_yaml({"a": ["x: y", 1, "two" + chr(10) + "lines"]}))
        {"a": ["x: y", 1, "two\\nlines"]}
    """
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def _fill_template(engine: str, task: ExportTask, values: dict[str, Any]) -> dict[str, Any]:
    """Return a filled template: `apply`, `stop`, `stops`, `open` and `document`."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gpuplan.launch.export"), undefined=jinja2.StrictUndefined
    )
    environment.filters["yaml"] = _to_yaml
    text = environment.get_template(f"{engine}.yaml.j2").render(task=task, **values)
    filled: dict[str, Any] = yaml.safe_load(text)
    return filled
