"""Account data of Colab and Kaggle from their official command-line clients on the PATH.

Kaggle: ``kaggle quota --format json`` of kaggle 2.2 (`KaggleApi.quota_view_cli`): weekly hours for GPU and
TPU, as strings (`"30.00h"`). Colab: ``colab usage`` and ``colab sessions`` of google-colab-cli 0.7, which
have no machine-readable output: three labelled lines, and one line per runtime. Units per hour belong to one
machine only while a single runtime of standard shape is active. These figures are not prices, so the clients
are not a ``PriceSource``: their readings are stored as `notebooks/<provider>.csv` in the data folder.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from ..errors import FetchError
from ..outcome import RefreshOutcome
from ..sanity_checks import Anomaly
from ..source import RefreshRequest, parse_decimal
from ..store import PriceStore

READING_COLUMNS = ("name", "value", "source", "fetched_at")
TIMEOUT_S = 60.0
HOURS_OF_A_WEEK = 168
HARDWARE = {
    "CPU": "cpu", "T4": "t4", "L4": "l4", "A100": "a100-40gb", "H100": "h100", "G4": "g4",
    "V5E1": "tpu-v5e-1", "V6E1": "tpu-v6e-1",
}  # fmt: skip
ONE_SHAPE = ("L4", "V5E1", "V6E1")  # high memory only: google-colab-cli, HIGH_MEM_ONLY_ACCELERATORS
USAGE = {
    "units_left": r"^Current balance: (\S+) compute units$",
    "units_per_hour": r"^Usage rate: (\S+)/hr$",
    "runtimes": r"^Active assignments: (\S+)$",
}
SESSION = re.compile(r"^\[[^\]]*\] \S+ \| Hardware: (\S+) \| Shape: (.+?) \| Variant: ", re.MULTILINE)


class _LoggedOutError(Exception):
    """The client is not logged in to an account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _NotebookClient:
    """A notebook provider's command-line client.

    Args:
        source: Name in settings and messages.
        program: Program name on the PATH.
        install, log_in: Commands to install it and to log in.
        logged_out: Text it prints when not logged in.
        read: Function that returns readings by name, and requirements for further readings.
    """

    source: str
    program: str
    install: str
    log_in: str
    logged_out: str
    read: Callable[[Callable[..., str]], tuple[dict[str, str], list[str]]]


def refresh_notebooks(
    provider: str, *, store: PriceStore, request: RefreshRequest, timeout_s: float = TIMEOUT_S
) -> RefreshOutcome:
    """Update the readings of a notebook provider from its client; incomplete output changes nothing.

    Args:
        provider: One of ``NOTEBOOK_PROVIDERS``.
        store: Store of readings.
        request: Refresh request; an endpoint for the source replaces the program on the PATH.
        timeout_s: Time limit for one command of the client [s].
    """
    client, outcome = _CLIENTS[provider], RefreshOutcome(provider=provider)
    program = shutil.which(request.endpoint(client.source, client.program))
    if program is None:
        outcome.needs.append(f"{client.source}: the official client: {client.install}")
        return outcome
    try:
        readings, needs = client.read(_build_runner(client, program, timeout_s))
    except _LoggedOutError:
        outcome.needs.append(f"{client.source}: an account: {client.log_in}")
        return outcome
    except FetchError as error:
        outcome.sources.append(client.source)
        outcome.refused.append(client.source)
        found = Anomaly(code="failed", what=client.source, message=str(error), rejects_part=True)
        outcome.anomalies.append(found)
        return outcome
    outcome.sources.append(client.source)
    outcome.accepted.append(client.source)
    outcome.needs += [f"{client.source}: {need}" for need in needs]
    with store.locked(provider):
        _store_readings(provider, readings, client.source, store, outcome)
    return outcome


def _store_readings(
    provider: str, readings: Mapping[str, str], source: str, store: PriceStore, outcome: RefreshOutcome
) -> None:
    """Store new readings; earlier readings of other names stay."""
    rows = {row["name"]: row for row in store.table("notebooks", provider, READING_COLUMNS)}
    at = datetime.now(UTC).isoformat(timespec="seconds")
    for name, value in readings.items():
        before = rows.get(name)
        outcome.new += before is None
        outcome.changed += before is not None and before["value"] != value
        outcome.same += before is not None and before["value"] == value
        rows[name] = {"name": name, "value": value, "source": source, "fetched_at": at}
    lines = [[row[column] for column in READING_COLUMNS] for _, row in sorted(rows.items())]
    store.write_table("notebooks", provider, READING_COLUMNS, lines)


