"""Calls that start and end a GPU machine of Compute Engine or a TPU slice, and parsing of their descriptions.

The cap of a machine is part of the insert request: `maxRunDuration` with `DELETE`, which works without client and
guest. It is armed when limit, action and time (`resourceStatus.scheduling.terminationTimestamp`) are read back as
requested. `STOP` is never used: a stopped machine pays for its disk, and loses its termination time
(https://cloud.google.com/compute/docs/instances/limit-vm-runtime).

A slice is a queued resource. Its cap is part of the create request: `runDuration.maxRunDuration`, which only the
version `v2alpha1` has. A slice that shuts itself down is still billed, so there is no timer on the machine: the
cloud's cap is the only layer, and it is read back before the run counts as started.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

from ....errors import UsageError
from ....offers.catalog import find_chosen_accelerator
from ....offers.rows import CPU
from ...core.api_call import Call, look_up
from ...core.cloud_adapter import CloudMachine, MachineState
from ...core.launch_plan import Attempt, CapLayer
from ...core.request import TAG_RUN, LaunchCandidate, parse_tags
from ...core.shell import READ_TOKEN, quote
from ...core.startup import BootConfig, build_startup_script
from ..base import PACKAGES, Draft, build_timer
from .options import COPYING, GoogleOptions, build_upload_calls, machine_type, parse_region, runtime_version

SERVICE = "compute.v1"
MADE_WITHIN_S = 900.0  # from the request to the end of its operation
TIMER_AFTER_S = 120  # the guest's timer follows the cloud's, as it only stops the machine
ARMED_WITHIN_S = 120.0  # from the end of that operation until the termination time is visible
START_WITHIN_S = 300  # from the request until the cloud starts counting; a later end is refused
ENDED_WITHIN_S = 300.0  # from the order to end until nothing is billed
SLACK_S = START_WITHIN_S + ENDED_WITHIN_S
TIME_FORMAT = "%Y-%m-%dT%H:%M:%S+00:00"
UNPROVEN = "tested against the discovery document only, not against the real cloud"
_STATES: dict[str, MachineState] = {  # the last three are those of a slice alone
    "PENDING": "starting", "PROVISIONING": "starting", "STAGING": "starting", "RUNNING": "running",
    "REPAIRING": "running", "PENDING_STOP": "ending", "STOPPING": "ending", "DEPROVISIONING": "ending",
    "SUSPENDING": "ending", "STOPPED": "stopped", "SUSPENDED": "stopped", "TERMINATED": "stopped",
    "ACTIVE": "running", "DELETING": "ending", "FAILED": "stopped",
}  # fmt: skip


def build_compute_attempt(draft: Draft[GoogleOptions]) -> Attempt:
    """Return the calls that start a GPU machine in a zone. Pure."""
    request, token = draft.request, draft.token
    place = {"project": draft.chosen.project, "zone": draft.zone}
    call = partial(draft.call, service=SERVICE, region=draft.zone)
    get = partial(call, operation="instances.get", params={**place, "instance": draft.name})
    ours = {f"labels.{TAG_RUN}": request.run, "labels.gpuplan-owner": request.owner}
    find = get("machine", keeps={"id": "id", "started": "creationTimestamp"}, expects=ours)
    params = {**place, "requestId": token, "instanceResource": _body(draft)}
    keeps = {"id": "targetId", "started": "insertTime"}
    more: dict[str, Any] = {"makes": "machine", "token": token, "keeps": keeps}
    insert = call("machine", operation="instances.insert", params=params, find=find, **more)
    params = {**place, "filter": f'clientOperationId = "{token}"'}
    done: dict[str, Any] = {"expects": {"items.0.status": "DONE"}, "patience_s": MADE_WITHIN_S}
    operation = call("created", operation="zoneOperations.list", params=params, **done)
    cap = get("cap", arms="max-run-duration", patience_s=ARMED_WITHIN_S, expects=_armed(draft.candidate))
    return build_attempt("compute", draft, [insert, operation, cap], _layers(draft.candidate.cap_s))


def build_attempt(
    kind: Literal["compute", "tpu"], draft: Draft[GoogleOptions], calls: list[Call], layers: tuple[CapLayer, ...]
) -> Attempt:
    """Return the attempt of a GPU machine's or a slice's calls, after the upload of a folder. Pure."""
    what, force = ("instances", "") if kind == "compute" else ("tpus queued-resources", " --force")
    project, zone = quote(draft.chosen.project), quote(draft.zone or "")
    return draft.attempt(
        [*build_upload_calls(draft), *calls],
        layers,
        stop_by_hand=f"gcloud compute {what} delete {quote(draft.name)} --project={project} --zone={zone}{force} "
        "--quiet",
        kind=kind,
        project=draft.chosen.project,
        name=draft.name,
    )


def parse_compute_machine(row: Mapping[str, Any], *, project: str, seen_at: datetime) -> CloudMachine:
    """Return a machine from the cloud's description."""
    labels = row.get("labels", {})
    zone = str(row["zone"]).rpartition("/")[2]
    started_at = datetime.fromisoformat(row["creationTimestamp"]).astimezone(UTC)
    spot = row.get("scheduling", {}).get("provisioningModel") == "SPOT"
    return CloudMachine(
        id=str(row["id"]),
        provider="gcp",
        region=parse_region(zone),
        zone=zone,
        instance_type=str(row["machineType"]).rpartition("/")[2],
        purchase="spot" if spot else "on_demand",
        state=_STATES.get(row["status"], "running"),
        started_at=started_at,
        seen_at=max(seen_at, started_at),
        **parse_tags(labels, started_at=started_at),
        details={"kind": "compute", "project": project, "name": str(row["name"])},
    )


