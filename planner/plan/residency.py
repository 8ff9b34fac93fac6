"""Countries in which data may be kept: jurisdictions and country codes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..errors import UsageError, near_names_hint

# Members of the European Union since 2020, and of the European Economic Area (ISO 3166-1).
EU = frozenset({
    "AT", "BE", "BG", "CY", "CZ", "DE", "DK", "EE", "ES", "FI", "FR", "GR", "HR", "HU", "IE", "IT", "LT", "LU",
    "LV", "MT", "NL", "PL", "PT", "RO", "SE", "SI", "SK",
})  # fmt: skip
JURISDICTIONS: Mapping[str, frozenset[str]] = {
    "eu": EU,
    "eea": EU | {"IS", "LI", "NO"},
    "uk": frozenset({"GB"}),
}
CODE_LENGTH = 2


def resolve_countries(names: Iterable[str], *, known: Iterable[str]) -> frozenset[str]:
    """Return the countries of jurisdictions or country codes.

    Args:
        names: `eu`, `eea`, `uk`, or ISO 3166-1 codes, in any case.
        known: Countries with offers of machines.

    Raises:
        UsageError: A name that is neither, or a country without machines.

    Example:
        >>> sorted(resolve_countries(["CH", "uk"], known=["CH", "GB"]))
        ['CH', 'GB']
    """
    countries: set[str] = set()
    codes = set(known)
    for name in names:
        if name.lower() in JURISDICTIONS:
            countries |= JURISDICTIONS[name.lower()]
        elif len(name) == CODE_LENGTH and name.upper() in codes:
            countries.add(name.upper())
        else:
            hint = near_names_hint(name, [*JURISDICTIONS, *sorted(codes)], see_all="gpuplan offers")
            raise UsageError(f"unknown residency `{name}` in `--residency`", hint=hint)
    return frozenset(countries)
