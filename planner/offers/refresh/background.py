"""Refresh of old prices in a process of its own while a command works: no answer waits for it, or fails by it.

The process is detached: it ends by itself soon after `TOTAL_S`, and replaces each file as a whole. Without the
setting `refresh`, only commands at a terminal start it, after they have once said so: no CI, no test, no assistant
and no program that uses gpuplan as a library.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread

from ...errors import GpuplanError
from ...files import get_data_folder
from ...settings import VARIABLE, Settings, get_today, load_settings
from ..catalog import Catalog, load_catalog, load_user_catalog
from ..price_history import STALE_AFTER_DAYS, compute_age_days
from ..refreshed_prices import PriceStore

PAUSE_S = 3600.0  # between two attempts
SAID = "said.txt"  # marks that the user knows
ASKED = "asked.txt"  # marks the last attempt
INTRODUCTION = "prices older than a week are refreshed in the background; GPUPLAN_REFRESH=never turns that off"
QUESTION = "Prices are older than a week. Refresh them in the background, from public lists?"


@dataclass(frozen=True, slots=True)
class RunningRefresh:
    """A refresh that may have written prices since it was started."""

    folder: Path  # folder of refreshed prices
    before: frozenset[tuple[str, int]]  # times at which its files had been written

    def renew(self, catalog: Catalog) -> Catalog:
        """Return the catalog with the prices that have arrived, or the same one if none have."""
        if _list_files(self.folder) == self.before:
            return catalog
        return replace(catalog, refreshed=self.folder)


def start_refresh(
    catalog: Catalog,
    settings: Settings,
    *,
    say: Callable[[str], None] | None = None,
    ask: Callable[[str], bool] | None = None,
) -> RunningRefresh | None:
    """Start a refresh of prices if they are older than a week and the user allows it; None without one.

    `say` prints a line on the terminal, and `ask` asks a question there; None without a terminal.
    """
    is_set = settings.origins["refresh"] != "default"
    if settings.refresh == "never" or settings.catalog_dir is not None:
        return None
    if not is_set and (say is None or os.environ.get("CI") or os.environ.get(VARIABLE)):
        return None
    folder = get_data_folder(settings.data_dir)
    try:
        asked = folder / "refresh" / ASKED
        is_recent = asked.exists() and 0.0 <= time.time() - asked.stat().st_mtime < PAUSE_S
        if is_recent or not find_stale(catalog):
            return None
        (folder / "refresh").mkdir(parents=True, exist_ok=True)
        if settings.refresh == "ask" and not (ask is not None and ask(QUESTION)):
            return None
        said = folder / "refresh" / SAID
        if not is_set and say is not None and not said.exists():
            say(INTRODUCTION)
            said.touch()
        asked.touch()
        running = RunningRefresh(folder, _list_files(folder))
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is the command's
        )
        Thread(target=process.wait, daemon=True).start()
    except OSError:  # a folder that cannot be written
        return None
    return running


def find_stale(catalog: Catalog) -> list[str]:
    """Return the providers with a public price list whose newest price is older than a week."""
    from .run import PROVIDERS

    newest: dict[str, str] = {}
    for offer in catalog.offers:
        if offer.price_as_of and offer.usd_per_hour:
            newest[offer.provider] = max(offer.price_as_of, newest.get(offer.provider, ""))
    today = get_today()
    known = [name for name in PROVIDERS if name in newest]
    return [name for name in known if compute_age_days(newest[name], today=today) > STALE_AFTER_DAYS]


def _list_files(folder: Path) -> frozenset[tuple[str, int]]:
    """Return the price files of a store with the times at which they were written."""
    with suppress(OSError):
        return frozenset((one.name, one.stat().st_mtime_ns) for one in (folder / "prices").glob("*.csv"))
    return frozenset()


def main() -> None:
    """Refresh what is old in the store of the settings; an error is left to `gpuplan catalog refresh`."""
    from .run import build_jobs, refresh_providers

    with suppress(OSError, AttributeError):
        os.nice(10)
    with suppress(GpuplanError):
        settings = load_settings()
        if names := find_stale(load_user_catalog(settings)):
            jobs = build_jobs(load_catalog(), providers=names, environ=os.environ, endpoints=settings.endpoint)
            refresh_providers(jobs, store=PriceStore(get_data_folder(settings.data_dir)))


if __name__ == "__main__":
    main()
