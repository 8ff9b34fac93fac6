"""Documents of other engines as YAML, with what one must know in comments above. Never computes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["export_text"]


def export_text(exported: Mapping[str, Any]) -> str:
    """Return an export as a file: YAML, or a notebook.

    Args:
        exported: Of schema `gpuplan.export/1`.
    """
    if "nbformat" in exported["document"]:
        return json.dumps(exported["document"], indent=1, ensure_ascii=False) + "\n"
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes text of several lines as such, and a list within its key."""

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    comments = "".join(f"# {line}\n" for line in _comments(exported))
    return comments + yaml.dump(exported["document"], Dumper=Dumper, sort_keys=False, width=110)


def _comments(exported: Mapping[str, Any]) -> list[str]:
    """Return what stands above the document."""
    offer = exported["offer"]
    machine = " ".join((exported["provider"], offer["instance_type"], offer["region"], offer["purchase"]))
    return [
        f"{machine}, ${offer['usd_per_hour']} an hour (price of {offer['price_as_of'] or 'an unknown day'})",
        f"at most {offer['cap_s']} s, ${float(exported['worst_case_usd']):.2f} without boot, disk and traffic",
        f"start it: {exported['apply']}",
        f"end it: {exported['stop']}",
        *(f"ends by itself: {line}" for line in exported["stops"]),
        *(f"not covered: {line}" for line in exported["open"]),
    ]