def build_self_deletion(url: str) -> str:
    """Return the command with which a machine deletes itself, as its service account."""
    metadata = "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token"
    token = f"$(curl -sf -H 'Metadata-Flavor: Google' {metadata} | {READ_TOKEN})"
    return f'curl -sf -X DELETE -H "Authorization: Bearer {token}" {quote(url)} || true'


def _body(draft: Draft[GoogleOptions]) -> dict[str, Any]:
    chosen, zone = draft.chosen, draft.zone
    base, attached = machine_type(draft.candidate.instance_type)
    script = build_startup_script(draft.request, draft.candidate, draft.number, _boot(draft))
    metadata = {  # logins by the project's IAM, never by keys in metadata
        "block-project-ssh-keys": "TRUE",
        "enable-oslogin": "TRUE",
        "serial-port-enable": "FALSE",
        "install-nvidia-driver": "True",
        "startup-script": script,
    }
    # No firewall rule is added.
    interface: dict[str, Any] = {"network": f"projects/{chosen.project}/global/networks/{chosen.network}"}
    if chosen.has_address:
        interface["accessConfigs"] = [{"name": "out", "type": "ONE_TO_ONE_NAT"}]
    body: dict[str, Any] = {
        "name": draft.name,
        "machineType": f"zones/{zone}/machineTypes/{base}",
        "labels": draft.tags,
        "scheduling": _scheduling(draft.candidate),
        "disks": [_disk(draft, base)],
        "networkInterfaces": [interface],
        "metadata": {"items": [{"key": key, "value": value} for key, value in metadata.items()]},
        "shieldedInstanceConfig": {"enableVtpm": True, "enableIntegrityMonitoring": True},
        "serviceAccounts": [],
    }
    if chosen.service_account:
        names = ("devstorage.read_write", "compute")  # bucket access, self-deletion, within its IAM permissions
        scopes = [f"https://www.googleapis.com/auth/{name}" for name in names]
        body["serviceAccounts"] = [{"email": chosen.service_account, "scopes": scopes}]
    if attached:
        kind, count = attached
        accelerator = f"zones/{zone}/acceleratorTypes/{kind}"
        body["guestAccelerators"] = [{"acceleratorType": accelerator, "acceleratorCount": count}]
    return body


def _scheduling(candidate: LaunchCandidate) -> dict[str, Any]:
    """Return purchase option and cap; machines with GPUs cannot live-migrate."""
    return {
        "provisioningModel": "SPOT" if candidate.purchase == "spot" else "STANDARD",
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
        "maxRunDuration": {"seconds": str(candidate.cap_s)},
        "instanceTerminationAction": "DELETE",
    }


def _armed(candidate: LaunchCandidate) -> dict[str, Any]:
    """Return the description of a machine whose cap is armed.

    Compute Engine counts from the machine's start, at most `START_WITHIN_S` after the request.
    """
    wanted, latest_s = _scheduling(candidate), candidate.cap_s + START_WITHIN_S
    return {
        "id": {"$ref": "machine.id"},
        "scheduling.provisioningModel": wanted["provisioningModel"],
        "scheduling.maxRunDuration.seconds": wanted["maxRunDuration"]["seconds"],
        "scheduling.instanceTerminationAction": wanted["instanceTerminationAction"],
        "resourceStatus.scheduling.terminationTimestamp": {
            "$not_after": {"$time": {"from": "machine.started", "plus_s": latest_s, "format": TIME_FORMAT}}
        },
    }


