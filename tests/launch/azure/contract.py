"""Azure's published interface as a judge: the official clients build each request, and know every field of a body.

A method is what the client's own request builder makes of placeholders: verb, path, `api-version`. A body is
walked along the client's models: unknown names, names that only answers have, values outside an enumeration and
wrong types are violations. Two services whose clients are not installed for this (role assignments, schedules)
have their few fields below, from their reference.
"""

from __future__ import annotations

import enum
import importlib
import re
import types
import typing
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

SUB, GROUP, NAME, SPACE, PLACE = "SUBSCRIPTION", "GROUP", "NAME", "NAMESPACE", "LOCATION"
# method: (module of the client, resource, name of the path's last part, model of the body)
_COMPUTE, _NETWORK, _RESOURCES = "azure.mgmt.compute", "azure.mgmt.network", "azure.mgmt.resource.resources"
_SCHEDULES = "azure.mgmt.computeschedule"
_NETWORK_KINDS = {
    "networkSecurityGroups": ("network_security_groups", "network_security_group_name", "NetworkSecurityGroup"),
    "publicIPAddresses": ("public_ip_addresses", "public_ip_address_name", "PublicIPAddress"),
    "virtualNetworks": ("virtual_networks", "virtual_network_name", "VirtualNetwork"),
    "networkInterfaces": ("network_interfaces", "network_interface_name", "NetworkInterface"),
}
OPEN = {"VirtualMachineSizeTypes"}  # the client's list of sizes is no longer kept: its text says to ask for them
_VERBS = {
    "createOrUpdate": "create_or_update",
    "get": "get",
    "delete": "delete",
    "listAll": "list_all",
    "list": "list",
    "retrieveBootDiagnosticsData": "retrieve_boot_diagnostics_data",
}
_ORDERS = {  # operation: (of the client, model of the body, model of the answer)
    "virtualMachinesSubmitDeallocate": (
        "submit_deallocate",
        "SubmitDeallocateRequest",
        "DeallocateResourceOperationResponse",
    ),
    "virtualMachinesGetOperationStatus": (
        "get_operation_status",
        "GetOperationStatusRequest",
        "GetOperationStatusResponse",
    ),
}
_VM = f"/subscriptions/{SUB}/resourceGroups/{GROUP}/providers/Microsoft.Compute/virtualMachines/{NAME}"
_ROLE = f"{_VM}/providers/Microsoft.Authorization/roleAssignments/ROLE"
_SCHEDULE = f"/subscriptions/{SUB}/resourceGroups/{GROUP}/providers/Microsoft.DevTestLab/schedules/{NAME}"
# learn.microsoft.com/rest/api/: authorization/role-assignments/create, dtl/global-schedules/create-or-update
_BY_HAND: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    f"{name}.{verb}": (method, path, version, fields)
    for name, path, version, fields in (
        (
            "roleAssignments", _ROLE, "2022-04-01",
            {"properties": {"roleDefinitionId": str, "principalId": str, "principalType": {"ServicePrincipal"}}},
        ),
        (
            "globalSchedules", _SCHEDULE, "2018-09-15",
            {
                "location": str, "tags": dict,
                "properties": {
                    "status": {"Enabled", "Disabled"}, "taskType": {"ComputeVmShutdownTask"},
                    "dailyRecurrence": {"time": re.compile(r"([01]\d|2[0-3])[0-5]\d")}, "timeZoneId": {"UTC"},
                    "notificationSettings": {"status": {"Enabled", "Disabled"}}, "targetResourceId": str,
                },
            },
        ),
    )
    for verb, method in (("createOrUpdate", "PUT"), ("get", "GET"))
}  # fmt: skip


class ViolationError(Exception):
    """A request, or an answer, that the interface does not have."""


class Method(typing.NamedTuple):
    """A method of the interface."""

    name: str
    verb: str
    path: re.Pattern[str]
    version: str
    query: frozenset[str]
    model: Any  # of body and answer: a client's model, or fields by hand; None: no body
    answered: Any  # of the answer, or of each row of a list


def methods() -> list[Method]:
    """Return the methods that there are."""
    found = [_built("resourceGroups", verb) for verb in ("createOrUpdate", "get", "delete", "list")]
    found += [_built("virtualMachines", verb) for verb in _VERBS if verb != "list"]
    found += [_built("providers", "get"), *(_built_order(name) for name in _ORDERS)]
    found += [_built(kind, verb) for kind in _NETWORK_KINDS for verb in ("createOrUpdate", "get")]
    return found + [_by_hand(name) for name in _BY_HAND]


