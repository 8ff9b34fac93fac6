"""Registry of clouds: a row of `clouds.toml` for each that is launched on, asked for credentials, or renamed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from .catalog_files import load_rows, read_table
from .rows import Row


class Cloud(Row):
    """A cloud or vendor."""

    name: str  # name in offers
    title: str = ""  # name in sentences and tables
    other_names: tuple[str, ...] = ()  # other names, in lower case
    # adapter that launches on it, `module:Class` within `launch.clouds`; empty: gpuplan does not
    adapter: str = ""
    is_hyperscaler: bool = False  # whether `cloud:` of a comparison means it, and engines run Kubernetes there
    is_rented: bool = False  # whether SkyPilot and dstack rent its machines
    needed_for: str = ""  # what its credentials are needed for; empty: none are searched for
    variables: tuple[str, ...] = ()  # environment variables that contain credentials or select them
    files: tuple[str, ...] = ()  # files with credentials, relative to the home folder
    files_named_by: tuple[str, ...] = ()  # variables that name such a file
    account_variables: tuple[str, ...] = ()  # variables that select the account whose quotas are remembered
    extra: str = ""  # purpose of the extra with its clients; empty without one
    modules: tuple[str, ...] = ()  # modules of that extra


COLAB = "colab"
NOTEBOOKS, OWNED = frozenset({COLAB, "kaggle"}), frozenset({"local", "own"})  # hosted; the user's
CLOUDS = load_rows(read_table(files(__package__), "clouds.toml"), "cloud", Cloud)
PROVIDER_ALIASES: Mapping[str, str] = {other: cloud.name for cloud in CLOUDS for other in cloud.other_names}
TITLES: Mapping[str, str] = {cloud.name: cloud.title for cloud in CLOUDS if cloud.title}
HYPERSCALERS = tuple(cloud.name for cloud in CLOUDS if cloud.is_hyperscaler)


def find_tier(instance_type: str) -> str:
    """Return the tier in which a marketplace sells a machine, in brackets after its name; empty without one.

    Example:
        >>> find_tier("NVIDIA H100 PCIe [secure]"), find_tier("g5.xlarge")
        ('secure', '')
    """
    return instance_type[:-1].rpartition(" [")[2] if instance_type.endswith("]") else ""