# Machine series that take no Persistent Disk: C4, N4 and their variants (nextflow-io/nextflow#6841 on GitHub:
# N1 and N2 take no Hyperdisk), A4X (NVIDIA/aicr#2338), A3 Ultra (default of Vertex AI's DiskSpec);
# A4, G4 [unverified]. A3 High and Mega take both (skypilot-org/skypilot#5351).
_ON_HYPERDISK = ("a3-ultragpu-", "a4-", "a4x-", "g4-", "c4-", "c4a-", "c4d-", "n4-", "n4a-", "n4d-")


def find_disk_type(machine: str) -> str:
    """Return the disk type that a machine type boots from.

    Example:
        >>> find_disk_type("n1-standard-8"), find_disk_type("a4-highgpu-8g")
        ('pd-balanced', 'hyperdisk-balanced')
    """
    return "hyperdisk-balanced" if machine.startswith(_ON_HYPERDISK) else "pd-balanced"


def _disk(draft: Draft[GoogleOptions], machine: str) -> dict[str, Any]:
    """Return the disk, which is deleted with its machine."""
    start = {
        "sourceImage": draft.image,
        "diskType": f"zones/{draft.zone}/diskTypes/{find_disk_type(machine)}",
        "diskSizeGb": draft.chosen.disk_gb,
        "labels": draft.tags,
    }
    return {"boot": True, "autoDelete": True, "initializeParams": start}


def _boot(draft: Draft[GoogleOptions]) -> BootConfig:
    chosen = draft.chosen
    minutes = math.ceil((draft.candidate.cap_s + TIMER_AFTER_S) / 60)
    place = f"projects/{chosen.project}/zones/{draft.zone}/instances/{draft.name}"
    url = f"https://compute.googleapis.com/compute/v1/{place}"
    delete = f"{build_self_deletion(url)}; " if chosen.service_account else ""
    return BootConfig(
        timer=f"shutdown -P +{minutes}",
        end=f"{delete}shutdown -P now",
        packages=PACKAGES,
        bucket=chosen.bucket,
        **COPYING,
    )


def _layers(cap_s: int) -> tuple[CapLayer, ...]:
    timer_s = math.ceil((cap_s + TIMER_AFTER_S) / 60) * 60.0
    return (
        CapLayer(
            name="max-run-duration",
            where="cloud",
            fires_after_s=cap_s,
            how="Compute Engine deletes the machine and its disk; limit, action and time are read back "
            f"({UNPROVEN})",
        ),
        build_timer(
            timer_s,
            "`shutdown` in the first line of the start-up script; a stopped machine and its disk remain "
            f"({UNPROVEN})",
        ),
    )


TPU_SERVICE = "tpu.v2alpha1"
QUEUED = "projects.locations.queuedResources"
LONGEST_S = 7 * 24 * 3600  # FLEX_START, https://cloud.google.com/tpu/docs/request-using-flex-start
TPU_PACKAGES = ("keras", "jax[tpu]")
CREATED_WITHIN_S = 900.0


def is_tpu(instance_type: str) -> bool:
    """Whether a catalog name is a TPU slice."""
    return instance_type.startswith("tpu-")


def build_tpu_attempt(draft: Draft[GoogleOptions]) -> Attempt:
    """Return the calls that start a TPU slice in a zone. Pure."""
    request, candidate, chosen, token = draft.request, draft.candidate, draft.chosen, draft.token
    _require_startable(candidate)
    parent = f"projects/{chosen.project}/locations/{draft.zone}"
    node = "tpu.nodeSpec.0.node"
    ours = {f"{node}.labels.{TAG_RUN}": request.run, f"{node}.labels.gpuplan-owner": request.owner}
    call = partial(draft.call, service=TPU_SERVICE, region=draft.zone)
    get = partial(call, operation=f"{QUEUED}.get", params={"name": f"{parent}/queuedResources/{draft.name}"})
    find = get("machine", expects=ours, keeps={"id": "name", "started": "createTime"})
    params = {"parent": parent, "queuedResourceId": draft.name, "requestId": token, "body": _slice(draft, parent)}
    keeps = {"id": "metadata.target", "started": "metadata.createTime"}
    more: dict[str, Any] = {"makes": "machine", "token": token, "find": find, "keeps": keeps}
    create = call("machine", operation=f"{QUEUED}.create", params=params, **more)
    armed = {
        "name": {"$ref": "machine.id"},
        "runDuration.maxRunDuration": f"{candidate.cap_s}s",
        "provisioningModel": _provisioning_model(candidate),
    }
    cap = get("cap", arms="run-duration", patience_s=ARMED_WITHIN_S, expects=armed)
    patience_s = int(chosen.wait_s) + CREATED_WITHIN_S
    active = get("active", expects={"state.state": "ACTIVE"}, patience_s=patience_s)
    layer = CapLayer(
        name="run-duration",
        where="cloud",
        fires_after_s=candidate.cap_s,
        how=f"Cloud TPU deletes the slice; read back before the run counts as started ({UNPROVEN})",
    )
    return build_attempt("tpu", draft, [create, cap, active], (layer,))


