"""Azure Resource Manager over HTTPS: one request per call, and the cloud's clock.

Credentials come from `azure-identity` (environment, managed identity, `az login`). The retries of Azure's pipeline
are disabled.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

from ...core.api_call import CloudError, ErrorKind
from ...core.clock import ServerDateClock
from ..base import read_answer
from .replies import parse_error_response

ENDPOINT = "https://management.azure.com"
ENDPOINT_VARIABLE = "GPUPLAN_ENDPOINT_AZURE_ARM"
NO_CREDENTIALS = (
    "no credentials for Azure: `az login`, or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET"
)
CONNECT_S, READ_S = 10.0, 60.0
_GROUP = "/subscriptions/{subscription}/resourceGroups/{group}"
_VM = f"{_GROUP}/providers/Microsoft.Compute/virtualMachines"
_NETWORK = f"{_GROUP}/providers/Microsoft.Network"
_ROLE = f"{_VM}/{{vm}}/providers/Microsoft.Authorization/roleAssignments/{{name}}"
_SCHEDULE = f"{_GROUP}/providers/Microsoft.DevTestLab/schedules/{{name}}"
_ORDERS = "/subscriptions/{subscription}/providers/Microsoft.ComputeSchedule/locations/{location}"
_COMPUTE, _NET, _RESOURCES = "2026-04-01", "2026-03-01", "2025-04-01"
_ROLES, _LAB, _DATES = "2022-04-01", "2018-09-15", "2025-05-01"
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
    "compute.virtualMachines.createOrUpdate": ("PUT", f"{_VM}/{{name}}", _COMPUTE),
    "compute.virtualMachines.get": ("GET", f"{_VM}/{{name}}", _COMPUTE),
    "compute.virtualMachines.delete": ("DELETE", f"{_VM}/{{name}}", _COMPUTE),
    "compute.virtualMachines.listAll": (
        "GET", "/subscriptions/{subscription}/providers/Microsoft.Compute/virtualMachines", _COMPUTE,
    ),
    "authorization.roleAssignments.create": ("PUT", _ROLE, _ROLES),
    "authorization.roleAssignments.get": ("GET", _ROLE, _ROLES),
    "devtestlabs.globalSchedules.createOrUpdate": ("PUT", _SCHEDULE, _LAB),
    "devtestlabs.globalSchedules.get": ("GET", _SCHEDULE, _LAB),
    "computeschedule.virtualMachinesSubmitDeallocate": (
        "POST", f"{_ORDERS}/virtualMachinesSubmitDeallocate", _DATES,
    ),
    "computeschedule.virtualMachinesGetOperationStatus": (
        "POST", f"{_ORDERS}/virtualMachinesGetOperationStatus", _DATES,
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
        """Send one call once and return its reply.

        Raises:
            CloudError: The call failed.
        """
        verb, template, version = METHODS[f"{service}.{operation}"]
        named = {name: value for name, value in params.items() if name not in {"body", "headers"}}
        query = {name: value for name, value in named.items() if f"{{{name}}}" not in template}
        url = os.environ.get(ENDPOINT_VARIABLE, ENDPOINT) + template.format(**named)
        return self._exchange(
            verb,
            url,
            query={"api-version": version, **query},
            body=params.get("body"),
            headers=params.get("headers", {}),
        )

    def pages(self, service: str, operation: str, params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield all rows of a list, following `nextLink`."""
        reply = self.send(service, operation, params)
        while True:
            yield from reply.get("value", [])
            if not reply.get("nextLink"):
                return
            reply = self._exchange("GET", reply["nextLink"])

    def _exchange(
        self,
        verb: str,
        url: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Send a request once; a missing answer is an unknown outcome."""
        from azure.core.exceptions import AzureError, ClientAuthenticationError
        from azure.core.rest import HttpRequest

        request = HttpRequest(verb, url, params=dict(query or {}), headers=dict(headers or {}), json=body)
        try:
            answer = self._pipeline().send_request(request)
            text = answer.text()
        except ClientAuthenticationError as error:
            raise CloudError(
                ErrorKind.CREDENTIALS, type(error).__name__, _without_lists(str(error))
            ) from error
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

            logging.getLogger("azure.identity").setLevel(
                logging.ERROR
            )  # its attempts are summarized in one line
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
