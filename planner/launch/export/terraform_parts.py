"""What the configurations of all clouds share: a machine as blocks of Terraform, and text in its templates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MANAGED_BY = {"managed-by": "gpuplan-export"}

Blocks = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineBlocks:
    """A machine with its network and its caps.

    Args:
        providers: Names of the providers, the cloud's own first.
        settings: Settings of the cloud's provider.
        blocks: Blocks of the configuration by kind: `resource`, `data`, `variable`, `locals`.
        stops: Descriptions of what the cloud ends by itself.
        limits: Descriptions of what it does not.
    """

    providers: tuple[str, ...]
    settings: dict[str, Any]
    blocks: Blocks
    stops: tuple[str, ...]
    limits: tuple[str, ...]


def escape_template(text: str) -> str:
    """Return a text as a string of Terraform that contains it literally.

    Example:
        >>> escape_template("echo ${HOME} 100%{x}")
        'echo $${HOME} 100%%{x}'
    """
    return text.replace("${", "$${").replace("%{", "%%{")
