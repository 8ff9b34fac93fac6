"""The user's own coefficients, by the accelerator that they were measured on, kept in the data folder.

`gpuplan calibrate --from` writes them (`lab/own_fit.py`). They hold for that accelerator alone; without the file
nothing is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..files import write_atomically
from ..frozen import Frozen
from ..plain import to_plain
from .coefficients import Coefficients, GenerationCoefficients, HostCoefficients, StackCoefficients

if TYPE_CHECKING:
    from ..settings import Settings

FORMAT = "gpuplan.own-coefficients/1"
FILE = "coefficients.json"
FEWEST_ROWS = 6  # from which on a chip counts as measured [-]


class DeviceUpdate(Frozen):
    """Coefficients fitted on the user's measurements of one accelerator.

    Args:
        generations: Of the accelerator's generation, by its name.
        stacks, hosts: Of the stacks and hosts that were measured, by name.
        measurements: Rows of the fit [-].
        chip: Chip of the accelerator.
        vendor: Its maker.
        runs: Kinds of runs among the rows.
        date: Day of the fit, ISO 8601.
        sources: What the rows state as their source.
    """

    generations: dict[str, GenerationCoefficients]
    stacks: dict[str, StackCoefficients]
    hosts: dict[str, HostCoefficients]
    measurements: int
    chip: str
    vendor: str
    runs: tuple[str, ...]
    date: str
    sources: tuple[str, ...]

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> DeviceUpdate:
        """Read what `to_plain` wrote; KeyError or TypeError on anything else."""
        return DeviceUpdate(
            **{
                **data,
                "generations": {k: GenerationCoefficients(**v) for k, v in data["generations"].items()},
                "stacks": {k: StackCoefficients(**v) for k, v in data["stacks"].items()},
                "hosts": {k: HostCoefficients(**v) for k, v in data["hosts"].items()},
                "runs": tuple(data["runs"]),
                "sources": tuple(data["sources"]),
            }
        )


class OwnCoefficients(Frozen):
    """Coefficients of an accelerator with the user's update, and a note that says so."""

    coefficients: Coefficients
    note: str


def get_updates_path(settings: Settings) -> Path:
    """Return the file of the user's own coefficients: in `data_dir`, or in the platform's data folder."""
    if settings.data_dir is not None:
        return settings.data_dir / FILE
    import platformdirs

    return Path(platformdirs.user_data_path("gpuplan")) / FILE


def read_updates(path: Path) -> dict[str, DeviceUpdate]:
    """Read the updates by accelerator; empty if there is no file.

    Raises:
        UsageError: It cannot be read, or another version wrote it.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != FORMAT:
            raise ValueError(f"its form is {data['schema']}, not {FORMAT}")
        return {name: DeviceUpdate.from_json(row) for name, row in data["devices"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as problem:
        raise UsageError(
            f"cannot read your own coefficients from `{path}`: {problem}",
            hint="update them again with `gpuplan calibrate --from rows.csv`, or remove them with"
            " `gpuplan calibrate --forget`",
        ) from problem


def write_updates(path: Path, updates: Mapping[str, DeviceUpdate]) -> None:
    """Write the updates: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"schema": FORMAT, "devices": to_plain(dict(updates))}, indent=2)
    write_atomically(path, text + "\n")


def delete_updates(path: Path) -> bool:
    """Delete the file of updates; return whether there was one."""
    there = path.exists()
    path.unlink(missing_ok=True)
    return there


def apply_update(packaged: Coefficients, update: DeviceUpdate) -> Coefficients:
    """Return the coefficients of the updated accelerator.

    The chip and its kinds of runs count as fitted if there were enough measurements; until then intervals are
    those of a chip that was not.
    """
    known = dict(packaged.fitted_on)
    if update.measurements >= FEWEST_ROWS:
        known |= {
            "chips": sorted({*known["chips"], update.chip}),
            "vendors": sorted({*known["vendors"], update.vendor}),
            "runs": sorted({*known["runs"], *update.runs}),
        }
    return replace(
        packaged,
        generations=packaged.generations | update.generations,
        stacks=packaged.stacks | update.stacks,
        hosts=packaged.hosts | update.hosts,
        fitted_on=known,
    )


def load_own_coefficients(settings: Settings, packaged: Coefficients) -> dict[str, OwnCoefficients]:
    """Return the user's own coefficients by accelerator; empty if there are none.

    Args:
        settings: Settings with the data folder.
        packaged: Coefficients that are updated.

    Raises:
        UsageError: The file cannot be read.
    """
    return {
        name: OwnCoefficients(coefficients=apply_update(packaged, one), note=_describe(one))
        for name, one in read_updates(get_updates_path(settings)).items()
    }


def _describe(update: DeviceUpdate) -> str:
    some = "measurement" if update.measurements == 1 else "measurements"
    return f"coefficients updated from {update.measurements} {some} on this device, {update.date}"
