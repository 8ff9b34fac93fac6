"""Exported documents of other launchers as files, with comments above."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml


class BlockDumper(yaml.SafeDumper):
    """YAML dumper with block style for multi-line strings and indented lists."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    """Return a string in block style if it has several lines."""
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


BlockDumper.add_representer(str, _represent_text)


def format_export(exported: Mapping[str, Any]) -> str:
    """Format an export as a file: YAML with comments above, or a notebook.

    Args:
        exported: Document of schema `gpuplan.export/1`.
    """
    document = exported["document"]
    if "nbformat" in document:
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    return "".join(f"# {line}\n" for line in _build_comments(exported)) + yaml.dump(
        document, Dumper=BlockDumper, sort_keys=False, width=110
    )


def _build_comments(exported: Mapping[str, Any]) -> list[str]:
    """Return the comment lines above the document."""
    offer = exported["offer"]
    several = f"{exported['hosts']}x " if exported["hosts"] > 1 else ""
    machine = " ".join((exported["provider"], offer["instance_type"], offer["region"], offer["purchase"]))
    priced = f"(price of {offer['price_as_of'] or 'an unknown day'})"
    return [
        f"{several}{machine}, ${offer['usd_per_hour']} an hour {priced}",
        *([exported["sharding"]] if exported["sharding"] else []),
        f"at most {offer['cap_s']} s, ${float(exported['worst_case_usd']):.2f} without boot, disk and traffic",
        f"start it: {exported['apply']}",
        f"end it: {exported['stop']}",
        *(f"ends by itself: {line}" for line in exported["stops"]),
        *(f"not covered: {line}" for line in exported["open"]),
    ]
