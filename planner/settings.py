"""Settings, each with its origin: flag > `GPUPLAN_*` > project file > user file > default.

A project file is `gpuplan.toml`, or `[tool.gpuplan]` in `pyproject.toml`.

    cache_dir    folder of traced workloads, and of the catalog as it was read
                                                    default: the platform's cache folder
    data_dir     folder of refreshed prices         default: the platform's data folder
    catalog_dir  folder of a catalog of one's own   default: the catalog that comes with gpuplan
    state_dir    folder of launched runs            default: the platform's state folder
    owner        name on machines that are launched, beside the installation's id
                                                    default: the account's name
    providers    whose offers to look at            default: all
    regions      where                              default: all
    currency     what money is shown in             default: USD
    script_timeout   longest time of a script until fit()   default: 10m

Lists are TOML arrays in files, and separated by commas in the environment. Files also hold the user's own
world (`tax`, `exchange_rate`, `discount`, `committed`, `machine`): see ``settings_own``; and `endpoint`, a
table of addresses by source of prices.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import UsageError, near_names_hint
from .frozen import Frozen

if TYPE_CHECKING:
    from .settings_own import CommittedPrice, Discount, ExchangeRate, OwnMachine, Tax

__all__ = [
    "ENVIRONMENT_NAMES",
    "Setting",
    "Settings",
    "find_project_file",
    "get_state_folder",
    "load_settings",
]

ENVIRONMENT_PREFIX = "GPUPLAN_"
DOCUMENTATION = "gpuplan --help"


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and its origin."""

    value: Any
    origin: str


class Settings(Frozen):
    """Settings with their origins.

    Args:
        cache_dir: Cache folder; None for the platform's.
        data_dir: Data folder; None for the platform's.
        catalog_dir: Folder of the user's catalog; None for the packaged one.
        state_dir: Folder of launched runs; None for the platform's state folder.
        owner: Label on machines in addition to the installation's ID; empty for the account's name.
        providers, regions: Default filters; empty for all.
        endpoint: Base URLs that replace the providers' own, by price source.
        currency: ISO 4217 code; an exchange rate is required unless it is USD.
        script_timeout: Time limit of the user's code until there is a model, as given.
        tax: Tax on bills; None for no tax.
        exchange_rate: Exchange rates by currency.
        discount, committed, machine: Entries in the order of the file.
        origins: Origin of each setting (`GPUPLAN_REGIONS`, a file's path, `default`).
    """

    cache_dir: Path | None = None
    data_dir: Path | None = None
    catalog_dir: Path | None = None
    state_dir: Path | None = None
    owner: str = ""
    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    endpoint: Mapping[str, str] = field(default_factory=dict)
    currency: str = "USD"
    script_timeout: str = "10m"
    tax: Tax | None = None
    exchange_rate: Mapping[str, ExchangeRate] = field(default_factory=dict)
    discount: tuple[Discount, ...] = ()
    committed: tuple[CommittedPrice, ...] = ()
    machine: tuple[OwnMachine, ...] = ()
    origins: Mapping[str, str]


def _folder(value: object, where: str) -> Path:
    """Parse a folder; UsageError unless it is a string."""
    if not isinstance(value, str) or not value:
        raise UsageError(f"{where} is not a folder: {value!r}", hint="give a path in quotes")
    return Path(value).expanduser()


def _names(value: object, where: str) -> tuple[str, ...]:
    """Parse a list of names; UsageError unless it is an array of strings, or a comma-separated string."""
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise UsageError(f"{where} is not a list of names: {value!r}", hint='write it as ["aws", "gcp"]')


def _currency(value: object, where: str) -> str:
    """Parse a currency code; UsageError unless it has three letters."""
    if not isinstance(value, str) or not re.fullmatch("[A-Za-z]{3}", value):
        raise UsageError(f"{where} is not a currency: {value!r}", hint='write three letters: "EUR"')
    return value.upper()


def _duration(value: object, where: str) -> str:
    """Return a duration unparsed; UsageError unless it is a string."""
    if not isinstance(value, str):
        raise UsageError(f"{where} is not a duration: {value!r}", hint='write it as "10m"')
    return value


def _owner(value: object, where: str) -> str:
    """Parse an owner's name; UsageError unless it is valid in every cloud's tags."""
    if not isinstance(value, str) or not re.fullmatch("[a-z][a-z0-9-]{0,62}", value):
        raise UsageError(
            f"{where} is not a name: {value!r}", hint="write lower-case letters, digits and hyphens"
        )
    return value


def _addresses(value: object, where: str) -> dict[str, str]:
    """Parse URLs by name; UsageError unless it is a table of strings."""
    if isinstance(value, dict) and all(isinstance(address, str) for address in value.values()):
        return dict(value)
    raise UsageError(
        f"{where} is not a table of addresses", hint='write `azure-retail = "https://..."` in it'
    )


def _own(key: str) -> Callable[[object, str], Any]:
    """Build the lazily loaded parser of a user entry."""

    def read(value: object, where: str) -> Any:
        from .settings_files import read_own

        return read_own(key, value, where)

    return read


