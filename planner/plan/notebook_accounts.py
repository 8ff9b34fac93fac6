"""What the official clients of Colab and Kaggle say of the account now, before an answer is worked out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..settings import Settings

__all__ = ["refresh_notebook_accounts"]

PATIENCE_S = 20.0  # of one command of a client [s]


def refresh_notebook_accounts(settings: Settings, *, timeout_s: float = PATIENCE_S) -> Iterator[str]:
    """Ask each client that is installed, keep what it says among the readings, and yield what to know of it.

    A client that is not there, knows no account or does not answer takes nothing away: the readings before, or the
    dated rows of the catalog, stay.

    Args:
        settings: Where readings are kept, and which programs to ask.
        timeout_s: How long one command may take [s].
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
