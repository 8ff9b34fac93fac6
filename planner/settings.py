"""Settings, each with its origin: flag > `GPUPLAN_*` > project file > user file > default.

A project file is `gpuplan.toml`, or `[tool.gpuplan]` in `pyproject.toml`.

    cache_dir        folder of traced workloads                        default: the platform's cache folder
    data_dir         folder of refreshed prices                        default: the platform's data folder
    catalog_dir      folder of the user's catalog                      default: the packaged catalog
    state_dir        folder of launched runs                           default: the platform's state folder
    owner            label of launched machines, besides the installation's ID     default: the account's name
    providers        providers whose offers are considered             default: all
    regions          regions whose offers are considered               default: all
    currency         currency of displayed amounts                     default: USD
    script_timeout   time limit of a script                            default: 10m
    script_env       environment variables that a script may see       default: none besides the usual ones
    downloads        whether a script may load data from elsewhere     default: true
    trace_cache      whether a model is traced once and kept           default: true
    measure          whether `estimate` times steps on this machine    default: true
    keep_runs        whether `reconcile` keeps runs for estimates      default: true
    quota            whether offers are compared with your quotas      default: false
    refresh          whether old prices are refreshed: auto, ask, never    default: auto, at a terminal
    hour_value       dollars an hour of your own time is worth         default: 20
    wait_value       dollars an hour of waiting for results is worth   default: 1
    notebook_plans   plans that you pay for anyway: colab-pro          default: none
    requirements     requirements file that a machine installs         default: none
    fallbacks        similar offers that `launch` tries                default: 3
    checkpoint_every most work of a launched run lost in a crash       default: 60s, on spot as planned
    stop_loss        what ends a slow run: off, warn or stop           default: warn
    accept_old_prices, guest_cap_only    risks that `launch` may take  default: false

`script_env`, `accept_old_prices` and `guest_cap_only` are not read from a project file, which may be another's.
Lists are TOML arrays in files, and separated by commas in the environment. Files may also contain the entries of
`settings_entries` (`tax`, `exchange_rate`, `discount`, `committed`, `machine`) and `endpoint`, a table of base
URLs by price source.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from .errors import UsageError, near_names_hint

if TYPE_CHECKING:
    from .settings_entries import CommittedPrice, Discount, ExchangeRate, OwnMachine, Tax


ENVIRONMENT_PREFIX = "GPUPLAN_"


class _Setting(NamedTuple):
    """A value and its origin."""

    value: Any
    origin: str


class _Form(NamedTuple):
    """Form of a text: its pattern and conversion, the types that may stand for it, and the words of an error."""

    pattern: str
    convert: Callable[[str], Any]
    refusal: str
    hint: str
    kinds: type | tuple[type, ...] = str

    def parse(self, value: object, where: str) -> Any:
        """Convert a value; UsageError unless its text matches."""
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if isinstance(value, self.kinds) and re.fullmatch(self.pattern, text, re.DOTALL):
            return self.convert(text)
        raise UsageError(f"{where} is {self.refusal}: {value!r}", hint=self.hint)


_FOLDER = _Form(".+", lambda text: Path(text).expanduser(), "not a folder", "give a path in quotes").parse
_DURATION = _Form(".*", str, "not a duration", 'write it as "10m"').parse
_SWITCH = _Form(
    "true|false", lambda text: text == "true", "neither true nor false", "write `true` or `false`",
    (str, bool),
).parse  # fmt: skip


def _parse_names(value: object, where: str) -> tuple[str, ...]:
    """Parse a list of names; UsageError unless it is an array of strings, or a comma-separated string."""
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise UsageError(f"{where} is not a list of names: {value!r}", hint='write it as ["aws", "gcp"]')


_AMOUNT = _Form(
    r"\d+(\.\d+)?", float, "not an amount of at least zero", "write e.g. 20", (str, int, float, Decimal)
).parse  # fmt: skip


def _parse_addresses(value: object, where: str) -> dict[str, str]:
    """Parse URLs by name; UsageError unless it is a table of strings."""
    if isinstance(value, dict) and all(isinstance(address, str) for address in value.values()):
        return dict(value)
    raise UsageError(f"{where} is not a table of addresses", hint='write `azure-retail = "https://..."` in it')


def _setting(default: object, parse: Callable[[object, str], Any]) -> Any:
    """Return the field of a setting that is one value or list of names, with the parser of its values."""
    return field(default=default, metadata={"parse": parse})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings with their origins; the meaning of each is in the module's table.

    None stands for the platform's folder (of `catalog_dir`: for the packaged catalog), an empty tuple for all, and
    empty text for the default. Durations are as given.
    """

    cache_dir: Path | None = field(default=None, metadata={"parse": _FOLDER})
    data_dir: Path | None = field(default=None, metadata={"parse": _FOLDER})
    catalog_dir: Path | None = field(default=None, metadata={"parse": _FOLDER})
    state_dir: Path | None = field(default=None, metadata={"parse": _FOLDER})
    owner: str = _setting(
        "", _Form("[a-z][a-z0-9-]{0,62}", str, "not a name", "write lower-case letters, digits and hyphens").parse
    )
    providers: tuple[str, ...] = _setting((), _parse_names)
    regions: tuple[str, ...] = _setting((), _parse_names)
    # base URLs that replace the providers' own, by price source
    endpoint: Mapping[str, str] = field(default_factory=dict)
    # ISO 4217 code; an exchange rate is required unless it is USD
    currency: str = _setting(
        "USD", _Form("[A-Za-z]{3}", str.upper, "not a currency", 'write three letters: "EUR"').parse
    )
    script_timeout: str = _setting("10m", _DURATION)
    script_env: tuple[str, ...] = _setting((), _parse_names)
    downloads: bool = _setting(True, _SWITCH)
    trace_cache: bool = _setting(True, _SWITCH)
    measure: bool = _setting(True, _SWITCH)
    keep_runs: bool = _setting(True, _SWITCH)
    quota: bool = _setting(False, _SWITCH)
    refresh: Literal["auto", "ask", "never"] = _setting(
        "auto", _Form("auto|ask|never", str, "no choice", 'write "auto", "ask" or "never"').parse
    )
    hour_value: float = _setting(20.0, _AMOUNT)
    wait_value: float = _setting(1.0, _AMOUNT)
    notebook_plans: tuple[str, ...] = _setting((), _parse_names)
    requirements: str = _setting("", _Form(".*", str, "not a text", "write it in quotes").parse)
    fallbacks: int = _setting(
        3, _Form("[0-9]{1,4}", int, "not a number of offers", "write e.g. 3", (str, int)).parse
    )
    checkpoint_every: str = _setting("", _DURATION)
    stop_loss: Literal["off", "warn", "stop"] = _setting(
        "warn", _Form("off|warn|stop", str, "no action", 'write "off", "warn" or "stop"').parse
    )
    accept_old_prices: bool = _setting(False, _SWITCH)
    guest_cap_only: bool = _setting(False, _SWITCH)
    tax: Tax | None = None  # tax on bills; None for no tax
    exchange_rate: Mapping[str, ExchangeRate] = field(default_factory=dict)  # exchange rates by currency
    # discount, committed, machine: entries in the order of the file
    discount: tuple[Discount, ...] = ()
    committed: tuple[CommittedPrice, ...] = ()
    machine: tuple[OwnMachine, ...] = ()
    origins: Mapping[str, str]  # origin of each setting (`GPUPLAN_REGIONS`, a file's path, `default`)


