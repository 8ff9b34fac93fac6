"""Colab and Kaggle: what their official clients say about the account, asked as programs on the PATH.

Kaggle: ``kaggle quota --format json`` of kaggle 2.2 (`KaggleApi.quota_view_cli`): hours of the week, as texts
(`"30.00h"`), for GPU and TPU. Colab: ``colab usage`` and ``colab sessions`` of google-colab-cli 0.7, which have no
machine-readable form: three labelled lines, and a line a runtime. An hour's units belong to a machine only while
it alone is up, in the standard shape. What a client says is no price, so that these are no ``PriceSource``:
what they yield are readings, kept as `notebooks/<provider>.csv` in the data folder.
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

from .guards import Suspicion
from .run import Outcome
from .source import FetchError, Request, decimal_of
from .store import Store

__all__ = ["NOTEBOOK_PROVIDERS", "READING_COLUMNS", "refresh_notebooks"]

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
    """The client has no account to ask about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Client:
    """A vendor's client.

    Args:
        source: What settings and messages call it.
        program: Its name on the PATH.
        install, log_in: What a user types to have it, and to have it know the account.
        logged_out: What it prints when it knows none.
        read: Returns readings by name, and what more could be read.
    """

    source: str
    program: str
    install: str
    log_in: str
    logged_out: str
    read: Callable[[Callable[..., str]], tuple[dict[str, str], list[str]]]


def refresh_notebooks(
    provider: str, *, store: Store, request: Request, timeout_s: float = TIMEOUT_S
) -> Outcome:
    """Return how it went to ask a provider's client; what it said before stays unless it says something whole.

    Args:
        provider: One of ``NOTEBOOK_PROVIDERS``.
        store: Where readings are kept.
        request: Names another program than the one on the PATH as the source's endpoint.
        timeout_s: How long one command of the client may take [s].
    """
    client, outcome = _CLIENTS[provider], Outcome(provider=provider)
    program = shutil.which(request.endpoint(client.source, client.program))
    if program is None:
        outcome.needs.append(f"{client.source}: the official client: {client.install}")
        return outcome
    try:
        readings, needs = client.read(_asker(client, program, timeout_s))
    except _LoggedOutError:
        outcome.needs.append(f"{client.source}: an account: {client.log_in}")
        return outcome
    except FetchError as error:
        outcome.sources.append(client.source)
        outcome.refused.append(client.source)
        found = Suspicion(code="failed", what=client.source, message=str(error), refuses=True)
        outcome.suspicions.append(found)
        return outcome
    outcome.sources.append(client.source)
    outcome.accepted.append(client.source)
    outcome.needs += [f"{client.source}: {need}" for need in needs]
    with store.locked(provider):
        _keep(provider, readings, client.source, store, outcome)
    return outcome


def _keep(provider: str, readings: Mapping[str, str], source: str, store: Store, outcome: Outcome) -> None:
    """Put readings in the places of those before; what was not read this time stays."""
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


def _asker(client: _Client, program: str, timeout_s: float) -> Callable[..., str]:
    """Return a function that runs a command of a client and returns its standard output."""

    def ask(*arguments: str) -> str:
        what = " ".join((client.program, *arguments))
        try:
            done = subprocess.run(
                [program, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                timeout=timeout_s, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise FetchError(f"`{what}` did not answer within {timeout_s:g} s", kind="slow") from None
        except OSError as error:
            raise FetchError(f"`{what}` cannot be run: {error.strerror}", kind="unreachable") from error
        out, err = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
        if done.returncode == 0:
            return "\n".join(out.splitlines())
        if client.logged_out in out + err:
            raise _LoggedOutError
        last = ((err or out).strip().splitlines() or ["nothing said"])[-1]
        raise FetchError(f"`{what}` ended with {done.returncode}: {last[:200]}", kind="refused")

    return ask


def _read_kaggle(ask: Callable[..., str]) -> tuple[dict[str, str], list[str]]:
    """Return hours of the week that Kaggle allows and that are used; FetchError when it says something else."""
    out = ask("quota", "--format", "json")
    start = re.search(r"^\[", out, re.MULTILINE)  # warnings may come first
    try:
        rows = json.loads(out[start.start() :]) if start else []
        readings = dict(pair for row in rows for pair in _kaggle_readings(row).items())
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FetchError("`kaggle quota` answered in another form", kind="malformed") from error
    if not readings:
        raise FetchError("`kaggle quota` names neither GPU nor TPU", kind="malformed")
    return readings, []


def _kaggle_readings(row: Mapping[str, str]) -> dict[str, str]:
    """Return the readings of one accelerator's quota; none for another resource."""
    kind = row["resource"].lower()
    if kind not in ("gpu", "tpu"):
        return {}
    used, allowed = (
        decimal_of(row[key].removesuffix("h"), what=f"{kind} hours {key}") for key in ("used", "total")
    )
    if not (0 < allowed <= HOURS_OF_A_WEEK and used >= 0):
        message = f"`kaggle quota` says {used} h used of {allowed} h a week of {kind.upper()}"
        raise FetchError(message, kind="refused")
    hours = {f"{kind}_hours_used": format(used, "f"), f"{kind}_hours_allowed": format(allowed, "f")}
    if row["refreshAt"]:
        hours[f"{kind}_refresh_at"] = datetime.fromisoformat(row["refreshAt"]).isoformat()
    return hours


def _read_colab(ask: Callable[..., str]) -> tuple[dict[str, str], list[str]]:
    """Return the units left and, while one runtime is up, what it burns; FetchError for another answer."""
    out = ask("usage")
    found = {name: re.search(form, out, re.MULTILINE) for name, form in USAGE.items()}
    said = {name: decimal_of(m[1], what=f"colab's {name}") for name, m in found.items() if m is not None}
    if said.keys() != USAGE.keys() or min(said.values()) < 0:
        raise FetchError("`colab usage` answered in another form", kind="malformed")
    readings = {"units_left": format(said["units_left"], "f")}
    if said["runtimes"] != 1 or not said["units_per_hour"]:
        return readings, ["one runtime that is up and uses units, for what it burns: colab new --gpu T4"]
    return _with_rate(readings, said["units_per_hour"], SESSION.findall(ask("sessions")))


def _with_rate(
    readings: dict[str, str], units_per_hour: Decimal, sessions: list[tuple[str, str]]
) -> tuple[dict[str, str], list[str]]:
    """Return the readings with the rate of the one runtime; without it when its machine is not the listed one."""
    if len(sessions) != 1 or sessions[0][0] not in HARDWARE:
        return readings, ["a runtime that `colab sessions` names, for what it burns"]
    hardware, shape = sessions[0]
    if shape.lower() != "standard" and hardware not in ONE_SHAPE:
        return readings, [f"a runtime in the standard shape, for what it burns: {hardware} is up as {shape}"]
    return {**readings, f"units_per_hour/{HARDWARE[hardware]}": format(units_per_hour, "f")}, []


_CLIENTS = {
    "colab": _Client(
        source="colab-usage", program="colab", install="pip install google-colab-cli (Python 3.12)",
        log_in="run `colab usage` once and follow it", logged_out="To authorize colab-cli", read=_read_colab,
    ),
    "kaggle": _Client(
        source="kaggle-quota", program="kaggle", install="pip install kaggle", log_in="kaggle auth login",
        logged_out="Authentication required", read=_read_kaggle,
    ),
}  # fmt: skip
NOTEBOOK_PROVIDERS = tuple(_CLIENTS)
