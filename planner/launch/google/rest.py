"""One call of Google's interfaces over HTTPS, sent once; credentials are the application default ones."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..aws.upload import archive
from ..cloud_time import CloudTime
from ..faults import CloudFault, FaultKind
from .faults import fault_of_answer, fault_of_operation

__all__ = ["METHODS", "GoogleRest"]

TIMEOUT_S = 60.0
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
# Endpoints follow gcloud's own variables; the defaults are `rootUrl` + `servicePath` of the discovery documents.
_ENDPOINTS = {
    "compute.v1": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "https://compute.googleapis.com/compute/v1/"),
    "tpu.v2alpha1": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU", "https://tpu.googleapis.com/"),
    "storage.v1": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", "https://storage.googleapis.com/storage/v1/"),
}
_VM = "projects/{project}/zones/{zone}/instances"
# Verb and path of each method, as in the discovery documents; what a path does not name goes into the query.
METHODS = {
    "compute.v1.instances.insert": ("POST", _VM),
    "compute.v1.instances.get": ("GET", f"{_VM}/{{instance}}"),
    "compute.v1.instances.delete": ("DELETE", f"{_VM}/{{instance}}"),
    "compute.v1.instances.aggregatedList": ("GET", "projects/{project}/aggregated/instances"),
    "compute.v1.zoneOperations.list": ("GET", "projects/{project}/zones/{zone}/operations"),
    "tpu.v2alpha1.projects.locations.queuedResources.create": ("POST", "v2alpha1/{parent}/queuedResources"),
    "tpu.v2alpha1.projects.locations.queuedResources.list": ("GET", "v2alpha1/{parent}/queuedResources"),
    "tpu.v2alpha1.projects.locations.queuedResources.get": ("GET", "v2alpha1/{name}"),
    "tpu.v2alpha1.projects.locations.queuedResources.delete": ("DELETE", "v2alpha1/{name}"),
    "tpu.v2alpha1.projects.locations.nodes.get": ("GET", "v2alpha1/{name}"),
    "storage.v1.objects.get": ("GET", "b/{bucket}/o/{object}"),
    "storage.v1.objects.insert": ("POST", "b/{bucket}/o"),
    "storage.v1.objects.delete": ("DELETE", "b/{bucket}/o/{object}"),
}


class GoogleRest:
    """A session with credentials and the cloud's clock."""

    def __init__(self) -> None:
        self._session: Any = None
        self.clock = CloudTime()

    def missing(self) -> str:
        """Return why nothing can be asked from here; empty when something can. Nobody is asked."""
        if importlib.util.find_spec("google.auth") is None:
            return "google-auth is not installed: `pip install 'gpuplan[gcp]'`"
        if not _has_credentials():
            return "no credentials for Google Cloud: `gcloud auth application-default login`"
        return ""

    def send(self, service: str, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send one call once and return its reply.

        Raises:
            CloudFault: For everything else.
        """
        verb, template = METHODS[f"{service}.{operation}"]
        named = {name: value for name, value in params.items() if name not in {"body", "media"}}
        query = {name: value for name, value in named.items() if f"{{{name}}}" not in template}
        variable, default = _ENDPOINTS[service]
        base, body = os.environ.get(variable, default), {"json": params.get("body")}
        if (
            "media" in params
        ):  # a simple upload: `mediaUpload.protocols.simple.path` of the discovery document
            base = base.removesuffix("storage/v1/") + "upload/storage/v1/"
            body = {"data": archive(params["media"]), "headers": {"Content-Type": "application/gzip"}}
        url = base + template.format(**named)
        status, text = self._exchange(verb, url, query=query, body=body)
        return self._read(status, text, makes=verb == "POST")

    def _exchange(
        self, verb: str, url: str, *, query: Mapping[str, Any], body: Mapping[str, Any]
    ) -> tuple[int, str]:
        """Send a request once; an answer that does not come is an unknown outcome."""
        import requests
        from google.auth.exceptions import DefaultCredentialsError, RefreshError, TransportError

        try:
            answer = self._authorized().request(
                verb, url, params=query, timeout=TIMEOUT_S, max_allowed_time=TIMEOUT_S, **body
            )
            text = answer.text
        except (DefaultCredentialsError, RefreshError) as error:
            raise CloudFault(FaultKind.CREDENTIALS, type(error).__name__, str(error)) from error
        except TransportError as error:  # the token was not to be had; the call itself was not sent
            raise CloudFault(FaultKind.TRANSIENT, type(error).__name__, str(error)) from error
        except requests.RequestException as error:
            raise CloudFault(FaultKind.UNKNOWN, type(error).__name__, str(error)) from error
        self.clock.note(answer.headers.get("Date"))
        return answer.status_code, text

    def _read(self, status: int, text: str, *, makes: bool) -> dict[str, Any]:
        """Return the JSON of an answer; CloudFault when it is an error, or not whole."""
        try:
            body = json.loads(text) if text else {}
        except ValueError:
            body = None
        if status >= 400:
            raise fault_of_answer(status, body, makes=makes)
        if not isinstance(body, dict):
            raise CloudFault(FaultKind.UNKNOWN, "GarbledAnswer", f"HTTP {status} without readable JSON")
        fault = fault_of_operation(body)
        if fault:
            raise fault
        return body

    def _authorized(self) -> Any:
        """Return the session; it renews its token by itself, and retries nothing else."""
        if self._session is None:
            import google.auth
            from google.auth.transport.requests import AuthorizedSession

            credentials, _ = google.auth.default(scopes=[SCOPE])
            self._session = AuthorizedSession(credentials)
        return self._session


def _has_credentials() -> bool:
    """Whether there can be credentials: a file that is named or in its place, or a machine of Google's."""
    if os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
        return True
    folder = Path(os.environ.get("CLOUDSDK_CONFIG", Path.home() / ".config" / "gcloud"))
    board = Path("/sys/class/dmi/id/product_name")
    on_google = board.exists() and "Google" in board.read_text(encoding="utf-8", errors="replace")
    return on_google or (folder / "application_default_credentials.json").exists()
