"""The user's own coefficients for `gpuplan calibrate`: update from files of measurements, and deletion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ..lab.own_fit import UserFit


def update_own_coefficients(files: Sequence[Path]) -> None:
    """Fit, keep and print the user's own coefficients of each accelerator in some files.

    Raises:
        UsageError: A file is broken, or names an unknown accelerator.
        GpuplanError: No coefficient can be fitted on any row.
    """
    from ..lab.own_fit import fit_user_rows
    from ..offers.catalog import load_catalog, resolve_accelerator
    from ..predict.keras_torch_host import load_user_coefficients
    from ..predict.measurements import read_measurements
    from ..predict.own_coefficients import get_updates_path, read_updates, write_updates
    from ..render.own_fit import emit_own_fit
    from ..render.progress import status
    from ..settings import load_settings

    settings = load_settings()
    path, rows = get_updates_path(settings), [row for file in files for row in read_measurements(file)]
    kept, catalog = read_updates(path), load_catalog(settings.catalog_dir)
    with status("tracing") as progress:
        found = fit_user_rows(
            rows,
            lambda name: resolve_accelerator(catalog, name),
            load_user_coefficients(),
            today=datetime.now(UTC).date(),
            progress=progress,
        )
    _report_unused(found, files)
    write_updates(path, kept | {one.accelerator: one.update for one in found.devices})
    emit_own_fit(found)
    typer.echo(f"wrote {path}", err=True)


def _report_unused(found: UserFit, files: Sequence[Path]) -> None:
    """Print each reason why rows were left out; GpuplanError if all were."""
    from ..errors import GpuplanError

    for reason, count in Counter(reason for _, reason in found.unused).items():
        typer.echo(f"{count} {'row' if count == 1 else 'rows'} not used: {reason}", err=True)
    if not found.devices:
        named = " and ".join(f"`{file}`" for file in files)
        raise GpuplanError(
            f"no coefficient can be fitted on {named}",
            hint="rows of one GPU are needed, as of `gpuplan benchmark`",
        )


def forget_own_coefficients() -> None:
    """Delete the user's own coefficients."""
    from ..predict.own_coefficients import delete_updates, get_updates_path
    from ..settings import load_settings

    path = get_updates_path(load_settings())
    typer.echo(f"deleted {path}" if delete_updates(path) else f"there is no {path}", err=True)