def match(known: list[Method], verb: str, path: str) -> tuple[Method, dict[str, str]] | None:
    """Return the method that a request is for, and the parts of its path."""
    for method in known:
        parts = method.path.fullmatch(path) if method.verb == verb else None
        if parts:
            return method, parts.groupdict()
    return None


def check_request(method: Method, url: str, body: Any) -> dict[str, str]:
    """Return the query; ViolationError for what the interface does not allow."""
    query = {key: values[-1] for key, values in parse_qs(urlsplit(url).query).items()}
    if query.pop("api-version", None) != method.version:
        raise ViolationError(f"{method.name}: the version is {method.version}")
    if unknown := query.keys() - method.query:
        raise ViolationError(f"{method.name} has no query parameter {unknown}")
    if method.verb in {"PUT", "POST"} and not method.name.endswith("retrieveBootDiagnosticsData"):
        check_body(method.model, body, where=method.name, answers=False)
    elif body is not None:
        raise ViolationError(f"{method.name} takes no body")
    return query


def check_body(model: Any, body: Any, *, where: str, answers: bool) -> None:
    """Raise ViolationError unless a value is what a model describes.

    Args:
        model: A type of the client's, or fields by hand.
        answers: Whether names that only answers have are allowed.
    """
    if isinstance(model, dict):
        return _check_by_hand(model, body, where)
    if model in {typing.Any, None, type(None)}:
        return None
    origin = typing.get_origin(model)
    if origin in {typing.Union, types.UnionType}:
        return _check_one_of(typing.get_args(model), body, where, answers=answers)
    if origin in {list, dict}:
        return _check_all(origin, typing.get_args(model)[-1], body, where, answers=answers)
    if hasattr(model, "as_dict"):
        return _check_model(model, _of_type(dict, body, where), where, answers=answers)
    return _check_scalar(model, body, where)


def _check_all(origin: Any, model: Any, body: Any, where: str, *, answers: bool) -> None:
    inside = _of_type(origin, body, where)
    for key, one in enumerate(inside) if origin is list else inside.items():
        check_body(model, one, where=f"{where}.{key}", answers=answers)


def _check_model(model: Any, body: dict[str, Any], where: str, *, answers: bool) -> None:
    model()  # the client fills in its table of names when it is first used
    names = {field._rest_name: (attribute, field) for attribute, field in model._attr_to_rest_field.items()}
    for key, value in body.items():
        if key not in names:
            raise ViolationError(f"{where}: {model.__name__} has no {key}")
        attribute, field = names[key]
        if field._visibility == ["read"] and not answers:
            raise ViolationError(f"{where}.{key} can only be read")
        check_body(_hints(model)[attribute], value, where=f"{where}.{key}", answers=answers)


def _check_one_of(choices: tuple[Any, ...], body: Any, where: str, *, answers: bool) -> None:
    enums = [one for one in choices if isinstance(one, type) and issubclass(one, enum.Enum)]
    real = enums or [one for one in choices if one is not type(None)]  # "a text, or one of these": one of these
    problems = []
    for one in real:
        try:
            return check_body(one, body, where=where, answers=answers)
        except ViolationError as error:
            problems.append(error)
    raise problems[-1]


def _check_by_hand(fields: Any, body: Any, where: str) -> None:
    if isinstance(fields, dict):
        for key, value in _of_type(dict, body, where).items():
            if key not in fields:
                raise ViolationError(f"{where} has no {key}")
            _check_by_hand(fields[key], value, f"{where}.{key}")
    elif isinstance(fields, set):
        if body not in fields:
            raise ViolationError(f"{where}: {body!r} is none of {sorted(fields)}")
    elif isinstance(fields, re.Pattern):
        if not fields.fullmatch(str(body)):
            raise ViolationError(f"{where}: {body!r}")
    else:
        _of_type(fields, body, where)


def _check_scalar(model: Any, body: Any, where: str) -> None:
    if isinstance(model, type) and issubclass(model, enum.Enum):
        if model.__name__ not in OPEN and body not in [one.value for one in model]:
            raise ViolationError(f"{where}: {body!r} is none of {model.__name__}")
        return
    wanted = {datetime: str, float: (int, float)}.get(model, model)
    if not isinstance(wanted, (type, tuple)):
        raise TypeError(f"{where}: {model}")
    if isinstance(body, bool) and model is not bool:
        raise ViolationError(f"{where}: {body!r} is no {model.__name__}")
    _of_type(wanted, body, where)


