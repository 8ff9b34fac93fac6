"""Names of accelerators in kinetic, the Keras team's launcher, which runs a function on Google Cloud (GKE)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

USUAL = {"gpu": "l4", "tpu": "v5litepod"}  # which a name without a type stands for


@cache
def _read_table() -> Mapping[str, Any]:
    return tomllib.loads(files("gpuplan.offers").joinpath("kinetic.toml").read_text(encoding="utf-8"))


@cache
def _list_names() -> Mapping[str, tuple[str, int]]:
    """Return accelerator and number of devices by name, without the prefix of its kind."""
    found: dict[str, tuple[str, int]] = {}
    for accelerator, row in _read_table().items():
        is_tpu = accelerator.startswith("TPU")
        for size, form in row["sizes"].items():
            machine = accelerator, int(size)
            found.setdefault(f"{'tpu' if is_tpu else 'gpu'}:{size}", machine)
            for name in row["names"]:
                found |= (
                    {f"{name}-{size}": machine, f"{name}-{form}": machine}
                    if is_tpu
                    else {f"{name}x{size}": machine}
                )
        found |= {name: (accelerator, row.get("default", 1)) for name in row["names"]}
    return found | {kind: found[name] for kind, name in USUAL.items()}


def parse_kinetic_name(text: str) -> tuple[str, int] | None:
    """Return accelerator and number of devices of a name; None for a CPU, and for no name of this version.

    Example:
        >>> parse_kinetic_name("tpu-v5e-8"), parse_kinetic_name("gpu:a100x4:spot"), parse_kinetic_name("cpu")
        (('TPU-v5e', 8), ('A100-40GB', 4), None)
    """
    names, name = _list_names(), text.strip().lower().removesuffix(":spot")
    kind = next((one for one in USUAL if name.startswith((f"{one}-", f"{one}:"))), "")
    return names.get(f"{kind}:{name[4:]}") or names.get(name[4:] if kind else name)


def find_kinetic_name(*, accelerator: str, devices: float, instance_type: str) -> str:
    """Return kinetic's name of a machine of Google Cloud; empty for one that it does not start.

    Example:
        >>> find_kinetic_name(accelerator="T4", devices=2, instance_type="n1-standard-8+2xT4")
        'gpu-t4x2'
        >>> find_kinetic_name(accelerator="L4", devices=1, instance_type="g2-standard-8")
        ''
    """
    row, size = _read_table().get(accelerator), f"{devices:g}"
    if row is None or size not in row["sizes"]:
        return ""
    if accelerator.startswith("TPU"):
        return f"tpu-{row['names'][0]}-{size}"
    is_started = instance_type.partition("+")[0] == row["sizes"][size]
    return f"gpu-{row['names'][0]}{'' if size == '1' else f'x{size}'}" if is_started else ""
