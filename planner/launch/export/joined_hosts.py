"""Several machines that train one model: what each of them tells `keras.distribution.initialize()`."""

from __future__ import annotations

from ...errors import NoAnswerError
from .task import ExportTask

__all__ = ["JOINING_LIMIT", "build_join_commands", "require_gpu_hosts"]

PORT = 12355  # of the coordinator, which runs on the first machine
JOINING_LIMIT = (
    "the script must call `keras.distribution.initialize()` before anything else of Keras, and distribute its "
    "model (`keras.distribution`): otherwise each machine trains a model of its own"
)


def build_join_commands(*, first: str, hosts: str, index: str) -> list[str]:
    """Return the commands that set the environment of `keras.distribution.initialize()` (Keras 3.15, JAX).

    Args:
        first: Shell word for the address of the first machine.
        hosts: Shell word for the number of machines.
        index: Shell word for the number of this machine, from 0.
    """
    return [
        f"export KERAS_DISTRIBUTION_JOB_ADDRESSES={first}:{PORT}",
        f"export KERAS_DISTRIBUTION_NUM_PROCESSES={hosts}",
        f"export KERAS_DISTRIBUTION_PROCESS_ID={index}",
    ]


def require_gpu_hosts(task: ExportTask, *, engine: str) -> None:
    """Raise NoAnswerError for several TPU slices, which find one another without these variables."""
    if task.hosts > 1 and task.offer.accelerator.startswith("TPU"):
        raise NoAnswerError(
            f"cannot export {task.hosts} slices of {task.offer.instance_type} to {engine}: only machines with "
            "GPUs or CPUs are joined",
            hint="choose another offer: `--rank N`, or a larger slice",
        )