def parse_tpu_machine(row: Mapping[str, Any], *, project: str, seen_at: datetime) -> CloudMachine:
    """Return a slice; its cap starts after the longest wait for capacity, which is free."""
    node = look_up(row, "tpu.nodeSpec.0.node") or {}
    labels = node.get("labels", {})
    zone = str(row["name"]).split("/")[3]
    started_at = datetime.fromisoformat(row["createTime"]).astimezone(UTC)
    waited_s = float((look_up(row, "queueingPolicy.validUntilDuration") or "0s").removesuffix("s"))
    spot = "spot" in row or row.get("provisioningModel") == "SPOT"
    return CloudMachine(
        id=str(row["name"]),
        provider="gcp",
        region=parse_region(zone),
        zone=zone,
        instance_type=f"tpu-{node.get('acceleratorType', '')}",
        purchase="spot" if spot else "on_demand",
        state=_STATES.get(str(look_up(row, "state.state")), "starting"),
        started_at=started_at,
        seen_at=max(seen_at, started_at),
        **parse_tags(labels, started_at=started_at, wait_s=waited_s),
        details={"kind": "tpu", "project": project, "name": str(row["name"]).rpartition("/")[2]},
    )


def _slice(draft: Draft[GoogleOptions], parent: str) -> dict[str, Any]:
    candidate, chosen = draft.candidate, draft.chosen
    slice_name = candidate.instance_type.removeprefix("tpu-")
    script = build_startup_script(draft.request, candidate, draft.number, _slice_boot(draft, parent))
    node: dict[str, Any] = {
        "acceleratorType": slice_name,
        "runtimeVersion": runtime_version(candidate.accelerator),
        "labels": draft.tags,
        "networkConfig": {"network": chosen.network, "enableExternalIps": chosen.has_address},
        "metadata": {"block-project-ssh-keys": "TRUE", "enable-oslogin": "TRUE", "startup-script": script},
    }
    if chosen.service_account:
        scope = ["https://www.googleapis.com/auth/cloud-platform"]  # the TPU API has no narrower scope
        node["serviceAccount"] = {"email": chosen.service_account, "scope": scope}
    return {
        "tpu": {"nodeSpec": [{"parent": parent, "nodeId": draft.name, "node": node}]},
        "runDuration": {"maxRunDuration": f"{candidate.cap_s}s"},
        "queueingPolicy": {"validUntilDuration": f"{chosen.wait_s}s"},
        "provisioningModel": _provisioning_model(candidate),
        **({"spot": {}} if candidate.purchase == "spot" else {}),
    }


def _provisioning_model(candidate: LaunchCandidate) -> str:
    return "SPOT" if candidate.purchase == "spot" else "FLEX_START"


def _slice_boot(draft: Draft[GoogleOptions], parent: str) -> BootConfig:
    """Return the parts of the start-up script for Cloud TPU: self-deletion, with a service account."""
    chosen, name = draft.chosen, f"{parent}/queuedResources/{draft.name}"
    delete = build_self_deletion(f"https://tpu.googleapis.com/v2alpha1/{name}?force=true")
    return BootConfig(
        timer=": runDuration is the timer, a shutdown does not end the billing of a TPU",
        end=delete if chosen.service_account else "true",
        packages=TPU_PACKAGES,
        bucket=chosen.bucket,
        **COPYING,
    )


def _require_startable(candidate: LaunchCandidate) -> None:
    """Raise UsageError for slices of several hosts and for too long caps."""
    known = find_chosen_accelerator(candidate.accelerator)
    if candidate.accelerator != CPU and candidate.devices > ((known and known.chips_per_host) or 0):
        raise UsageError(
            f"{candidate.instance_type} has several hosts, and gpuplan launches single machines",
            hint="export it: `gpuplan export plan.json --to skypilot`",
        )
    if candidate.cap_s > LONGEST_S:
        raise UsageError(
            f"a TPU's runDuration is {LONGEST_S} s at most, and the cap is {candidate.cap_s} s",
            hint="set `--max-hours 168` or less",
        )
