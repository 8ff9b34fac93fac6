"""Settings, each with its origin: flag > `GPUPLAN_*` > project file > user file > default.

A project file is `gpuplan.toml`, or `[tool.gpuplan]` in `pyproject.toml`. `script_env`, `accept_old_prices` and
`guest_cap_only` are not read from one, which may be another's. Lists are TOML arrays in files, and separated by
commas in the environment. Files may also contain the entries of `settings_entries` and `endpoint`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .errors import UsageError, near_names_hint
from .files import get_platform_folder

if TYPE_CHECKING:
    from .settings_entries import CommittedPrice, Discount, ExchangeRate, OwnMachine, Tax


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings with their origins.

    None stands for the platform's folder (of `catalog_dir`: for the packaged catalog), an empty tuple for all, and
    empty text for the default. Durations are as given.
    """

    cache_dir: Path | None = None  # folder of traced workloads
    data_dir: Path | None = None  # folder of refreshed prices
    catalog_dir: Path | None = None  # folder of the user's catalog
    state_dir: Path | None = None  # folder of launched runs
    owner: str = ""  # label of launched machines, besides the installation's ID; empty for the account's name
    providers: tuple[str, ...] = ()  # providers whose offers are considered
    regions: tuple[str, ...] = ()  # regions whose offers are considered
    endpoint: Mapping[str, str] = field(
        default_factory=dict
    )  # base URLs instead of the providers', by price source
    currency: str = "USD"  # of displayed amounts: ISO 4217 code; an exchange rate is required unless it is USD
    script_timeout: str = "10m"  # time limit of a script
    script_env: tuple[str, ...] = ()  # environment variables that a script may see, besides the usual ones
    downloads: bool = True  # whether a script may load data from elsewhere
    trace_cache: bool = True  # whether a model is traced once and kept
    measure: bool = True  # whether `estimate` times steps on this machine
    keep_runs: bool = True  # whether `reconcile` keeps runs for estimates
    quota: bool = False  # whether offers are compared with your quotas
    refresh: Literal["auto", "ask", "never"] = "auto"  # whether old prices are refreshed, at a terminal
    hour_value: float = 20.0  # dollars that an hour of your own time is worth
    wait_value: float = 1.0  # dollars that an hour of waiting for results is worth
    notebook_plans: tuple[str, ...] = ()  # plans that you pay for anyway, such as colab-pro
    requirements: str = ""  # requirements file that a machine installs; empty for none
    fallbacks: int = 3  # similar offers that `launch` tries
    checkpoint_every: str = ""  # most work of a launched run lost in a crash; empty for 60s, on spot as planned
    stop_loss: Literal["off", "warn", "stop"] = "warn"  # what ends a slow run
    # accept_old_prices, guest_cap_only: risks that `launch` may take
    accept_old_prices: bool = False
    guest_cap_only: bool = False
    tax: Tax | None = None  # tax on bills; None for no tax
    exchange_rate: Mapping[str, ExchangeRate] = field(default_factory=dict)  # exchange rates by currency
    # discount, committed, machine: entries in the order of the file
    discount: tuple[Discount, ...] = ()
    committed: tuple[CommittedPrice, ...] = ()
    machine: tuple[OwnMachine, ...] = ()
    origins: Mapping[str, str]  # origin of each setting (`GPUPLAN_REGIONS`, a file's path, `default`)


# --- values -----------------------------------------------------------------------------------------------------

_Parser = Callable[[object, str], Any]  # of a value, with where it stands


def _build_parser(
    pattern: str, convert: Callable[[str], Any], refusal: str, hint: str, kinds: type | tuple[type, ...] = str
) -> _Parser:
    """Return the parser of a form of text, for which `kinds` may stand; its UsageError has these words."""

    def parse(value: object, where: str) -> Any:
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if isinstance(value, kinds) and re.fullmatch(pattern, text, re.DOTALL):
            return convert(text)
        raise UsageError(f"{where} is {refusal}: {value!r}", hint=hint)

    return parse


def _parse_names(value: object, where: str) -> tuple[str, ...]:
    """Parse a list of names; UsageError unless it is an array of strings, or a comma-separated string."""
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise UsageError(f"{where} is not a list of names: {value!r}", hint='write it as ["aws", "gcp"]')


_FOLDER = _build_parser(".+", lambda text: Path(text).expanduser(), "not a folder", "give a path in quotes")
_DURATION = _build_parser(".*", str, "not a duration", 'write it as "10m"')
_SWITCH = _build_parser(
    "true|false", lambda text: text == "true", "neither true nor false", "write `true` or `false`", (str, bool)
)
_AMOUNT = _build_parser(
    r"\d+(\.\d+)?", float, "not an amount of at least zero", "write e.g. 20", (str, int, float, Decimal)
)
_SCALARS: dict[str, _Parser] = {
    **dict.fromkeys(("cache_dir", "data_dir", "catalog_dir", "state_dir"), _FOLDER),
    "owner": _build_parser(
        "[a-z][a-z0-9-]{0,62}", str, "not a name", "write lower-case letters, digits and hyphens"
    ),
    **dict.fromkeys(("providers", "regions"), _parse_names),
    "currency": _build_parser("[A-Za-z]{3}", str.upper, "not a currency", 'write three letters: "EUR"'),
    "script_timeout": _DURATION,
    "script_env": _parse_names,
    **dict.fromkeys(("downloads", "trace_cache", "measure", "keep_runs", "quota"), _SWITCH),
    "refresh": _build_parser("auto|ask|never", str, "no choice", 'write "auto", "ask" or "never"'),
    **dict.fromkeys(("hour_value", "wait_value"), _AMOUNT),
    "notebook_plans": _parse_names,
    "requirements": _build_parser(".*", str, "not a text", "write it in quotes"),
    "fallbacks": _build_parser("[0-9]{1,4}", int, "not a number of offers", "write e.g. 3", (str, int)),
    "checkpoint_every": _DURATION,
    "stop_loss": _build_parser("off|warn|stop", str, "no action", 'write "off", "warn" or "stop"'),
    **dict.fromkeys(("accept_old_prices", "guest_cap_only"), _SWITCH),
}
PERSONAL = frozenset({"script_env", "accept_old_prices", "guest_cap_only"})  # never from a project file
_ENTRIES = ("tax", "exchange_rate", "discount", "committed", "machine")
_FILE_NAMES = (*_SCALARS, *_ENTRIES, "endpoint")