def _of_type(wanted: Any, body: Any, where: str) -> Any:
    if not isinstance(body, wanted):
        raise ViolationError(f"{where}: {body!r} is no {wanted}")
    return body


@cache
def _hints(model: Any) -> dict[str, Any]:
    """Return the types of a model's attributes; the client writes them as text, with `_models` and so on."""
    package = model.__module__.rpartition(".models.")[0]
    models = importlib.import_module(f"{package}.models")
    found: dict[str, Any] = {}
    for one in reversed(model.__mro__):
        scope = {**vars(typing), **vars(importlib.import_module(one.__module__)), "_models": models}
        for attribute, text in vars(one).get("__annotations__", {}).items():
            found[attribute] = eval(text, scope) if isinstance(text, str) else text
    return {attribute: _evaluated(hint, models) for attribute, hint in found.items()}


def _evaluated(hint: Any, models: Any) -> Any:
    """Return a type without text inside."""
    if isinstance(hint, (str, typing.ForwardRef)):
        text = hint if isinstance(hint, str) else hint.__forward_arg__
        return eval(text, {**vars(typing), "_models": models})
    arguments = typing.get_args(hint)
    if not arguments:
        return hint
    inner = tuple(_evaluated(one, models) for one in arguments)
    origin = typing.get_origin(hint)
    return typing.Union[inner] if origin in {typing.Union, types.UnionType} else origin[inner]  # noqa: UP007


def _built(kind: str, verb: str) -> Method:
    """Return a method as the official client builds its request."""
    module, resource, name, model = {
        "resourceGroups": (_RESOURCES, "resource_groups", "", "ResourceGroup"),
        "providers": (_RESOURCES, "providers", "", "Provider"),
        "virtualMachines": (_COMPUTE, "virtual_machines", "vm_name", "VirtualMachine"),
        **{key: (_NETWORK, *value) for key, value in _NETWORK_KINDS.items()},
    }[kind]
    operations = importlib.import_module(f"{module}.operations._operations")
    build = getattr(operations, f"build_{resource}_{_VERBS[verb]}_request")
    places = {"subscription_id": SUB}
    if kind == "providers":
        places["resource_provider_namespace"] = SPACE
    elif verb not in {"listAll", "list"}:
        places |= {"resource_group_name": GROUP} | ({name: NAME} if name else {})
    request = build(**places)
    extra = {
        "get": {"$expand"},
        "listAll": {"statusOnly"},
        "list": {"$filter", "$top"},
        "delete": {"forceDeletion", "forceDeletionTypes"},
    }
    path, _, query = request.url.partition("?")
    version = parse_qs(query)["api-version"][0]
    shown = getattr(importlib.import_module(f"{module}.models"), model)
    if verb == "retrieveBootDiagnosticsData":
        shown = importlib.import_module(f"{module}.models").RetrieveBootDiagnosticsDataResult
    return Method(
        f"{kind}.{verb}", request.method, _pattern(path), version, frozenset(extra.get(verb, set())), shown, shown
    )


def _built_order(name: str) -> Method:
    """Return a method of the scheduled actions as the official client builds its request."""
    operation, asked, shown = _ORDERS[name]
    operations = importlib.import_module(f"{_SCHEDULES}.operations._operations")
    build = getattr(operations, f"build_scheduled_actions_virtual_machines_{operation}_request")
    request = build(subscription_id=SUB, locationparameter=PLACE)
    path, _, query = request.url.partition("?")
    models = importlib.import_module(f"{_SCHEDULES}.models")
    return Method(
        name,
        request.method,
        _pattern(path),
        parse_qs(query)["api-version"][0],
        frozenset(),
        getattr(models, asked),
        getattr(models, shown),
    )


def _by_hand(name: str) -> Method:
    method, path, version, fields = _BY_HAND[name]
    shown = {"id": str, "name": str, **fields}
    return Method(name, method, _pattern(path), version, frozenset(), fields, shown)


def _pattern(path: str) -> re.Pattern[str]:
    """Return a path with its places as groups; Azure compares paths without regard to case."""
    text = re.escape(path)
    for place in (SUB, GROUP, SPACE, NAME, PLACE, "ROLE"):
        text = text.replace(place, f"(?P<{place.lower()}>[^/]+)")
    return re.compile(text, re.IGNORECASE)
