"""Export of a chosen offer as a file for another launcher, with that launcher's own way to stop.

    task          from `plan.json` to what all engines need: machine, code, deadline, commands
    skypilot, dstack, kubernetes, rayjob    pure: a task as the engine's document, and the limits of its stop
    joined_hosts, tpu_slices, pods    machines that train together, hosts of a TPU slice, pods for their nodes
    cloud_init, terraform    the same for a bare machine, whose script (`machine`) sets its own timer
    colab         the same as a notebook

Only `skypilot.launch_with_sky` starts a machine. Exported runs are not in gpuplan's ledger: the engine's own tools
list and end them.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..prepare.arguments import LaunchArgs
from . import cloud_init, colab, dstack, kubernetes, pods, rayjob, skypilot, terraform
from .task import EngineDocument, ExportTask, build_export_task


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine.

    Args:
        title: Name for messages.
        providers: Providers that it can rent from.
        joins_hosts: Whether it starts several machines for one run.
        export: Returns the engine's document of a task. Pure.
    """

    title: str
    providers: tuple[str, ...]
    joins_hosts: bool = False
    export: Callable[[ExportTask], EngineDocument]


ENGINES = {
    "skypilot": Engine(
        title="SkyPilot",
        providers=skypilot.PROVIDERS,
        joins_hosts=True,
        export=skypilot.build_skypilot_task,
    ),
    "dstack": Engine(title="dstack", providers=dstack.PROVIDERS, export=dstack.build_dstack_task),
    "kubernetes": Engine(
        title="Kubernetes", providers=pods.PROVIDERS, joins_hosts=True, export=kubernetes.build_jobset
    ),
    "terraform": Engine(
        title="Terraform", providers=terraform.PROVIDERS, export=terraform.build_configuration
    ),
    "cloud-init": Engine(
        title="cloud-init", providers=cloud_init.PROVIDERS, export=cloud_init.build_cloud_config
    ),
    "colab": Engine(title="Colab", providers=colab.PROVIDERS, export=colab.build_colab_task),
    "ray": Engine(title="Ray", providers=pods.PROVIDERS, joins_hosts=True, export=rayjob.build_rayjob),
}


def export_offer(
    args: LaunchArgs, *, engine: str, file: str, disk_gb: int = 100, image: str | None = None
) -> dict[str, Any]:
    """Return a plan's offer as an engine's document, with commands and limits.

    Args:
        args: The flags.
        engine: One of ``ENGINES``.
        disk_gb: Size of the disk [GB].
        image: Container to run in; None: the engine's default.
        file: Path of the document.

    Raises:
        UsageError, NoAnswerError: The request cannot be exported; see each check.
    """
    chosen = ENGINES[engine]
    task = build_export_task(
        args,
        engine=chosen.title,
        providers=chosen.providers,
        joins_hosts=chosen.joins_hosts,
        disk_gb=disk_gb,
        image=image,
    )
    found = chosen.export(task)
    return {
        "engine": engine,
        "name": task.name,
        "provider": task.provider,
        "hosts": task.hosts,
        "offer": task.offer.model_dump(mode="json"),
        "sharding": task.offer.describe_layout(hosts=task.hosts),
        "worst_case_usd": task.worst_case_usd,
        "apply": found.apply.replace("FILE", shlex.quote(file)),
        "stop": found.stop,
        "stops": list(found.stops),
        "open": list(found.open),
        "header": found.header,
        "document": found.document,
    }
