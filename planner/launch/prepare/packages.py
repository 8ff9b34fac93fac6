"""Packages that a rented machine installs: in the versions of this environment, where the script was tried."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from ...errors import UsageError

__all__ = ["PACKAGES", "find_pinned_packages", "pin_versions"]

PACKAGES = ("keras", "jax")


def find_pinned_packages() -> tuple[str, ...]:
    """Return what this environment has of the packages that every run needs, each with its version."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name}=={version(name).partition('+')[0]}")
        except PackageNotFoundError:
            continue
    return tuple(found)


def pin_versions(wanted: tuple[str, ...], packages: tuple[str, ...]) -> list[str]:
    """Return requirements with the versions of a plan.

    Args:
        wanted: Names, with the extras that an accelerator needs.
        packages: Of the plan, each with its version.

    Raises:
        UsageError: The plan has no version of one.

    Example:
        >>> pin_versions(("keras", "jax[cuda12]"), ("keras==3.15.1", "jax==0.10.2"))
        ['keras==3.15.1', 'jax[cuda12]==0.10.2']
    """
    versions = dict(one.split("==", 1) for one in packages)
    for name in wanted:
        if name.partition("[")[0] not in versions:
            raise UsageError(
                f"`{name.partition('[')[0]}` is not installed here, so that no version of it is known",
                hint="install it, or name a file of the source: `--requirements requirements.txt`",
            )
    return [f"{name}=={versions[name.partition('[')[0]]}" for name in wanted]