def _build_runner(client: _NotebookClient, program: str, timeout_s: float) -> Callable[..., str]:
    """Build a function that runs a command of a client and returns its standard output."""

    def ask(*arguments: str) -> str:
        what = " ".join((client.program, *arguments))
        try:
            done = subprocess.run(
                [program, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise FetchError(f"`{what}` did not respond within {timeout_s:g} s", kind="slow") from None
        except OSError as error:
            raise FetchError(f"`{what}` could not be run: {error.strerror}", kind="unreachable") from error
        out, err = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
        if done.returncode == 0:
            return "\n".join(out.splitlines())
        if client.logged_out in out + err:
            raise _LoggedOutError
        last = ((err or out).strip().splitlines() or ["no output"])[-1]
        raise FetchError(f"`{what}` failed with exit code {done.returncode}: {last[:200]}", kind="refused")

    return ask


def _read_kaggle(ask: Callable[..., str]) -> tuple[dict[str, str], list[str]]:
    """Return the weekly hours allowed and used on Kaggle; FetchError for unknown output."""
    out = ask("quota", "--format", "json")
    start = re.search(r"^\[", out, re.MULTILINE)  # warnings may come first
    try:
        rows = json.loads(out[start.start() :]) if start else []
        readings = dict(pair for row in rows for pair in _parse_kaggle_quota(row).items())
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FetchError("unexpected output of `kaggle quota`", kind="malformed") from error
    if not readings:
        raise FetchError("`kaggle quota` names neither GPU nor TPU", kind="malformed")
    return readings, []


def _parse_kaggle_quota(row: Mapping[str, str]) -> dict[str, str]:
    """Return the readings of one accelerator's quota; empty for other resources."""
    kind = row["resource"].lower()
    if kind not in ("gpu", "tpu"):
        return {}
    used, allowed = (
        parse_decimal(row[key].removesuffix("h"), what=f"{kind} hours {key}") for key in ("used", "total")
    )
    if not (0 < allowed <= HOURS_OF_A_WEEK and used >= 0):
        message = f"`kaggle quota` reports {used} h used of {allowed} h per week of {kind.upper()}"
        raise FetchError(message, kind="refused")
    hours = {f"{kind}_hours_used": format(used, "f"), f"{kind}_hours_allowed": format(allowed, "f")}
    if row["refreshAt"]:
        hours[f"{kind}_refresh_at"] = datetime.fromisoformat(row["refreshAt"]).isoformat()
    return hours


def _read_colab(ask: Callable[..., str]) -> tuple[dict[str, str], list[str]]:
    """Return the remaining units and, with one active runtime, its rate; FetchError for unknown output."""
    out = ask("usage")
    found = {name: re.search(form, out, re.MULTILINE) for name, form in USAGE.items()}
    usage = {name: parse_decimal(m[1], what=f"colab's {name}") for name, m in found.items() if m is not None}
    if usage.keys() != USAGE.keys() or min(usage.values()) < 0:
        raise FetchError("unexpected output of `colab usage`", kind="malformed")
    readings = {"units_left": format(usage["units_left"], "f")}
    if usage["runtimes"] != 1 or not usage["units_per_hour"]:
        return readings, ["exactly one active runtime that uses units, to read its rate: colab new --gpu T4"]
    return _add_rate(readings, usage["units_per_hour"], SESSION.findall(ask("sessions")))


def _add_rate(
    readings: dict[str, str], units_per_hour: Decimal, sessions: list[tuple[str, str]]
) -> tuple[dict[str, str], list[str]]:
    """Add the rate of the single runtime; unchanged if it is not of the listed shape."""
    if len(sessions) != 1 or sessions[0][0] not in HARDWARE:
        return readings, ["a runtime listed by `colab sessions`, to read its rate"]
    hardware, shape = sessions[0]
    if shape.lower() != "standard" and hardware not in ONE_SHAPE:
        return readings, [
            f"a runtime in the standard shape, to read its rate: {hardware} is active as {shape}"
        ]
    return {**readings, f"units_per_hour/{HARDWARE[hardware]}": format(units_per_hour, "f")}, []


_CLIENTS = {
    "colab": _NotebookClient(
        source="colab-usage",
        program="colab",
        install="pip install google-colab-cli (Python 3.12)",
        log_in="run `colab usage` once and follow its instructions",
        logged_out="To authorize colab-cli",
        read=_read_colab,
    ),
    "kaggle": _NotebookClient(
        source="kaggle-quota",
        program="kaggle",
        install="pip install kaggle",
        log_in="kaggle auth login",
        logged_out="Authentication required",
        read=_read_kaggle,
    ),
}
NOTEBOOK_PROVIDERS = tuple(_CLIENTS)
