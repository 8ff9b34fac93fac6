"""Runs in a process of its own, with a home folder of its own: what real SkyPilot makes of our exports.

    python sky_program.py load DOCUMENTS.json      each document through `sky.Task.from_yaml_config`
    python sky_program.py optimize PLANS.json      what its optimizer picks, told the times of each plan
    python sky_program.py dryrun DOCUMENTS.json    what `sky launch --dryrun` would start for each document
    python sky_program.py names NULL.json          what each name of an accelerator means at RunPod and Google

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
            task = sky.Task.from_yaml_config(document)
            (resources,) = task.resources
            found[key] = f"{task.num_nodes}x {resources}"
        except Exception as error:
            found[key] = f"{type(error).__name__}: {error}"
    return found


def optimize(plans: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return the machine that SkyPilot's optimizer picks for each plan, and the one it picks when told nothing."""
    import sky
    from gpuplan.skypilot import time_estimator
    from sky import check

    check.get_cached_enabled_clouds_or_refresh = lambda *_, **__: [sky.AWS()]  # as SkyPilot's own tests have it
    return {
        key: {"told": _picked(sky, time_estimator(path), path), "untold": _picked(sky, None, path)}
        for key, path in plans.items()
    }


def dryrun(documents: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the machine that SkyPilot would start for each document, with its price, or its complaint."""
    import sky
    from sky import check, execution

    clouds = [sky.AWS(), sky.GCP(), sky.Azure(), sky.Lambda(), sky.RunPod(), sky.Vast()]
    check.get_cached_enabled_clouds_or_refresh = lambda *_, **__: clouds  # as SkyPilot's own tests have it
    found: dict[str, dict[str, Any]] = {}
    for key, document in documents.items():
        try:
            with sky.Dag() as dag:
                task = sky.Task.from_yaml_config(document)
            best = sky.Optimizer.optimize(dag, quiet=True).tasks[0].best_resources
            execution.launch(task, cluster_name=f"c-{len(found)}", dryrun=True)
        except Exception as error:
            found[key] = {"error": f"{type(error).__name__}: {error}"}
            continue
        found[key] = {
            "machine": best.instance_type,
            "region": best.region,
            "spot": best.use_spot,
            "accelerators": best.accelerators,
            "usd_per_hour": best.get_cost(3600),
        }
    return found


def names(_: Any) -> dict[str, dict[str, str]]:
    """Return the GPU of RunPod that each name starts, and the name of each machine type of Google."""
    from sky.catalog.gcp_catalog import _ACC_INSTANCE_TYPE_DICTS
    from sky.provision.runpod.utils import GPU_NAME_MAP

    google = {
        machine: name
        for name, by_count in _ACC_INSTANCE_TYPE_DICTS.items()
        for machines in by_count.values()
        for machine in machines
    }
    return {"runpod": dict(GPU_NAME_MAP), "gcp": google}


def _picked(sky: Any, estimator: Any, path: str) -> dict[str, Any]:
    """Return what is picked from all devices that AWS has in the plan."""
    from gpuplan.launch.export.names import find_skypilot_name

    offers = json.loads(Path(path).read_text())["offers"]
    devices = {
        (find_skypilot_name(one["provider"], one["instance_type"], one["accelerator"]), one["devices"])
        for one in offers
    }
    with sky.Dag() as dag:
        task = sky.Task(name="train", run="true")
        task.set_resources({sky.Resources(infra="aws", accelerators={name: int(n)}) for name, n in devices})
        if estimator is not None:
            task.set_time_estimator(estimator)
    sky.Optimizer.optimize(dag, quiet=True)
    best = task.best_resources
    return {"instance_type": best.instance_type, "region": best.region}


if __name__ == "__main__":
    told = json.loads(Path(sys.argv[2]).read_text())
    with contextlib.redirect_stdout(io.StringIO()):
        answer = {"load": load, "optimize": optimize, "dryrun": dryrun, "names": names}[sys.argv[1]](told)
    print(json.dumps(answer))
