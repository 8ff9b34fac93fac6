"""Current account readings from the official clients of Colab and Kaggle."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..settings import Settings

__all__ = ["refresh_notebook_accounts"]

COMMAND_TIMEOUT_S = 20.0  # of one client command [s]


def refresh_notebook_accounts(settings: Settings, *, timeout_s: float = COMMAND_TIMEOUT_S) -> Iterator[str]:
    """Query each installed client, store its readings, and yield one line per result.

    If a client is missing, is not signed in or does not respond, previous readings or the dated rows of the
    catalog remain in use.

    Args:
        settings: Settings with the data folder and the clients' endpoints.
        timeout_s: Time limit of one client command [s].
    """
    from ..files import get_data_folder
    from ..offers.refresh.source import RefreshRequest
    from ..offers.refresh.sources.notebook_clients import NOTEBOOK_PROVIDERS, refresh_notebooks
    from ..offers.refresh.store import PriceStore

    store = PriceStore(get_data_folder(settings.data_dir))
    request = RefreshRequest(environ=os.environ, endpoints=settings.endpoint)
    for provider in NOTEBOOK_PROVIDERS:
        outcome = refresh_notebooks(provider, store=store, request=request, timeout_s=timeout_s)
        if outcome.accepted:
            yield f"{provider}: asked now ({outcome.new + outcome.changed + outcome.same} readings)"
        yield from (f"{provider}: needs {need}" for need in outcome.needs)
        yield from (f"{provider}: not read: {found.message}" for found in outcome.anomalies)
