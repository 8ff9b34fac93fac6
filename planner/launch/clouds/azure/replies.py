"""Azure Resource Manager over HTTPS: one request per call; replies in canonical spelling, errors by their code."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property, partial
from importlib.util import find_spec
from typing import Any

import requests

from ...core.api_call import CloudError, ErrorKind, look_up
from ...core.cloud_adapter import CloudMachine, Leftover, MachineRef, MachineState
from ...core.request import TAG_RUN, parse_owner_tags, parse_tags
from ..base import CONSOLE_BYTES, find_status_kind, load_error_kinds
from ..rest import TIMEOUT_S, RestAccess
from .attempt import DATE, build_group_removal

_CASELESS = {"targetResourceId", "roleDefinitionId", "resourceId", "vmId"}
_DATES = {"deadline"}


def normalize_reply(value: Any, key: str = "") -> Any:
    """Return an answer, the value of a `key`, with paths and ids in lower case and dates in UTC, to the second.

    A date without an offset is unchanged.

    Example:
        >>> normalize_reply({"targetResourceId": "/subscriptions/S/resourceGroups/G", "status": "Enabled"})
        {'targetResourceId': '/subscriptions/s/resourcegroups/g', 'status': 'Enabled'}
        >>> normalize_reply({"deadline": "2026-11-21T14:01:00.0000000+01:00"})
        {'deadline': '2026-11-21T13:01:00Z'}
    """
    if isinstance(value, list):
        return [normalize_reply(item) for item in value]
    if isinstance(value, Mapping):
        return {name: normalize_reply(inner, name) for name, inner in value.items()}
    if key in _CASELESS and isinstance(value, str):
        return value.lower()
    if key in _DATES and isinstance(value, str):
        with suppress(ValueError):
            date = datetime.fromisoformat(value)
            return value if date.tzinfo is None else date.astimezone(UTC).strftime(DATE)
    return value


_KIND_OF = load_error_kinds("azure")
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
PART_BYTES, MOST_PARTS = 4096, 4096  # of a console


class AzureRest(RestAccess):
    """Calls of Azure Resource Manager, and the cloud's clock."""

    folder, making = "azure", "PUT"
    parse_response = staticmethod(parse_error_response)

    def missing(self) -> str:
        """Return the reason why Azure cannot be called from here; empty if it can. Sends nothing."""
        if find_spec("azure") is None or find_spec("azure.identity") is None:
            return "azure-identity is not installed: `pip install 'gpuplan[azure]'`"
        named = ("AZURE_CLIENT_ID", "IDENTITY_ENDPOINT", "MSI_ENDPOINT", "AZURE_FEDERATED_TOKEN_FILE")
        if not any(os.environ.get(name) for name in named) and shutil.which("az") is None:
            return NO_CREDENTIALS
        return ""

    @cached_property
    def session(self) -> requests.Session:
        """Session that signs each request with a token."""
        from azure.identity import DefaultAzureCredential, get_bearer_token_provider

        logging.getLogger("azure.identity").setLevel(logging.ERROR)  # its attempts are summarized in one line
        # A configured authority is used without a discovery request to another server.
        named = bool(os.environ.get("AZURE_AUTHORITY_HOST"))
        credential = DefaultAzureCredential(disable_instance_discovery=named)
        session = requests.Session()
        session.auth = partial(_sign, get_bearer_token_provider(credential, f"{ENDPOINT}/.default"))
        return session

    def find_endpoint(self, service: str) -> str:
        return os.environ.get(ENDPOINT_VARIABLE, ENDPOINT)

    def parse_error(self, error: Exception) -> CloudError | None:
        from azure.core.exceptions import AzureError, ClientAuthenticationError

        if isinstance(error, ClientAuthenticationError):
            return CloudError(ErrorKind.CREDENTIALS, type(error).__name__, _without_lists(str(error)))
        if isinstance(error, AzureError):  # no token
            return CloudError(ErrorKind.UNKNOWN, type(error).__name__, str(error))
        return super().parse_error(error)

    def pages(self, service: str, operation: str, params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield all rows of a list, following `nextLink`."""
        reply = self.send(service, operation, params)
        while True:
            yield from reply.get("value", [])
            if not reply.get("nextLink"):
                return
            reply = self.exchange("GET", reply["nextLink"])

    def read_end(self, url: str) -> str:
        """Return the end of a file in storage, read without credentials: its address is signed."""
        if not url.startswith("https://"):
            raise CloudError(ErrorKind.UNKNOWN, "Address", "the console's address is not HTTPS")
        end = b""
        try:
            with requests.get(url, stream=True, timeout=TIMEOUT_S) as answer:
                answer.raise_for_status()
                for part in itertools.islice(answer.iter_content(PART_BYTES), MOST_PARTS):
                    end = (end + part)[-CONSOLE_BYTES:]
        except requests.RequestException as error:
            raise CloudError(ErrorKind.UNKNOWN, type(error).__name__, str(error)) from error
        return end.decode(errors="replace")


def _sign(token: Callable[[], str], request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Add a token to a request, which has to be over TLS."""
    if not str(request.url).startswith("https://"):
        raise CloudError(ErrorKind.UNKNOWN, "Address", f"{request.url} is not HTTPS: no token is sent there")
    request.headers["Authorization"] = f"Bearer {token()}"
    return request


def _without_lists(message: str) -> str:
    """Return the reason of an authentication failure in one line; `azure-identity` lists all its attempts.

    Example:
        >>> _without_lists("AADSTS7000215: Invalid client secret provided.\\nTrace ID: 1")
        'AADSTS7000215: Invalid client secret provided.'
    """
    if "Attempted credentials" in message:
        return NO_CREDENTIALS
    return message.strip().partition("\n")[0]