_READERS: dict[str, Callable[[object, str], Any]] = {
    "cache_dir": _folder,
    "data_dir": _folder,
    "catalog_dir": _folder,
    "state_dir": _folder,
    "owner": _owner,
    "providers": _names,
    "regions": _names,
    "currency": _currency,
    "script_timeout": _duration,
}
_OWN: dict[str, Callable[[object, str], Any]] = {
    key: _own(key) for key in ("tax", "exchange_rate", "discount", "committed", "machine")
}
_OWN["endpoint"] = _addresses
ENVIRONMENT_NAMES = tuple(_READERS)  # settings that the environment can set
_FILE_NAMES = (*ENVIRONMENT_NAMES, *_OWN)
_DEFAULTS: dict[str, Any] = {
    "cache_dir": None, "data_dir": None, "catalog_dir": None, "state_dir": None, "owner": "",
    "providers": (), "regions": (), "currency": "USD", "script_timeout": "10m",
    "endpoint": {}, "tax": None, "exchange_rate": {}, "discount": (), "committed": (), "machine": (),
}  # fmt: skip


def load_settings(
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    user_file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Load the settings that apply in a folder, each with its origin.

    Args:
        environ: Environment variables; by default those of this process.
        folder: Start of the upward search for `gpuplan.toml` and `pyproject.toml`; by default the current
            one.
        user_file: The user's file; by default `gpuplan.toml` in the platform's configuration folder.
        flags: Command-line values; None and empty values are ignored.

    Raises:
        UsageError: A file is invalid TOML, a key is unknown, or a value has the wrong type.
    """
    layers = list(
        _layers(
            environ=os.environ if environ is None else environ,
            folder=Path.cwd() if folder is None else folder,
            user_file=_default_user_file() if user_file is None else user_file,
        )
    )
    found = {name: Setting(default, "default") for name, default in _DEFAULTS.items()}
    for layer in reversed(layers):
        found.update(layer)
    found.update({name: Setting(value, "flag") for name, value in (flags or {}).items() if value})
    values = {name: setting.value for name, setting in found.items()}
    _require_exchange_rate(found)
    return Settings(**values, origins={name: setting.origin for name, setting in found.items()})


def get_state_folder(settings: Settings) -> Path:
    """Return the folder of launched runs: the setting, or the platform's state folder."""
    if settings.state_dir is not None:
        return settings.state_dir
    import platformdirs

    return Path(platformdirs.user_state_path("gpuplan"))


def find_project_file(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """Find the nearest project file with gpuplan settings, from a folder upward, and its content.

    In one folder, `gpuplan.toml` takes precedence over `[tool.gpuplan]` in `pyproject.toml`.
    """
    for parent in (folder, *folder.parents):
        own = parent / "gpuplan.toml"
        if own.is_file():
            return own, _read_toml(own)
        shared = parent / "pyproject.toml"
        if shared.is_file():
            table = _read_toml(shared).get("tool", {}).get("gpuplan")
            if table is not None:
                return shared, table
    return None


def _require_exchange_rate(found: Mapping[str, Setting]) -> None:
    """Raise UsageError if the currency has no exchange rate."""
    currency = found["currency"]
    if currency.value != "USD" and currency.value not in found["exchange_rate"].value:
        example = f"{currency.value} = {{ per_usd = 0.92, as_of = 2026-11-02 }}"
        raise UsageError(
            f"no exchange rate for `currency` {currency.value} (from {currency.origin})",
            hint=f"add `{example}` below `[exchange_rate]` in gpuplan.toml",
        )


def _layers(*, environ: Mapping[str, str], folder: Path, user_file: Path) -> Iterator[dict[str, Setting]]:
    """Yield the settings of each source, in order of precedence."""
    variables = {name: environ.get(ENVIRONMENT_PREFIX + name.upper()) for name in ENVIRONMENT_NAMES}
    yield {
        name: Setting(_READERS[name](value, variable), variable)
        for name, value in variables.items()
        if value and (variable := ENVIRONMENT_PREFIX + name.upper())
    }
    project = find_project_file(folder)
    if project is not None:
        yield _from_table(project[1], project[0])
    if user_file.is_file():
        yield _from_table(_read_toml(user_file), user_file)


def _from_table(table: Mapping[str, Any], path: Path) -> dict[str, Setting]:
    """Parse a file's table; relative folders are resolved against the file's own."""
    settings = {}
    readers = _READERS | _OWN
    for key, raw in table.items():
        if key not in readers:
            hint = near_names_hint(key, _FILE_NAMES, see_all=DOCUMENTATION)
            raise UsageError(f"unknown setting `{key}` in {path}", hint=hint)
        value = readers[key](raw, f"`{key}` in {path}")
        settings[key] = Setting(path.parent / value if isinstance(value, Path) else value, str(path))
    return settings


def _read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; UsageError with the place if it is unreadable."""
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} is not valid TOML: {error}", hint="correct the file, or remove it"
        ) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint="check its permissions") from error


def _default_user_file() -> Path:
    """Return the path of the user's settings file."""
    import platformdirs

    return Path(platformdirs.user_config_path("gpuplan")) / "gpuplan.toml"
