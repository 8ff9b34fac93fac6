"""How long a Keras model trains, and what it costs, on every accelerator that can be rented.

    >>> import gpuplan
    >>> gpuplan.estimate("ResNet50", samples=50_000, epochs=10)  # doctest: +SKIP

Importing this package loads nothing else; each name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._version import __version__
    from .api import Estimate, breakeven, estimate
    from .cli.notebook_magic import load_ipython_extension
    from .errors import CredentialsError, GpuplanError, NoAnswerError, UsageError
    from .step_timer import StepTimer

__all__ = [
    "CredentialsError",
    "Estimate",
    "GpuplanError",
    "NoAnswerError",
    "StepTimer",
    "UsageError",
    "__version__",
    "breakeven",
    "estimate",
    "load_ipython_extension",
]

_HOME = {
    "CredentialsError": ".errors",
    "Estimate": ".api",
    "GpuplanError": ".errors",
    "NoAnswerError": ".errors",
    "StepTimer": ".step_timer",
    "UsageError": ".errors",
    "__version__": "._version",
    "breakeven": ".api",
    "estimate": ".api",
    "load_ipython_extension": ".cli.notebook_magic",  # for `%load_ext gpuplan`
}


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
