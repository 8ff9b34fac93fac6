"""How long a machine lives: distributions of up time with the integrals that a bill needs.

Times are in seconds. A law knows its distribution function and its partial moments up to a time, and can be
drawn from. All are exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from numpy.random import Generator

__all__ = [
    "CensoredDistribution",
    "Exponential",
    "LifetimeDistribution",
    "LogNormal",
    "build_lifetime_distribution",
]

_NORMAL = NormalDist()


class LifetimeDistribution(Protocol):
    """A distribution of lives."""

    def cdf(self, time_s: float) -> float:
        """Return the probability that a life ends before a time [-]."""
        ...

    def partial_mean_s(self, time_s: float) -> float:
        """Return the mean of the lives that end before a time, the others counted as nothing [s]."""
        ...

    def partial_square_s2(self, time_s: float) -> float:
        """Return the same of the square [s^2]."""
        ...

    def draw(self, generator: Generator, count: int) -> Any:
        """Return lives, drawn [s]."""
        ...


@dataclass(frozen=True, slots=True)
class Exponential:
    """Lives without memory.

    Args:
        mean_s: Mean life [s].
    """

    mean_s: float

    def cdf(self, time_s: float) -> float:
        """Return the probability that a life ends before a time [-]."""
        return -math.expm1(-time_s / self.mean_s)

    def partial_mean_s(self, time_s: float) -> float:
        """Return M - (t + M) exp(-t / M) [s]."""
        return self.mean_s - (time_s + self.mean_s) * math.exp(-time_s / self.mean_s)

    def partial_square_s2(self, time_s: float) -> float:
        """Return 2 M^2 - (t^2 + 2 M t + 2 M^2) exp(-t / M) [s^2]."""
        mean = self.mean_s
        return 2.0 * mean**2 - (time_s**2 + 2.0 * mean * time_s + 2.0 * mean**2) * math.exp(-time_s / mean)

    def draw(self, generator: Generator, count: int) -> Any:
        """Return lives, drawn [s]."""
        return generator.exponential(self.mean_s, count)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Heavy-tailed lives: many end soon, a few last long.

    Args:
        mean_s: Mean life [s].
        median_s: Median life, below the mean [s].
    """

    mean_s: float
    median_s: float

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm: mean / median = exp(sigma^2 / 2) [-]."""
        return math.sqrt(2.0 * math.log(self.mean_s / self.median_s))

    def cdf(self, time_s: float) -> float:
        """Return the probability that a life ends before a time [-]."""
        return self._share(time_s, shift=0.0)

    def partial_mean_s(self, time_s: float) -> float:
        """Return the mean of the lives that end before a time, the others counted as nothing [s]."""
        return self.mean_s * self._share(time_s, shift=1.0)

    def partial_square_s2(self, time_s: float) -> float:
        """Return the same of the square [s^2]."""
        return self.median_s**2 * math.exp(2.0 * self.sigma**2) * self._share(time_s, shift=2.0)

    def _share(self, time_s: float, *, shift: float) -> float:
        """Return the normal probability that belongs to the moment of order `shift` [-]."""
        if time_s <= 0.0:
            return 0.0
        return _NORMAL.cdf(math.log(time_s / self.median_s) / self.sigma - shift * self.sigma)

    def draw(self, generator: Generator, count: int) -> Any:
        """Return lives, drawn [s]."""
        return generator.lognormal(math.log(self.median_s), self.sigma, count)


@dataclass(frozen=True, slots=True)
class CensoredDistribution:
    """Lives that a rule ends at the latest after some time.

    Args:
        law: Without the rule.
        longest_s: No life is longer [s].
    """

    law: Exponential | LogNormal
    longest_s: float

    def cdf(self, time_s: float) -> float:
        """Return the probability that a life ends before a time [-]."""
        return 1.0 if time_s > self.longest_s else self.law.cdf(time_s)

    def partial_mean_s(self, time_s: float) -> float:
        """Return the mean of the lives that end before a time, the others counted as nothing [s]."""
        return self._partial(time_s, self.law.partial_mean_s, self.longest_s)

    def partial_square_s2(self, time_s: float) -> float:
        """Return the same of the square [s^2]."""
        return self._partial(time_s, self.law.partial_square_s2, self.longest_s**2)

    def _partial(self, time_s: float, partial: Any, at_the_end: float) -> float:
        if time_s <= self.longest_s:
            return float(partial(time_s))
        return float(partial(self.longest_s)) + (1.0 - self.law.cdf(self.longest_s)) * at_the_end

    def draw(self, generator: Generator, count: int) -> Any:
        """Return lives, drawn [s]."""
        return self.law.draw(generator, count).clip(max=self.longest_s)


def build_lifetime_distribution(
    *, mean_s: float, median_s: float | None = None, longest_s: float | None = None
) -> LifetimeDistribution:
    """Return the law of a mean life, heavy-tailed where a median far below that of an exponential is known.

    Args:
        mean_s: Mean life [s].
        median_s: Median; None: unknown, lives are taken to have no memory [s].
        longest_s: No life is longer; None: no such rule [s].

    Example:
        >>> build_lifetime_distribution(mean_s=3600.0)
        Exponential(mean_s=3600.0)
        >>> build_lifetime_distribution(mean_s=3600.0, median_s=900.0)
        LogNormal(mean_s=3600.0, median_s=900.0)
    """
    heavy = median_s is not None and median_s < 0.95 * math.log(2.0) * mean_s
    law = LogNormal(mean_s, median_s) if heavy and median_s is not None else Exponential(mean_s)
    return law if longest_s is None else CensoredDistribution(law, longest_s)
