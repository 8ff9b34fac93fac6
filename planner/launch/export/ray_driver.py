"""Driver of a Ray job: start a script once on each machine of the cluster, and wait for all.

Runs on the cluster, without gpuplan: `python DRIVER HOSTS GPUS`, where GPUS are those of a machine. The script is
in the environment, GPUPLAN_SCRIPT. It gets the address of the first machine and its own number, from 0.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any


def run_script(script: str, first: str, index: int) -> None:
    """Run the script in bash, in the environment of its Ray task."""
    subprocess.run(["bash", "-c", script, "run", first, str(index)], check=True)


def main(hosts: int, gpus: int, script: str) -> None:
    """Start the script on whole machines; one that fails ends all.

    Ray sets OMP_NUM_THREADS to the cores that a task asks for, so each asks for all of its machine.
    """
    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    ray.init()
    cores = min(node["Resources"]["CPU"] for node in ray.nodes() if node["Alive"])
    machine = {"CPU": cores, **({"GPU": gpus} if gpus else {})}
    group = placement_group([machine] * hosts, strategy="STRICT_SPREAD")
    ray.get(group.ready())

    def start(index: int, function: Callable[..., Any], *arguments: Any) -> Any:
        place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        task = ray.remote(function).options(
            num_cpus=cores, num_gpus=gpus, max_retries=0, scheduling_strategy=place
        )
        return task.remote(*arguments)

    first = ray.get(start(0, ray.util.get_node_ip_address))
    left = [start(index, run_script, script, first, index) for index in range(hosts)]
    while left:
        done, left = ray.wait(left)
        ray.get(done)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), os.environ["GPUPLAN_SCRIPT"])
