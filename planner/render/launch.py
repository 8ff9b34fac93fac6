"""Launch plans, events, machines and exported documents as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import yaml

from .output import make_columns, make_numbers

LONGEST_LINE, PACKED = 1000, "(packed: the supervisor, from gpuplan/launch/agent)"


def _format_time(at: str) -> str:
    return at[:16].replace("T", " ")


MACHINE_COLUMNS = (
    *make_columns(id="Id", run="Run"),
    *make_columns(provider="Provider", dispensable=4),
    *make_columns(instance_type="Instance type", dispensable=5),
    *make_columns(region="Region", dispensable=6),
    *make_columns(state="State"),
    *make_columns(started_at="Started", dispensable=7, format=_format_time),
    *make_columns(cap_at="Ends by", dispensable=3, format=_format_time),
    *make_numbers(spent_usd="USD", dispensable=2, format=lambda usd: f"{Decimal(usd):.2f}"),
    *make_columns("attempt", source="Seen by", dispensable=8),
    *make_columns("owner_name", "in_ledger", owner="Owner", dispensable=9),
)

COMPARISON_COLUMNS = (
    *make_columns(item="What", unit=""),
    *make_numbers(low="Planned, low", mid="mid", high="high", actual="Actual", format="{:.3g}".format),
)


def plan_text(plan: Mapping[str, Any], *, calls: bool = True) -> str:
    """Return a launch plan as text: machine, cost, caps and, if requested, every call."""
    request, first = plan["request"], plan["attempts"][0]
    lines = [
        f"run {request['run']}: {_machine(first)}",
        f"  runs         {' '.join(map(_word, (request['spec']['script'], *request['spec']['arguments'])))}",
        f"  source       {request['spec']['source']}",
        *(f"  {label:<12} {value}" for label, value in plan["exposure"].items()),
        f"  price        {_price(first['candidate'])}",
        f"  at most      {_limit(plan)}",
    ]
    lines += _spot_lines(first["candidate"].get("spot"), request["spec"]["checkpoint_every_s"])
    for layer in first["layers"]:
        where, unproven = "cloud" if layer["where"] == "cloud" else "machine", layer["unproven"]
        how = f"{layer['how']}; unproven: {unproven}" if unproven else layer["how"]
        lines.append(f"  ended by     the {where}, after {_hours(layer['fires_after_s'])}: {how}")
    lines += [f"  stop it      {way}" for way in plan["stop"]]
    lines += [
        f"  fallback     {_machine(attempt)}, ${attempt['candidate']['usd_per_hour']} an hour"
        for attempt in plan["attempts"][1:]
    ]
    lines += [f"  note         {note}" for note in plan["notes"]]
    for attempt in plan["attempts"] if calls else ():
        lines += ["", f"attempt {attempt['number']}: {_machine(attempt)}", *_calls(attempt["calls"])]
    return "\n".join(lines) + "\n"


def _word(text: str) -> str:
    """Return an argument unambiguously and without control characters."""
    return text if text.isprintable() and text and " " not in text else repr(text)


def _limit(plan: Mapping[str, Any]) -> str:
    """Return maximum life and cost, and the layers that enforce them."""
    outer = [[one for one in attempt["layers"] if one["where"] == "cloud"] for attempt in plan["attempts"]]
    proven = [[one for one in found if not one["unproven"]] for found in outer]
    most = f"{_hours(plan['cap_s'])}, ${Decimal(plan['worst_case_usd']):.2f}"
    shown = proven if all(proven) else outer
    names = ", ".join(dict.fromkeys(one["name"] for layers in shown for one in layers))
    if all(proven):
        return f"{most} in all (enforced outside the machine by: {names})"
    if plan["request"]["provider"] == "local":
        return f"{most} in all"
    limit = f"unproven outside the machine: {names}" if names else "no limit outside the machine"
    return f"{most} if the machine's own timer works; {limit}"


def _price(one: Mapping[str, Any]) -> str:
    """Return an hourly price with its source, and the estimate's price."""
    if one["price_source"]:
        return f"${one['usd_per_hour']} an hour ({one['price_source']}); planned ${one['planned_usd_per_hour']}"
    dated = f" (of {one['price_as_of']})" if one["price_as_of"] else ""
    problem = one["price_problem"]
    now = f"the current price could not be read: {problem}" if problem else "read again when it is launched"
    return f"${one['usd_per_hour']} an hour, as estimated{dated}; {now}"


def event_line(event: Mapping[str, Any], *, as_json: bool) -> str:
    """Return an event as a line of text or as one JSON object."""
    if as_json:
        return json.dumps({"schema": "gpuplan.launch-event/1", **event}, ensure_ascii=False)
    return f"{event['at'][11:19]} {event['event']:<8} {event['message']}"


