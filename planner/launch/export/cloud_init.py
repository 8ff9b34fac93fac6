"""Export to a document of cloud-init (https://docs.cloud-init.io), for machines started by other means."""

from __future__ import annotations

from ..clouds.aws.options import DLAMI
from ..clouds.google.zones import list_zones, machine_type
from ..prepare.shell import quote
from .machine import HOME, MACHINE_LIMITS, build_machine_script, build_power_off_timer, describe_script_end
from .task import EngineDocument, ExportTask

PROVIDERS = ("aws", "gcp")  # where a machine that powers itself off costs no more than its disk
SCRIPT = f"{HOME}/run.sh"
WAIT_S = 60
# Ubuntu with NVIDIA's driver, as https://cloud.google.com/ai-hypercomputer/docs/software-stack#os-image lists it;
# that it has cloud-init, as Google's other images of Ubuntu, is [unverified].
UBUNTU = "ubuntu-accelerator-2404-amd64-with-nvidia-570 --image-project=ubuntu-os-accelerator-images"


def build_cloud_config(task: ExportTask) -> EngineDocument:
    """Return the document: a timer, the script, and power off at its end."""
    task.require_source("git", engine="cloud-init")
    task.require_no_tpu(engine="cloud-init")
    timer = f"sleep {task.offer.cap_s}; systemctl poweroff"
    script = build_machine_script(task, timer=build_power_off_timer(task))
    document = {
        "bootcmd": [f"setsid bash -c {quote(timer)} > /dev/null 2>&1 &"],
        "packages": ["git", "python3-venv"],
        "write_files": [{"path": SCRIPT, "permissions": "0700", "content": script}],
        "runcmd": [["bash", SCRIPT]],
        "power_state": {"mode": "poweroff", "delay": "now", "timeout": WAIT_S, "condition": True},
    }
    apply, stop, closed = _START[task.provider](task)
    return EngineDocument(
        document=document,
        header="#cloud-config",
        apply=apply,
        stop=stop,
        stops=(
            f"a timer of the first boot stage powers the machine off after {task.offer.cap_s} s (`bootcmd`)",
            *describe_script_end(task),
            "cloud-init powers the machine off when its last stage is over (`power_state`)",
            *closed,
        ),
        open=(
            "a machine that hangs before cloud-init runs has no timer of its own",
            "another image must have cloud-init, Python and NVIDIA's driver",
            *MACHINE_LIMITS,
        ),
    )


def _start_on_aws(task: ExportTask) -> tuple[str, str, tuple[str, ...]]:
    """Return commands that start and end an instance, and what ends it besides."""
    offer = task.offer
    spot = " --instance-market-options MarketType=spot" if offer.purchase == "spot" else ""
    tags = f"ResourceType=instance,Tags=[{{Key=Name,Value={task.name}}}]"
    start = (
        f"aws ec2 run-instances --region {quote(offer.region)} --instance-type {quote(offer.instance_type)} "
        f"--image-id resolve:ssm:{DLAMI} --instance-initiated-shutdown-behavior terminate{spot} "
        f"--tag-specifications {quote(tags)} --user-data file://FILE"
    )
    stop = (
        f"aws ec2 describe-instances --region {quote(offer.region)} --filters Name=tag:Name,Values={task.name} "
        "--query Reservations[].Instances[].InstanceId --output text | "
        f"xargs aws ec2 terminate-instances --region {quote(offer.region)} --instance-ids"
    )
    return start, stop, ("powering off terminates the instance (`--instance-initiated-shutdown-behavior`)",)


def _start_on_google(task: ExportTask) -> tuple[str, str, tuple[str, ...]]:
    """Return commands that start and delete a machine, and what ends it besides."""
    offer = task.offer
    kind, attached = machine_type(offer.instance_type)
    zone = list_zones(offer.region)[0]
    flags = [
        f"--zone={zone} --machine-type={quote(kind)} --maintenance-policy=TERMINATE",
        f"--provisioning-model={'SPOT' if offer.purchase == 'spot' else 'STANDARD'}",
        f"--max-run-duration={offer.cap_s}s --instance-termination-action=DELETE",
        f"--accelerator=type={attached[0]},count={attached[1]}" if attached else "",
        f"--boot-disk-size={task.disk_gb}GB --image-family={UBUNTU} --metadata-from-file=user-data=FILE",
    ]
    start = f"gcloud compute instances create {task.name} {' '.join(filter(None, flags))}"
    stop = f"gcloud compute instances delete {task.name} --zone={zone} --quiet"
    return start, stop, (f"Compute Engine deletes it {offer.cap_s} s after its start (`--max-run-duration`)",)


_START = {"aws": _start_on_aws, "gcp": _start_on_google}
