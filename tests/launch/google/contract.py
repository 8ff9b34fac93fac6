"""Google's published interface as a judge: path, query and body are checked against its discovery document."""

from __future__ import annotations

import json
import re
from email.parser import BytesParser
from email.policy import HTTP
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema

FORMATS = {"int64": r"^-?\d+$", "google-duration": r"^\d+(\.\d{1,9})?s$"}
KEPT = {"type", "enum", "pattern", "items"}
LABEL_KEY, LABEL_VALUE = re.compile(r"[a-z][a-z0-9_-]{0,62}"), re.compile(r"[a-z0-9_-]{0,63}")


class ViolationError(Exception):
    """A request that the interface does not have."""


class Contract:
    """One discovery document of google-api-python-client, such as `compute.v1`."""

    def __init__(self, name: str) -> None:
        folder = files("googleapiclient.discovery_cache").joinpath("documents")
        self.document = json.loads(folder.joinpath(f"{name}.json").read_text(encoding="utf-8"))
        self.prefix = "/" + self.document["servicePath"]
        self.methods = list(_methods(self.document["resources"]))
        self._patterns: dict[str, re.Pattern[str]] = {}

    @cache  # noqa: B019 - lives as long as its process
    def validator(self, name: str) -> jsonschema.Draft202012Validator:
        """Return what judges a body; only what it refers to is compiled: the whole document takes seconds."""
        definitions: dict[str, Any] = {}
        waiting = [name]
        while waiting:
            one = waiting.pop()
            if one not in definitions:
                definitions[one] = _schema(self.document["schemas"][one])
                waiting += re.findall(r'"#/\$defs/(\w+)"', json.dumps(definitions[one]))
        return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": definitions})

    def match(self, verb: str, path: str) -> tuple[dict[str, Any], dict[str, str]] | None:
        """Return the method that a request is for, and the parts of its path."""
        if not path.startswith(self.prefix):
            return None
        for method in self.methods:
            if method["httpMethod"] == verb and _may_be(method, path):
                found = self._pattern(method).fullmatch(path.removeprefix(self.prefix))
                if found:
                    return method, found.groupdict()
        return None

    def _pattern(self, method: dict[str, Any]) -> re.Pattern[str]:
        """Return the path of a method, compiled when it is first asked for: there are a thousand of them."""
        if method["id"] not in self._patterns:
            self._patterns[method["id"]] = _pattern(method)
        return self._patterns[method["id"]]

    def match_upload(self, verb: str, path: str) -> tuple[dict[str, Any], dict[str, str]] | None:
        """Return the method that takes a file at a path of its own, and the parts of the path."""
        for method in self.methods:
            if "mediaUpload" in method and method["httpMethod"] == verb:
                found = _template(method["mediaUpload"]["protocols"]["simple"]["path"], method).fullmatch(path)
                if found:
                    return method, found.groupdict()
        return None

    def check(self, method: dict[str, Any], url: str, body: Any) -> dict[str, str]:
        """Return the query; ViolationError for a key, value or body that the document does not allow."""
        query = {key: values[-1] for key, values in parse_qs(urlsplit(url).query).items()}
        common = self.document["parameters"]  # `$alt` is `alt`: cloud.google.com/apis/docs/system-parameters
        allowed = {**method.get("parameters", {}), **common, "$alt": common["alt"]}
        for key in query:
            if allowed.get(key, {}).get("location") != "query":
                raise ViolationError(f"{method['id']} has no query parameter {key}")
        if isinstance(body, bytes):
            if query.get("uploadType") != "multipart":
                raise ViolationError(f"{method['id']}: a file with a description needs uploadType=multipart")
            body, _ = parse_owned_name(body)
        if "request" in method:
            validator = self.validator(method["request"]["$ref"])
            problem = jsonschema.exceptions.best_match(validator.iter_errors(body))
            if problem:
                raise ViolationError(f"{method['id']}: {problem.json_path}: {problem.message}"[:300])
        elif body is not None:
            raise ViolationError(f"{method['id']} takes no body")
        return query


def parse_owned_name(body: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the description and the content of a multipart upload, read by Python's own parser (RFC 2387)."""
    boundary = body.partition(b"\r\n")[0].removeprefix(b"--").decode()
    head = f'Content-Type: multipart/related; boundary="{boundary}"\r\nMIME-Version: 1.0\r\n\r\n'.encode()
    described, content = BytesParser(policy=HTTP).parsebytes(head + body).iter_parts()
    if described.get_content_type() != "application/json":
        raise ViolationError("the first part of an upload is its description")
    return json.loads(described.get_payload(decode=True)), content.get_payload(decode=True)


def check_labels(labels: dict[str, str]) -> None:
    """Rules that no schema holds: cloud.google.com/compute/docs/labeling-resources."""
    for key, value in labels.items():
        if not (LABEL_KEY.fullmatch(key) and LABEL_VALUE.fullmatch(value)):
            raise ViolationError(f"label {key}={value}")


def check_instance(body: dict[str, Any]) -> None:
    """Rules that no schema holds: Compute Engine's, for machines with GPUs and for Spot."""
    scheduling = body["scheduling"]
    if scheduling.get("onHostMaintenance") != "TERMINATE":
        raise ViolationError("a machine with GPUs needs onHostMaintenance TERMINATE")
    if scheduling.get("provisioningModel") == "SPOT" and scheduling.get("automaticRestart") is not False:
        raise ViolationError("Spot forbids automaticRestart")
    if "maxRunDuration" in scheduling and "instanceTerminationAction" not in scheduling:
        raise ViolationError("maxRunDuration needs instanceTerminationAction")
    if not re.fullmatch(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?", body["name"]):
        raise ViolationError(f"name {body['name']}")
    check_labels(body["labels"])


def _methods(resources: dict[str, Any]) -> Any:
    for resource in resources.values():
        yield from resource.get("methods", {}).values()
        yield from _methods(resource.get("resources", {}))


def _may_be(method: dict[str, Any], path: str) -> bool:
    """Whether the words of a method's path stand in a path."""
    return all(word in path for word in re.findall(r"(?:^|/)(\w+)(?=/|$)", method["path"]))


def _pattern(method: dict[str, Any]) -> re.Pattern[str]:
    """Return the path of a method."""
    return _template(method["path"], method)


def _template(path: str, method: dict[str, Any]) -> re.Pattern[str]:
    """Return a path as a pattern; `{+name}` takes what its own pattern allows."""
    text = ""
    for part in re.split(r"(\{\+?\w+\})", path):
        if part.startswith("{"):
            name = part.strip("{+}")
            own = method["parameters"][name].get("pattern", "[^/]+").strip("^$")
            own = re.sub(r"\((?!\?)", "(?:", own)
            text += f"(?P<{name}>{own})"
        else:
            text += re.escape(part)
    return re.compile(text)


def _schema(node: Any) -> Any:
    """Return a part of a discovery document as JSON Schema."""
    if "$ref" in node:
        return {"$ref": f"#/$defs/{node['$ref']}"}
    if node.get("readOnly"):
        return {"not": {}}
    out = {key: node[key] for key in KEPT & node.keys() if node.get("type") != "any"}
    if node.get("format") in FORMATS and node.get("type") == "string":
        out["pattern"] = FORMATS[node["format"]]
    if "items" in out:
        out["items"] = _schema(out["items"])
    if "properties" in node:
        out["properties"] = {name: _schema(value) for name, value in node["properties"].items()}
        out["additionalProperties"] = False
    elif isinstance(node.get("additionalProperties"), dict):
        out["additionalProperties"] = _schema(node["additionalProperties"])
    return out