def _machine(attempt: Mapping[str, Any]) -> str:
    one = attempt["candidate"]
    devices = "" if one["devices"] == 1 else f"{one['devices']:g}× "
    place = attempt["zone"] or one["region"]
    return f"{one['instance_type']} ({devices}{one['accelerator']}), {place}, {one['purchase'].replace('_', ' ')}"


def _calls(calls: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """Yield every call with its parameters as JSON and its undo calls."""
    for position, call in enumerate(calls, start=1):
        makes = call["makes"] and f"makes a {call['makes']}"
        role = " · ".join(filter(None, (makes, call["arms"] and f"arms {call['arms']}")))
        name = f"{call['service']}.{call['operation']} in {call['region']}"
        yield f"  {position}. {name}  [{role}]" if role else f"  {position}. {name}"
        scripts: list[str] = []
        params = _without_scripts(call["params"], scripts)
        yield from (f"     {line}" for line in json.dumps(params, indent=2, ensure_ascii=False).splitlines())
        for script in scripts:
            for line in script.splitlines():
                yield f"     | {PACKED if len(line) > LONGEST_LINE and ' ' not in line else line}"
        if call["expects"]:
            yield f"     expects {json.dumps(call['expects'])}"
        for undo in call["undo"]:
            yield f"     undone by {undo['service']}.{undo['operation']} {json.dumps(undo['params'])}"


def _spot_lines(spot: Mapping[str, Any] | None, every_s: float) -> list[str]:
    """Return expected preemptions and the checkpoint interval."""
    if spot is None:
        return []
    notice = "no known notice" if spot["notice_s"] is None else f"notice {spot['notice_s']:g} s"
    apart = "as" if every_s == spot["checkpoint_every_s"] else f"where {_hours(spot['checkpoint_every_s'])} was"
    lines = [
        f"  preempted    {spot['count']:.2g} times on average "
        f"(mean lifetime {_hours(spot['life_s'])}, {spot['basis']}; {notice}); "
        f"a checkpoint every {_hours(every_s)}, {apart} planned"
    ]
    if spot["notice_s"] is not None and spot["checkpoint_s"] > spot["notice_s"]:
        lines.append(f"  note         a checkpoint takes {spot['checkpoint_s']:.3g} s, longer than the notice")
    return lines


def _hours(seconds: float) -> str:
    return f"{seconds / 60:.3g} min" if seconds < 3600 else f"{seconds / 3600:.3g} h"


def _without_scripts(value: Any, scripts: list[str]) -> Any:
    """Return parameters with multi-line texts moved to a list, at any depth."""
    if isinstance(value, Mapping):
        return {key: _without_scripts(inner, scripts) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_scripts(inner, scripts) for inner in value]
    if isinstance(value, str) and "\n" in value:
        scripts.append(value)
        return "(below)"
    return value


class BlockDumper(yaml.SafeDumper):
    """YAML dumper with block style for multi-line strings and indented lists."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


_TEXT = "tag:yaml.org,2002:str"
BlockDumper.add_representer(
    str, lambda dumper, text: dumper.represent_scalar(_TEXT, text, style="|" if "\n" in text else None)
)


def format_export(exported: Mapping[str, Any]) -> str:
    """Format a document of schema `gpuplan.export/1` as a file: YAML or Python below comments, or a notebook."""
    document = exported["document"]
    if "nbformat" in document:
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    if not isinstance(document, str):
        document = yaml.dump(document, Dumper=BlockDumper, sort_keys=False, width=110)
    return "".join(f"# {line}\n" for line in _build_comments(exported)) + document


def _build_comments(exported: Mapping[str, Any]) -> list[str]:
    """Return the comment lines above the document."""
    offer = exported["offer"]
    several = f"{exported['hosts']}x " if exported["hosts"] > 1 else ""
    machine = " ".join((exported["provider"], offer["instance_type"], offer["region"], offer["purchase"]))
    priced = f"(price of {offer['price_as_of'] or 'an unknown day'})"
    return [
        f"{several}{machine}, ${offer['usd_per_hour']} an hour {priced}",
        *([exported["instead_of"]] if exported["instead_of"] else []),
        *([exported["sharding"]] if exported["sharding"] else []),
        f"at most {offer['cap_s']} s, ${float(exported['worst_case_usd']):.2f} without boot, disk and traffic",
        f"start it: {exported['apply']}",
        f"end it: {exported['stop']}",
        *(f"ends by itself: {line}" for line in exported["stops"]),
        *(f"not covered: {line}" for line in exported["open"]),
    ]
