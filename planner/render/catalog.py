"""Offers and accelerators as rows of a table, of TSV and of JSON. Never computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .output import Column

if TYPE_CHECKING:
    from ..offers.rows import Accelerator, Offer

__all__ = ["ACCELERATOR_COLUMNS", "OFFER_COLUMNS", "accelerator_row", "offer_row"]


def _number(value: float | None) -> float | int | None:
    """Return a whole number as int: 8 vCPUs, not 8.0."""
    return int(value) if value is not None and float(value).is_integer() else value


def _wide(key: str) -> Column:
    """Return a column that TSV has and a terminal leaves out."""
    return Column(key=key, header=key, terminal=False)


OFFER_COLUMNS = (
    Column(key="provider", header="Provider"),
    Column(key="instance_type", header="Instance type"),
    Column(key="accelerator", header="Accelerator"),
    Column(key="devices", header="×", justify="right", format=lambda devices: f"{devices:g}"),
    _wide("vcpus"),
    _wide("memory_gib"),
    Column(key="region", header="Region"),
    Column(key="purchase", header="Buy", format=lambda purchase: purchase.removeprefix("on_")),
    Column(key="usd_per_hour", header="USD/h", justify="right", format=lambda usd: f"{usd:.4f}"),
    Column(key="price_as_of", header="As of"),
    _wide("price_source"),
    Column(key="status", header="", format=lambda status: "" if status == "active" else status),
    _wide("estimated"),
    _wide("complete"),
    _wide("note"),
)

ACCELERATOR_COLUMNS = (
    Column(key="name", header="Accelerator"),
    Column(key="vendor", header="Vendor", terminal=False),
    Column(key="architecture", header="Architecture"),
    Column(key="year", header="Year", justify="right"),
    Column(key="memory_gib", header="GiB", justify="right", format=lambda gib: f"{gib:g}"),
    Column(key="memory_gb_per_s", header="GB/s", justify="right", format=lambda rate: f"{rate:g}"),
    Column(key="fp32_tflop_per_s", header="fp32", justify="right", format=lambda peak: f"{peak:g}"),
    Column(key="tf32_tensor_tflop_per_s", header="tf32", justify="right", format=lambda peak: f"{peak:g}"),
    Column(key="fp16_tensor_tflop_per_s", header="fp16", justify="right", format=lambda peak: f"{peak:g}"),
    Column(key="bf16_tensor_tflop_per_s", header="bf16", justify="right", format=lambda peak: f"{peak:g}"),
    _wide("kind"),
    _wide("compute_capability"),
    _wide("usable_gib"),
    _wide("link_gb_per_s_total"),
    _wide("ici_gbit_per_s_per_direction"),
    _wide("tdp_w"),
    _wide("confidence"),
    _wide("read_on"),
    _wide("source"),
    _wide("note"),
)


def offer_row(offer: Offer) -> dict[str, Any]:
    """Return an offer under the keys of the JSON contract, in its order."""
    values = dict(vars(offer))
    for key in ("devices", "vcpus", "memory_gib"):
        values[key] = _number(values[key])
    return {column.key: values[column.key] for column in OFFER_COLUMNS}


def accelerator_row(accelerator: Accelerator) -> dict[str, Any]:
    """Return everything that is known of an accelerator; what is unknown is None."""
    values = dict(vars(accelerator))
    return {key: _number(value) if isinstance(value, float) else value for key, value in values.items()}