def _parse(name: str, value: object, where: str) -> Any:
    """Parse the value of a setting; entries load pydantic, which settings without them do not need."""
    if name in _ENTRIES:
        from .settings_entries import parse_entry

        return parse_entry(name, value, where)
    if name != "endpoint":
        return _SCALARS[name](value, where)
    if isinstance(value, dict) and all(isinstance(address, str) for address in value.values()):
        return dict(value)
    raise UsageError(f"{where} is not a table of addresses", hint='write `azure-retail = "https://..."` in it')


# --- sources ----------------------------------------------------------------------------------------------------

ENVIRONMENT_PREFIX = "GPUPLAN_"
_Layer = dict[str, tuple[Any, str]]  # values with their origins


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
        folder: Start of the upward search for `gpuplan.toml` and `pyproject.toml`; by default the current one.
        user_file: The user's file; by default `gpuplan.toml` in the platform's configuration folder.
        flags: Command-line values; None and empty values are ignored.

    Raises:
        UsageError: A file is invalid TOML, a key is unknown, or a value has the wrong type.
    """
    layers = _iter_layers(
        environ=os.environ if environ is None else environ,
        folder=Path.cwd() if folder is None else folder,
        user_file=get_platform_folder("config") / "gpuplan.toml" if user_file is None else user_file,
    )
    found: _Layer = {}
    for layer in reversed(list(layers)):
        found.update(layer)
    found.update({name: (value, "flag") for name, value in (flags or {}).items() if value})
    origins = dict.fromkeys(_FILE_NAMES, "default") | {name: origin for name, (_, origin) in found.items()}
    settings = Settings(**{name: value for name, (value, _) in found.items()}, origins=origins)
    currency = settings.currency
    if currency != "USD" and currency not in settings.exchange_rate:
        example = f"{currency} = {{ per_usd = 0.92, as_of = 2026-11-02 }}"
        raise UsageError(
            f"no exchange rate for `currency` {currency} (from {origins['currency']})",
            hint=f"add `{example}` below `[exchange_rate]` in gpuplan.toml",
        )
    return settings


def _iter_layers(*, environ: Mapping[str, str], folder: Path, user_file: Path) -> Iterator[_Layer]:
    """Yield the settings of each source, in order of precedence."""
    variables = {name: ENVIRONMENT_PREFIX + name.upper() for name in _SCALARS}
    yield {
        name: (_parse(name, value, variable), variable)
        for name, variable in variables.items()
        if (value := environ.get(variable))
    }
    project = _find_project_file(folder)
    if project is not None:
        path, table = project
        for key in sorted(PERSONAL & table.keys()):
            raise UsageError(
                f"`{key}` in {path}: a project file may not set it",
                hint=f"set `{variables[key]}`, or write it into {user_file}",
            )
        yield _parse_table(table, path)
    if user_file.is_file():
        yield _parse_table(_read_toml(user_file), user_file)


def _find_project_file(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """Find the nearest project file with gpuplan settings, from a folder upward, and its content.

    In one folder, `gpuplan.toml` takes precedence over `[tool.gpuplan]` in `pyproject.toml`.
    """
    for parent in (folder, *folder.parents):
        own = parent / "gpuplan.toml"
        if own.is_file():
            return own, _read_toml(own)
        shared = parent / "pyproject.toml"
        table = _read_toml(shared).get("tool", {}).get("gpuplan") if shared.is_file() else None
        if table is not None:
            return shared, table
    return None


def _parse_table(table: Mapping[str, Any], path: Path) -> _Layer:
    """Parse a file's table; relative folders are resolved against the file's own."""
    settings = {}
    for key, raw in table.items():
        if key not in _FILE_NAMES:
            hint = near_names_hint(key, _FILE_NAMES, see_all="gpuplan --help")
            raise UsageError(f"unknown setting `{key}` in {path}", hint=hint)
        value = _parse(key, raw, f"`{key}` in {path}")
        settings[key] = path.parent / value if isinstance(value, Path) else value, str(path)
    return settings


def _read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; UsageError with the place if it is unreadable."""
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}", hint="correct the file, or remove it") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint="check its permissions") from error


def get_state_folder(settings: Settings) -> Path:
    """Return the folder of launched runs: the setting, or the platform's state folder."""
    return settings.state_dir or get_platform_folder("state")


VARIABLE = "GPUPLAN_TODAY"


def get_today() -> date:
    """Return the current date, or that of the environment; UsageError if it is not a date."""
    stated = os.environ.get(VARIABLE)
    if not stated:
        return date.today()
    try:
        return date.fromisoformat(stated)
    except ValueError as error:
        message = f"`{stated}` in `{VARIABLE}` is not a date"
        raise UsageError(message, hint="write it as 2026-11-25") from error
