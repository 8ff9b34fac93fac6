"""Azure Resource Manager over HTTPS: one request per call; replies in canonical spelling, errors by their code."""

from __future__ import annotations

import importlib.util
import itertools
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from ...core.api_call import CloudError, ErrorKind, look_up
from ...core.clock import ServerDateClock
from ...core.cloud_adapter import CloudMachine, Leftover, MachineRef, MachineState
from ...core.request import TAG_RUN, parse_owner_tags, parse_tags
from ..base import CONSOLE_BYTES, find_status_kind, index_codes, read_answer
from .caps import DATE
from .network import build_group_removal

_CASELESS = {"targetResourceId", "roleDefinitionId", "resourceId", "vmId"}
_DATES = {"deadline"}


def normalize_reply(value: Any) -> Any:
    """Return an answer with paths and ids in lower case and dates in UTC, to the second.

    Example:
        >>> normalize_reply({"targetResourceId": "/subscriptions/S/resourceGroups/G", "status": "Enabled"})
        {'targetResourceId': '/subscriptions/s/resourcegroups/g', 'status': 'Enabled'}
        >>> normalize_reply({"deadline": "2026-11-21T14:01:00.0000000+01:00"})
        {'deadline': '2026-11-21T13:01:00Z'}
    """
    if isinstance(value, list):
        return [normalize_reply(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {key: _field(key, inner) for key, inner in value.items()}


def _field(key: str, value: Any) -> Any:
    """Return a normalized field; a date without an offset is unchanged."""
    if key in _CASELESS and isinstance(value, str):
        return value.lower()
    if key not in _DATES or not isinstance(value, str):
        return normalize_reply(value)
    try:
        date = datetime.fromisoformat(value)
    except ValueError:
        return value
    return value if date.tzinfo is None else date.astimezone(UTC).strftime(DATE)


_CODES = {
    ErrorKind.CAPACITY: """
        SkuNotAvailable AllocationFailed ZonalAllocationFailed OverconstrainedAllocationRequest
        OverconstrainedZonalAllocationRequest LocationNotAvailableForResourceType
        AvailabilityZoneNotSupported LowPriorityCapacityNotAvailable
    """,
    ErrorKind.QUOTA: "QuotaExceeded ResourceQuotaExceeded PublicIPCountLimitReached CoreQuotaExceeded",
    ErrorKind.CREDENTIALS: """
        AuthenticationFailed AuthorizationFailed ExpiredAuthenticationToken InvalidAuthenticationToken
        InvalidAuthenticationTokenTenant LinkedAuthorizationFailed SubscriptionNotFound DisabledSubscription
        ReadOnlyDisabledSubscription
    """,
    ErrorKind.THROTTLED: "TooManyRequests SubscriptionRequestsThrottled OperationNotAllowedThrottled",
    ErrorKind.TRANSIENT: """
        AnotherOperationInProgress ReferencedResourceNotProvisioned RetryableError PrincipalNotFound
        Conflict
    """,
    # The group is being deleted, or the interface was deleted with its machine: the attempt is over.
    ErrorKind.SPENT_TOKEN: "ResourceGroupBeingDeleted ResourceGroupNotFound InvalidResourceReference",
    ErrorKind.EXISTS: "ConditionNotMet PreconditionFailed RoleAssignmentExists",
}
_KIND_OF = index_codes(_CODES)
_GIVEN_BACK = {"PowerState/deallocating", "PowerState/deallocated", "PowerState/stopping", "PowerState/stopped"}


def parse_error_response(status: int, body: Any, *, makes: bool) -> CloudError:
    """Return the CloudError of an error response; if the call `makes` a thing, a dependency of it is not found."""
    error = look_up(body, "error") if isinstance(body, Mapping) else None
    if not isinstance(error, Mapping):
        return CloudError(_by_status(status, makes=makes), f"HTTP {status}", "")
    code, message = str(error.get("code") or status), " ".join(str(error.get("message", "")).split())
    kind = ErrorKind.THROTTLED if status == 429 else _named(code, message) or _by_status(status, makes=makes)
    if kind is ErrorKind.SPENT_TOKEN and not makes:
        kind = ErrorKind.ABSENT
    return CloudError(kind, code, message, scope=_scope(message))


def parse_machine_error(reply: Mapping[str, Any]) -> CloudError | None:
    """Return the CloudError of a machine that failed (`ProvisioningState/failed/REASON`) or ended, or None."""
    statuses = look_up(reply, "properties.instanceView.statuses") or []
    codes = {str(one.get("code")): one for one in statuses}
    failed = next((code for code in codes if code.startswith("ProvisioningState/failed")), None)
    if failed:
        reason = failed.split("/")[2] if failed.count("/") > 1 else "ProvisioningFailed"
        message = " ".join(str(codes[failed].get("message", "")).split())
        kind = _named(reason, message) or ErrorKind.CAPACITY
        return CloudError(kind, reason, message, scope=_scope(message))
    if look_up(reply, "properties.provisioningState") == "Deleting" or _GIVEN_BACK & codes.keys():
        return CloudError(ErrorKind.SPENT_TOKEN, "Ended", "the machine ended while it started")
    return None


def parse_registration_error(reply: Mapping[str, Any]) -> CloudError | None:
    """Return the CloudError of a service that the subscription has not registered, or None."""
    state, namespace = reply.get("registrationState"), reply.get("namespace")
    if state == "Registered":
        return None
    return CloudError(
        ErrorKind.INVALID,
        "MissingSubscriptionRegistration",
        f"{namespace} is {state}: `az provider register --namespace {namespace}`",
    )


def _named(code: str, message: str) -> ErrorKind | None:
    """Return the kind of an unambiguous code, or None; a quota may be reported as `OperationNotAllowed`."""
    if code in {"OperationNotAllowed", "Forbidden", "BadRequest"} and "quota" in message.lower():
        return ErrorKind.QUOTA
    return _KIND_OF.get(code)


def _by_status(status: int, *, makes: bool) -> ErrorKind:
    absent = ErrorKind.SPENT_TOKEN if makes else ErrorKind.ABSENT
    return find_status_kind(status, {404: absent, 412: ErrorKind.EXISTS})


def _scope(message: str) -> str:
    """Return the scope of a quota: the region, or the account for limits of free subscriptions."""
    return "account" if "free trial" in message.lower() else "region"


# A machine that is shut down but allocated (`stopped`) is billed in full, so it counts as running.
_POWER: dict[str, MachineState] = {
    "PowerState/starting": "starting", "PowerState/running": "running", "PowerState/stopping": "running",
    "PowerState/stopped": "running", "PowerState/deallocating": "ending", "PowerState/deallocated": "stopped",
}  # fmt: skip
_PROVISIONING: dict[str, MachineState] = {"Deleting": "ending", "Failed": "stopped", "Succeeded": "running"}


def is_ours(row: Mapping[str, Any]) -> bool:
    """Whether a machine or a group has the tags of a launch."""
    return TAG_RUN in (row.get("tags") or {})


def is_same(machine: MachineRef, row: Mapping[str, Any]) -> bool:
    """Whether a row is the recorded machine, not another of its name, which is the id in older records."""
    return machine.id in {_id(row), str(row["name"]).lower()}


def parse_machine(row: Mapping[str, Any], *, seen_at: datetime) -> CloudMachine:
    """Return a machine by its `vmId`, which is unique, unlike names; without a view, in its provisioning state."""
    tags: Mapping[str, str] = row.get("tags") or {}
    parts = str(row["id"]).split("/")
    started_at = datetime.fromisoformat(str(look_up(row, "properties.timeCreated"))).astimezone(UTC)
    zones = row.get("zones") or []
    return CloudMachine(
        id=_id(row),
        provider="azure",
        region=str(row["location"]).replace(" ", "").lower(),
        zone=zones[0] if zones else None,
        instance_type=str(look_up(row, "properties.hardwareProfile.vmSize")),
        purchase="spot" if look_up(row, "properties.priority") == "Spot" else "on_demand",
        state=_state(row),
        started_at=started_at,
        seen_at=max(seen_at, started_at),
        **parse_tags(tags, started_at=started_at),
        details={"subscription": parts[2].lower(), "group": parts[4].lower(), "name": parts[8].lower()},
    )


def parse_leftover(row: Mapping[str, Any]) -> Leftover:
    tags: Mapping[str, str] = row["tags"]
    region = str(row["location"]).replace(" ", "").lower()
    place = {"subscription": str(row["id"]).split("/")[2].lower(), "group": str(row["name"]).lower()}
    return Leftover(
        kind="resource group",
        id=place["group"],
        region=region,
        **parse_owner_tags(tags),
        undo=build_group_removal(place, region),
    )


def _id(row: Mapping[str, Any]) -> str:
    """Return the `vmId` of a machine; its name without one."""
    return str(look_up(row, "properties.vmId") or row["name"]).lower()


def _state(row: Mapping[str, Any]) -> MachineState:
    """Return the state of a machine by its billing."""
    provisioning = str(look_up(row, "properties.provisioningState"))
    if provisioning == "Deleting":
        return "ending"
    for status in look_up(row, "properties.instanceView.statuses") or []:
        if status.get("code") in _POWER:
            return _POWER[status["code"]]
    return _PROVISIONING.get(provisioning, "starting")


ENDPOINT = "https://management.azure.com"
ENDPOINT_VARIABLE = "GPUPLAN_ENDPOINT_AZURE_ARM"
NO_CREDENTIALS = (
    "no credentials for Azure: `az login`, or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET"
)
CONNECT_S, READ_S = 10.0, 60.0
MOST_PARTS = 4096  # of a console, of 4 KiB
_GROUP = "/subscriptions/{subscription}/resourceGroups/{group}"
_VMS = "providers/Microsoft.Compute/virtualMachines"
_VM = f"{_GROUP}/{_VMS}/{{name}}"
_NETWORK = f"{_GROUP}/providers/Microsoft.Network"
_ROLE = f"{_GROUP}/{_VMS}/{{vm}}/providers/Microsoft.Authorization/roleAssignments/{{name}}"
_SCHEDULE = f"{_GROUP}/providers/Microsoft.DevTestLab/schedules/{{name}}"
_ORDERS = "/subscriptions/{subscription}/providers/Microsoft.ComputeSchedule/locations/{location}"
_COMPUTE, _NET, _RESOURCES = "2026-04-01", "2026-03-01", "2025-04-01"
_ROLES, _LAB, _COMPUTE_SCHEDULE = "2022-04-01", "2018-09-15", "2025-05-01"
# Verb, path and API version of each method. Parameters that are not in the path, `body` or `headers` go into the
# query.
METHODS = {
    "resources.providers.get": ("GET", "/subscriptions/{subscription}/providers/{namespace}", _RESOURCES),
    "resources.resourceGroups.list": ("GET", "/subscriptions/{subscription}/resourcegroups", _RESOURCES),
    "resources.resourceGroups.createOrUpdate": ("PUT", _GROUP, _RESOURCES),
    "resources.resourceGroups.get": ("GET", _GROUP, _RESOURCES),
    "resources.resourceGroups.delete": ("DELETE", _GROUP, _RESOURCES),
    "network.networkSecurityGroups.createOrUpdate": ("PUT", f"{_NETWORK}/networkSecurityGroups/{{name}}", _NET),
    "network.publicIPAddresses.createOrUpdate": ("PUT", f"{_NETWORK}/publicIPAddresses/{{name}}", _NET),
    "network.virtualNetworks.createOrUpdate": ("PUT", f"{_NETWORK}/virtualNetworks/{{name}}", _NET),
    "network.networkInterfaces.createOrUpdate": ("PUT", f"{_NETWORK}/networkInterfaces/{{name}}", _NET),
    "network.networkInterfaces.get": ("GET", f"{_NETWORK}/networkInterfaces/{{name}}", _NET),
    "compute.virtualMachines.createOrUpdate": ("PUT", _VM, _COMPUTE),
    "compute.virtualMachines.get": ("GET", _VM, _COMPUTE),
    "compute.virtualMachines.retrieveBootDiagnosticsData": (
        "POST", f"{_VM}/retrieveBootDiagnosticsData", _COMPUTE,
    ),
    "compute.virtualMachines.delete": ("DELETE", _VM, _COMPUTE),
    "compute.virtualMachines.listAll": ("GET", f"/subscriptions/{{subscription}}/{_VMS}", _COMPUTE),
    "authorization.roleAssignments.create": ("PUT", _ROLE, _ROLES),
    "authorization.roleAssignments.get": ("GET", _ROLE, _ROLES),
    "devtestlabs.globalSchedules.createOrUpdate": ("PUT", _SCHEDULE, _LAB),
    "devtestlabs.globalSchedules.get": ("GET", _SCHEDULE, _LAB),
    "computeschedule.virtualMachinesSubmitDeallocate": (
        "POST", f"{_ORDERS}/virtualMachinesSubmitDeallocate", _COMPUTE_SCHEDULE,
    ),
    "computeschedule.virtualMachinesGetOperationStatus": (
        "POST", f"{_ORDERS}/virtualMachinesGetOperationStatus", _COMPUTE_SCHEDULE,
    ),
}  # fmt: skip


class AzureRest:
    """A pipeline with credentials, and the cloud's clock."""

    def __init__(self) -> None:
        self._client: Any = None
        self.clock = ServerDateClock()

    def missing(self) -> str:
        """Return the reason why Azure cannot be called from here; empty if it can. Sends nothing."""
        if importlib.util.find_spec("azure") is None or importlib.util.find_spec("azure.identity") is None:
            return "azure-identity is not installed: `pip install 'gpuplan[azure]'`"
        named = ("AZURE_CLIENT_ID", "IDENTITY_ENDPOINT", "MSI_ENDPOINT", "AZURE_FEDERATED_TOKEN_FILE")
        if not any(os.environ.get(name) for name in named) and shutil.which("az") is None:
            return NO_CREDENTIALS
        return ""

    def send(self, service: str, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send one call once and return its reply, or raise CloudError."""
        verb, template, version = METHODS[f"{service}.{operation}"]
        named = {name: value for name, value in params.items() if name not in {"body", "headers"}}
        query = {name: value for name, value in named.items() if f"{{{name}}}" not in template}
        url = os.environ.get(ENDPOINT_VARIABLE, ENDPOINT) + template.format(**named)
        asked = {"params": {"api-version": version, **query}, "json": params.get("body")}
        return self._exchange(verb, url, **asked, headers=params.get("headers", {}))

    def pages(self, service: str, operation: str, params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield all rows of a list, following `nextLink`."""
        reply = self.send(service, operation, params)
        while True:
            yield from reply.get("value", [])
            if not reply.get("nextLink"):
                return
            reply = self._exchange("GET", reply["nextLink"])

    def read_end(self, url: str) -> str:
        """Return the end of a file in storage, read without credentials: its address is signed."""
        from azure.core import PipelineClient
        from azure.core.exceptions import AzureError
        from azure.core.pipeline.transport import RequestsTransport
        from azure.core.rest import HttpRequest

        if not url.startswith("https://"):
            raise CloudError(ErrorKind.UNKNOWN, "Address", "the console's address is not HTTPS")
        transport = RequestsTransport(connection_timeout=CONNECT_S, read_timeout=READ_S)
        end = b""
        try:
            with PipelineClient(url, policies=[], transport=transport) as client:
                answer = client.send_request(HttpRequest("GET", url), stream=True)
                answer.raise_for_status()
                for part in itertools.islice(answer.iter_bytes(), MOST_PARTS):
                    end = (end + part)[-CONSOLE_BYTES:]
        except AzureError as error:
            raise CloudError(ErrorKind.UNKNOWN, type(error).__name__, str(error)) from error
        return end.decode(errors="replace")

    def _exchange(self, verb: str, url: str, **asked: Any) -> dict[str, Any]:
        """Send a request once; a missing answer is an unknown outcome."""
        from azure.core.exceptions import AzureError, ClientAuthenticationError
        from azure.core.rest import HttpRequest

        try:
            answer = self._pipeline().send_request(HttpRequest(verb, url, **asked))
            text = answer.text()
        except ClientAuthenticationError as error:
            raise CloudError(ErrorKind.CREDENTIALS, type(error).__name__, _without_lists(str(error))) from error
        except AzureError as error:
            raise CloudError(ErrorKind.UNKNOWN, type(error).__name__, str(error)) from error
        self.clock.note(answer.headers.get("Date"))
        return read_answer(answer.status_code, text, error_of=parse_error_response, makes=verb == "PUT")

    def _pipeline(self) -> Any:
        """Return the pipeline: a token, one request, no repetition, no redirection."""
        if self._client is None:
            from azure.core import PipelineClient
            from azure.core.pipeline.policies import BearerTokenCredentialPolicy
            from azure.core.pipeline.transport import RequestsTransport
            from azure.identity import DefaultAzureCredential

            logging.getLogger("azure.identity").setLevel(logging.ERROR)  # its attempts are summarized in one line
            # A configured authority is used without a discovery request to another server.
            named = bool(os.environ.get("AZURE_AUTHORITY_HOST"))
            credential = DefaultAzureCredential(disable_instance_discovery=named)
            policies = [BearerTokenCredentialPolicy(credential, f"{ENDPOINT}/.default")]
            transport = RequestsTransport(connection_timeout=CONNECT_S, read_timeout=READ_S)
            self._client = PipelineClient(ENDPOINT, policies=policies, transport=transport)
        return self._client


def _without_lists(message: str) -> str:
    """Return the reason of an authentication failure in one line; `azure-identity` lists all its attempts.

    Example:
        >>> _without_lists("AADSTS7000215: Invalid client secret provided.\\nTrace ID: 1")
        'AADSTS7000215: Invalid client secret provided.'
    """
    if "Attempted credentials" in message:
        return NO_CREDENTIALS
    return message.strip().partition("\n")[0]
