"""Offers and accelerators as rows of tables, TSV and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .output import Column

if TYPE_CHECKING:
    from ..offers.rows import Accelerator, Offer

__all__ = ["ACCELERATOR_COLUMNS", "OFFER_COLUMNS", "build_accelerator_row", "build_offer_row"]


def _to_number(value: float | None) -> float | int | None:
    """Convert an integral value to int: 8 vCPUs, not 8.0."""
    return int(value) if value is not None and float(value).is_integer() else value


def _tsv_column(key: str) -> Column:
    """Build a column for TSV only."""
    return Column(key=key, header=key, terminal=False)


OFFER_COLUMNS = (
    Column(key="provider", header="Provider"),
    Column(key="instance_type", header="Instance type"),
    Column(key="accelerator", header="Accelerator"),
    Column(key="devices", header="×", justify="right", format=lambda devices: f"{devices:g}"),
    _tsv_column("vcpus"),
    _tsv_column("memory_gib"),
    Column(key="region", header="Region"),
    Column(key="purchase", header="Buy", format=lambda purchase: purchase.removeprefix("on_")),
    Column(key="usd_per_hour", header="USD/h", justify="right", format=lambda usd: f"{usd:.4f}"),
    Column(key="price_as_of", header="As of"),
    _tsv_column("price_source"),
    Column(key="status", header="", format=lambda status: "" if status == "active" else status),
    _tsv_column("estimated"),
    _tsv_column("complete"),
    _tsv_column("note"),
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
    _tsv_column("kind"),
    _tsv_column("compute_capability"),
    _tsv_column("usable_gib"),
    _tsv_column("link_gb_per_s_total"),
    _tsv_column("ici_gbit_per_s_per_direction"),
    _tsv_column("tdp_w"),
    _tsv_column("confidence"),
    _tsv_column("read_on"),
    _tsv_column("source"),
    _tsv_column("note"),
)


def build_offer_row(offer: Offer) -> dict[str, Any]:
    """Return an offer under the keys of the JSON contract, in their order."""
    values = dict(vars(offer))
    for key in ("devices", "vcpus", "memory_gib"):
        values[key] = _to_number(values[key])
    return {column.key: values[column.key] for column in OFFER_COLUMNS}


def build_accelerator_row(accelerator: Accelerator) -> dict[str, Any]:
    """Return all fields of an accelerator; unknown values are None."""
    values = dict(vars(accelerator))
    return {key: _to_number(value) if isinstance(value, float) else value for key, value in values.items()}
