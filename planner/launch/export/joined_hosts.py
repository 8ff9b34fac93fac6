"""Several machines that train one model: what each of them tells `keras.distribution.initialize()`."""

from __future__ import annotations

from ...errors import NoAnswerError
from .task import ExportTask
from .tpu_slices import count_slice_hosts

PORT = 12355  # of the coordinator, which runs on the first machine
_DUTY = (
    "the script must call `keras.distribution.initialize()` before anything else of Keras, and distribute its "
    "model (`keras.distribution`)"
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


def describe_joining(task: ExportTask) -> tuple[str, ...]:
    """Return the requirement on a script that runs on several machines or TPU hosts; empty for one."""
    slice_hosts = count_slice_hosts(task.offer.accelerator, task.devices)
    if task.hosts == slice_hosts == 1:
        return ()
    duty = f"{_DUTY}: otherwise each machine trains a model of its own"
    if slice_hosts > 1:
        duty = f"{_DUTY}: it runs on each of the {slice_hosts} hosts of the slice"
    return (duty,)


def describe_preemption(task: ExportTask) -> tuple[str, ...]:
    """Return the effect of a preempted spot pod on the others, if no engine replaces it; else empty."""
    several = task.hosts * count_slice_hosts(task.offer.accelerator, task.devices) > 1
    if not several or task.offer.purchase != "spot":
        return ()
    return ("a pod that fails, or whose spot machine is preempted, ends the run on all machines",)


def require_gpu_hosts(task: ExportTask, *, engine: str) -> None:
    """Raise NoAnswerError for several TPU slices, which find one another without these variables."""
    if task.hosts > 1 and task.offer.accelerator.startswith("TPU"):
        raise NoAnswerError(
            f"cannot export {task.hosts} slices of {task.offer.instance_type} to {engine}: only machines with "
            "GPUs or CPUs are joined",
            hint="choose another offer: `--rank N`, or a larger slice",
        )
