"""Parser of user entries in a settings file; every error names file, entry and field."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from .errors import UsageError, near_names_hint
from .settings_own import CommittedPrice, CurrencyCode, Discount, ExchangeRate, OwnMachine, Tax

__all__ = ["read_own"]

_TYPES: dict[str, Any] = {
    "tax": Tax,
    "exchange_rate": dict[CurrencyCode, ExchangeRate],
    "discount": tuple[Discount, ...],
    "committed": tuple[CommittedPrice, ...],
    "machine": tuple[OwnMachine, ...],
}
_ROWS: dict[str, type[BaseModel]] = {
    "tax": Tax,
    "exchange_rate": ExchangeRate,
    "discount": Discount,
    "committed": CommittedPrice,
    "machine": OwnMachine,
}


def read_own(key: str, value: object, where: str) -> Any:
    """Parse a user entry.

    Args:
        key: `tax`, `exchange_rate`, `discount`, `committed` or `machine`.
        value: Parsed TOML, with Decimal for floats.
        where: Key and file, for errors.

    Raises:
        UsageError: A field is missing, unknown or out of bounds.
    """
    try:
        read = TypeAdapter(_TYPES[key]).validate_python(value)
    except ValidationError as error:
        raise _usage_error(key, error, where) from error
    if key == "machine":
        _require_unique_names(read, where)
    return read


def _usage_error(key: str, error: ValidationError, where: str) -> UsageError:
    """Convert the first validation error to one line with a hint."""
    detail = error.errors(include_url=False)[0]
    *entry, field = detail["loc"] or (key,)
    place = f" (entry {int(entry[0]) + 1})" if entry and isinstance(entry[0], int) else ""
    fields = tuple(_ROWS[key].model_fields)
    if detail["type"] == "extra_forbidden":
        hint = near_names_hint(str(field), fields, see_all="docs/catalog.md")
        return UsageError(f"unknown field `{field}` in {where}{place}", hint=hint)
    if detail["type"] == "missing":
        return UsageError(f"`{field}` is missing in {where}{place}", hint=f"an entry has {', '.join(fields)}")
    return UsageError(
        f"`{field}` in {where}{place}: {detail['msg'].lower()}, not {detail['input']!r}",
        hint="see docs/catalog.md for an example of each",
    )


def _require_unique_names(machines: tuple[OwnMachine, ...], where: str) -> None:
    """Raise UsageError if two machines have the same name."""
    names = [machine.name for machine in machines]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two machines are called `{name}` in {where}", hint="give each a unique name")
