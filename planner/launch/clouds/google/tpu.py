"""Calls that start and end a TPU slice as a queued resource, and parsing of its description.

The cap is part of the create request: `runDuration.maxRunDuration`, which only the version `v2alpha1` has. A
slice that shuts itself down is still billed, so there is no timer on the machine: the cloud's cap is the only
layer, and it is read back before the run counts as started.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from ....errors import UsageError
from ...core.api_call import look_up
from ...core.cloud_adapter import CloudMachine, MachineState
from ...core.launch_plan import Attempt, CapLayer
from ...core.request import TAG_RUN, LaunchCandidate, parse_tags
from ...core.startup import BootConfig, build_startup_script
from ..base import Draft
from .compute import ARMED_WITHIN_S, UNPROVEN, build_attempt, build_self_deletion
from .options import COPYING, GoogleOptions, parse_region, runtime_version

SERVICE = "tpu.v2alpha1"
QUEUED = "projects.locations.queuedResources"
LONGEST_S = 7 * 24 * 3600  # FLEX_START, https://cloud.google.com/tpu/docs/request-using-flex-start
PACKAGES = ("keras", "jax[tpu]")
CREATED_WITHIN_S = 900.0
_SINGLE_HOST = {"v2": 8, "v3": 8, "v4": 8, "v5p": 8, "v5litepod": 8, "v6e": 8}
_STATES: dict[str, MachineState] = {
    "ACTIVE": "running",
    "DELETING": "ending",
    "SUSPENDING": "ending",
    "SUSPENDED": "stopped",
    "FAILED": "stopped",
}


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
    call = partial(draft.call, service=SERVICE, region=draft.zone)
    get = partial(call, operation=f"{QUEUED}.get", params={"name": f"{parent}/queuedResources/{draft.name}"})
    find = get("machine", expects=ours, keeps={"id": "name", "started": "createTime"})
    params = {"parent": parent, "queuedResourceId": draft.name, "requestId": token, "body": _body(draft, parent)}
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


def _body(draft: Draft[GoogleOptions], parent: str) -> dict[str, Any]:
    candidate, chosen = draft.candidate, draft.chosen
    slice_name = candidate.instance_type.removeprefix("tpu-")
    script = build_startup_script(draft.request, candidate, draft.number, _boot(draft, parent))
    node: dict[str, Any] = {
        "acceleratorType": slice_name,
        "runtimeVersion": runtime_version(slice_name),
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


def _boot(draft: Draft[GoogleOptions], parent: str) -> BootConfig:
    """Return the parts of the start-up script for Cloud TPU: self-deletion, with a service account."""
    chosen, name = draft.chosen, f"{parent}/queuedResources/{draft.name}"
    delete = build_self_deletion(f"https://tpu.googleapis.com/v2alpha1/{name}?force=true")
    return BootConfig(
        timer=": runDuration is the timer, a shutdown does not end the billing of a TPU",
        end=delete if chosen.service_account else "true",
        packages=PACKAGES,
        bucket=chosen.bucket,
        **COPYING,
    )


def _require_startable(candidate: LaunchCandidate) -> None:
    """Raise UsageError for slices of several hosts and for too long caps."""
    generation, _, size = candidate.instance_type.removeprefix("tpu-").partition("-")
    if int(size or 0) > _SINGLE_HOST.get(generation, 0):
        raise UsageError(
            f"{candidate.instance_type} has several hosts, and gpuplan launches single machines",
            hint="export it: `gpuplan export plan.json --to skypilot`",
        )
    if candidate.cap_s > LONGEST_S:
        raise UsageError(
            f"a TPU's runDuration is {LONGEST_S} s at most, and the cap is {candidate.cap_s} s",
            hint="set `--max-hours 168` or less",
        )
