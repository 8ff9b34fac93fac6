"""Packages that a rented machine installs, in the versions of this environment."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from ...errors import UsageError

__all__ = ["PACKAGES", "find_pinned_packages", "pin_versions"]

PACKAGES = ("keras", "jax")


def find_pinned_packages() -> tuple[str, ...]:
    """Return the installed ones of the packages that every run needs, pinned to their versions."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name}=={version(name).partition('+')[0]}")
        except PackageNotFoundError:
            continue
    return tuple(found)


def pin_versions(wanted: tuple[str, ...], packages: tuple[str, ...]) -> list[str]:
    """Return requirements pinned to the versions of a plan.

    Args:
        wanted: Names, with the extras that an accelerator needs.
        packages: Pinned packages of the plan.

    Raises:
        UsageError: The plan has no version of a package.

    Example:
        >>> pin_versions(("keras", "jax[cuda12]"), ("keras==3.15.1", "jax==0.10.2"))
        ['keras==3.15.1', 'jax[cuda12]==0.10.2']
    """
    versions = dict(one.split("==", 1) for one in packages)
    for name in wanted:
        if name.partition("[")[0] not in versions:
            raise UsageError(
                f"`{name.partition('[')[0]}` is not installed here, so its version is unknown",
                hint="install it, or give a file of the source: `--requirements requirements.txt`",
            )
    return [f"{name}=={versions[name.partition('[')[0]]}" for name in wanted]
