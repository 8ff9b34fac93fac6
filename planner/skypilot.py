"""Time estimator for SkyPilot's optimizer, to rank machines by dollars per job instead of per hour.

    import sky
    import gpuplan.skypilot

    task = sky.Task.from_yaml("task.yaml")
    task.set_time_estimator(gpuplan.skypilot.time_estimator("plan.json"))

By default SkyPilot assumes one hour for every machine. SkyPilot itself is not imported.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .estimate_document import read_offers

Row = Mapping[str, Any]


def time_estimator(profile: Any, **question: Any) -> Callable[[Any], float]:
    """Build the argument of `sky.Task.set_time_estimator`: a function from `sky.Resources` to the run time [s].

    Args:
        profile: A plan (`gpuplan estimate -o plan.json`, or the result of `gpuplan.estimate`), or any model
            argument of `gpuplan.estimate`: a profile, a script, a model.
        question: Further arguments of `gpuplan.estimate`: `samples`, `epochs`, ...

    The time is the central estimate from boot to shutdown for the best offer of the plan with the given
    devices (and cloud, machine, region and purchase option if given). Resources that are not in the plan get
    `math.inf`, so that they are not chosen.
    """
    rows = _rows(profile, question)

    def estimate_s(resources: Any) -> float:
        fitting = [row for row in rows if row["run_time_s"] is not None and _fits(row, resources)]
        return float(math.ceil(fitting[0]["run_time_s"]["mid"])) if fitting else math.inf

    return estimate_s


def _rows(profile: Any, question: Mapping[str, Any]) -> Sequence[Row]:
    """Return the offers of a plan that fit in memory, best first."""
    from .plan.estimate import SCHEMA, Estimate

    is_file = isinstance(profile, (str, Path)) and str(profile).endswith(".json")
    document = json.loads(Path(profile).read_bytes()) if is_file else {}
    if document.get("schema") != SCHEMA:
        if not isinstance(profile, Estimate):
            from .api import estimate

            profile = estimate(str(profile) if isinstance(profile, Path) else profile, **question)
        document = profile.to_json()
    return [row for row in read_offers(document) if row["memory_fits"] is not False]


def _fits(row: Row, resources: Any) -> bool:
    """Return whether an offer matches a `sky.Resources`."""
    stated = {
        "provider": str(resources.cloud).lower() if resources.cloud is not None else None,
        "region": resources.region,
        "purchase": "spot" if resources.use_spot else "on_demand",
    }
    same = all(value in {None, row[name]} for name, value in stated.items())
    machine = str(row["instance_type"]).partition("+")[0]  # without accelerators attached by Google
    same = same and resources.instance_type in (None, machine)
    return same and _same_devices(row, resources.accelerators)


def _same_devices(row: Row, accelerators: Mapping[str, float] | None) -> bool:
    """Return whether an offer has the given devices, by SkyPilot's names."""
    from .errors import NoAnswerError
    from .launch.export.names import find_skypilot_name

    if accelerators is None:
        return True
    ((name, count),) = accelerators.items()
    if name.startswith("tpu-"):
        return bool(row["instance_type"] == name)
    try:
        known = find_skypilot_name(row["provider"], row["instance_type"], row["accelerator"])
    except NoAnswerError:
        return False
    return known == name and bool(row["devices"] == count)