_SCALARS: dict[str, Callable[[object, str], Any]] = {
    one.name: one.metadata["parse"] for one in fields(Settings) if one.metadata
}
PERSONAL = frozenset({"script_env", "accept_old_prices", "guest_cap_only"})  # never from a project file
_ENTRIES = ("tax", "exchange_rate", "discount", "committed", "machine")
_FILE_NAMES = (*_SCALARS, *_ENTRIES, "endpoint")


def _parse(name: str, value: object, where: str) -> Any:
    """Parse the value of a setting; entries load pydantic, which settings without them do not need."""
    if name in _ENTRIES:
        from .settings_entries import parse_entry

        return parse_entry(name, value, where)
    return _parse_addresses(value, where) if name == "endpoint" else _SCALARS[name](value, where)


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
        _iter_layers(
            environ=os.environ if environ is None else environ,
            folder=Path.cwd() if folder is None else folder,
            user_file=_default_user_file() if user_file is None else user_file,
        )
    )
    found: dict[str, _Setting] = {}
    for layer in reversed(layers):
        found.update(layer)
    found.update({name: _Setting(value, "flag") for name, value in (flags or {}).items() if value})
    origins = dict.fromkeys(_FILE_NAMES, "default") | {name: one.origin for name, one in found.items()}
    settings = Settings(**{name: one.value for name, one in found.items()}, origins=origins)
    _require_exchange_rate(settings)
    return settings


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


def _require_exchange_rate(settings: Settings) -> None:
    """Raise UsageError if the currency has no exchange rate."""
    currency = settings.currency
    if currency != "USD" and currency not in settings.exchange_rate:
        example = f"{currency} = {{ per_usd = 0.92, as_of = 2026-11-02 }}"
        raise UsageError(
            f"no exchange rate for `currency` {currency} (from {settings.origins['currency']})",
            hint=f"add `{example}` below `[exchange_rate]` in gpuplan.toml",
        )


def _iter_layers(*, environ: Mapping[str, str], folder: Path, user_file: Path) -> Iterator[dict[str, _Setting]]:
    """Yield the settings of each source, in order of precedence."""
    variables = {name: ENVIRONMENT_PREFIX + name.upper() for name in _SCALARS}
    yield {
        name: _Setting(_parse(name, value, variable), variable)
        for name, variable in variables.items()
        if (value := environ.get(variable))
    }
    project = find_project_file(folder)
    if project is not None:
        _refuse_personal(*project)
        yield _parse_table(project[1], project[0])
    if user_file.is_file():
        yield _parse_table(_read_toml(user_file), user_file)


def _refuse_personal(path: Path, table: Mapping[str, Any]) -> None:
    """Raise UsageError for a setting that gives away secrets or takes risks, in a project's file."""
    for key in sorted(PERSONAL & table.keys()):
        raise UsageError(
            f"`{key}` in {path}: a project file may not set it",
            hint=f"set `{ENVIRONMENT_PREFIX}{key.upper()}`, or write it into {_default_user_file()}",
        )


def _parse_table(table: Mapping[str, Any], path: Path) -> dict[str, _Setting]:
    """Parse a file's table; relative folders are resolved against the file's own."""
    settings = {}
    for key, raw in table.items():
        if key not in _FILE_NAMES:
            hint = near_names_hint(key, _FILE_NAMES, see_all="gpuplan --help")
            raise UsageError(f"unknown setting `{key}` in {path}", hint=hint)
        value = _parse(key, raw, f"`{key}` in {path}")
        settings[key] = _Setting(path.parent / value if isinstance(value, Path) else value, str(path))
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


def _default_user_file() -> Path:
    """Return the path of the user's settings file."""
    import platformdirs

    return Path(platformdirs.user_config_path("gpuplan")) / "gpuplan.toml"


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
