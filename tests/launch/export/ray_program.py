"""Runs in a process of its own: a real Ray cluster of N nodes on this computer, and the entry point of an export.

    python ray_program.py FILE.json    {"entrypoint": ..., "env": {...}, "nodes": 2, "gpus": 8}

Prints what the entry point said and returns its exit code. The entry point takes the way that KubeRay sends it: a
shell of the submitter splits it, `ray job submit` joins it again by `list2cmdline`, and Ray gives that to a shell.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path


def main(path: Path) -> int:
    """Run the entry point on a cluster whose nodes have the environment of the export's containers."""
    from ray.cluster_utils import Cluster

    told = json.loads(path.read_text())
    os.environ.update(told["env"])
    cluster = Cluster()
    for _ in range(told["nodes"]):
        cluster.add_node(num_cpus=2, num_gpus=told["gpus"])
    command = subprocess.list2cmdline(shlex.split(told["entrypoint"]))
    done = subprocess.run(
        ["bash", "-c", command], env={**os.environ, "RAY_ADDRESS": cluster.address}, check=False, timeout=200
    )
    cluster.shutdown()
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
