"""Lifetime distributions of preemptible machines, and the 90th percentile of a run on them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Protocol

_NORMAL = NormalDist()


class LifetimeDistribution(Protocol):
    """Distribution of machine lifetimes X."""

    def cdf(self, time_s: float) -> float:
        """Return P(X < t) [-]."""
        ...

    def partial_mean_s(self, time_s: float) -> float:
        """Return the partial mean E[X; X < t] [s]."""
        ...

    def partial_square_s2(self, time_s: float) -> float:
        """Return the partial second moment E[X^2; X < t] [s^2]."""
        ...


@dataclass(frozen=True, slots=True)
class Exponential:
    """Exponential distribution: constant preemption rate.

    Args:
        mean_s: Mean lifetime M [s].
    """

    mean_s: float

    def cdf(self, time_s: float) -> float:
        """Return P(X < t) [-]."""
        return -math.expm1(-time_s / self.mean_s)

    def partial_mean_s(self, time_s: float) -> float:
        """Return the partial mean M - (t + M) exp(-t / M) [s]."""
        return self.mean_s - (time_s + self.mean_s) * math.exp(-time_s / self.mean_s)

    def partial_square_s2(self, time_s: float) -> float:
        """Return the partial second moment 2 M^2 - (t^2 + 2 M t + 2 M^2) exp(-t / M) [s^2]."""
        mean = self.mean_s
        return 2.0 * mean**2 - (time_s**2 + 2.0 * mean * time_s + 2.0 * mean**2) * math.exp(-time_s / mean)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Log-normal distribution: many short lifetimes, a few long ones.

    Args:
        mean_s: Mean lifetime [s].
        median_s: Median lifetime, below the mean [s].
    """

    mean_s: float
    median_s: float

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm: mean / median = exp(sigma^2 / 2) [-]."""
        return math.sqrt(2.0 * math.log(self.mean_s / self.median_s))

    def cdf(self, time_s: float) -> float:
        """Return P(X < t) [-]."""
        return self._share(time_s, shift=0.0)

    def partial_mean_s(self, time_s: float) -> float:
        """Return the partial mean E[X; X < t] [s]."""
        return self.mean_s * self._share(time_s, shift=1.0)

    def partial_square_s2(self, time_s: float) -> float:
        """Return the partial second moment E[X^2; X < t] [s^2]."""
        return self.median_s**2 * math.exp(2.0 * self.sigma**2) * self._share(time_s, shift=2.0)

    def _share(self, time_s: float, *, shift: float) -> float:
        """Return Phi(ln(t / median) / sigma - n sigma): factor of the partial moment of order n = `shift` [-]."""
        if time_s <= 0.0:
            return 0.0
        return _NORMAL.cdf(math.log(time_s / self.median_s) / self.sigma - shift * self.sigma)


@dataclass(frozen=True, slots=True)
class CensoredDistribution:
    """Lifetimes with an upper limit set by the provider: min(X, limit).

    Args:
        law: Distribution of X without the limit.
        longest_s: Longest lifetime [s].
    """

    law: Exponential | LogNormal
    longest_s: float

    def cdf(self, time_s: float) -> float:
        """Return P(X < t) [-]."""
        return 1.0 if time_s > self.longest_s else self.law.cdf(time_s)

    def partial_mean_s(self, time_s: float) -> float:
        """Return the partial mean E[X; X < t] [s]."""
        return self._partial(time_s, self.law.partial_mean_s, self.longest_s)

    def partial_square_s2(self, time_s: float) -> float:
        """Return the partial second moment E[X^2; X < t] [s^2]."""
        return self._partial(time_s, self.law.partial_square_s2, self.longest_s**2)

    def _partial(self, time_s: float, partial: Any, at_the_end: float) -> float:
        if time_s <= self.longest_s:
            return float(partial(time_s))
        return float(partial(self.longest_s)) + (1.0 - self.law.cdf(self.longest_s)) * at_the_end


def build_lifetime_distribution(
    *, mean_s: float, median_s: float | None = None, longest_s: float | None = None
) -> LifetimeDistribution:
    """Build a lifetime distribution: log-normal if the median is below 0.95 ln(2) mean, else exponential.

    Args:
        mean_s: Mean lifetime [s].
        median_s: Median lifetime; None if unknown [s].
        longest_s: Longest lifetime; None for no limit [s].

    Example:
        >>> build_lifetime_distribution(mean_s=3600.0)
        Exponential(mean_s=3600.0)
        >>> build_lifetime_distribution(mean_s=3600.0, median_s=900.0)
        LogNormal(mean_s=3600.0, median_s=900.0)
    """
    heavy = median_s is not None and median_s < 0.95 * math.log(2.0) * mean_s
    law = LogNormal(mean_s, median_s) if heavy and median_s is not None else Exponential(mean_s)
    return law if longest_s is None else CensoredDistribution(law, longest_s)


def compute_p90_s(*, undisturbed_s: float, mean_s: float, variance_s2: float, undisturbed: float) -> float:
    """Return the 90th percentile of a run's time [s].

    A run is never preempted with probability p and then takes the undisturbed time. Otherwise the additional time
    is assumed to be gamma-distributed with the moments that follow from those of all runs; its quantile at
    1 - 0.1 / (1 - p) follows E. B. Wilson and M. M. Hilferty, PNAS 17 (1931) 684-688.

    Args:
        undisturbed_s: Time of a run without preemptions [s].
        mean_s, variance_s2: Mean and variance over all runs [s], [s^2].
        undisturbed: Probability p that a run is never preempted [-].
    """
    disturbed = 1.0 - undisturbed
    if disturbed <= 0.1 or not math.isfinite(mean_s):
        return undisturbed_s if disturbed <= 0.1 else math.inf
    extra_s = (mean_s - undisturbed_s) / disturbed
    square_s2 = (variance_s2 + (mean_s - undisturbed_s) ** 2) / disturbed
    spread_s2 = max(square_s2 - extra_s**2, 1e-12 * extra_s**2)
    shape = extra_s**2 / spread_s2
    return undisturbed_s + extra_s * _gamma_quantile(shape, 1.0 - 0.1 / disturbed)


def _gamma_quantile(shape: float, probability: float) -> float:
    """Return a quantile of the gamma distribution with mean 1 [-].

    Wilson and Hilferty: (1 - 1 / (9 k) + z / (3 sqrt(k)))^3 with shape k and normal quantile z, for k > 1.
    """
    if shape <= 1.0:  # the cube-root form is inaccurate here; scaled exponential quantile instead
        return -math.log(1.0 - probability) * math.pow(shape, 0.5 * (1.0 - shape))
    z = _NORMAL.inv_cdf(probability)
    root = 1.0 - 1.0 / (9.0 * shape) + z / (3.0 * math.sqrt(shape))
    return math.pow(max(0.0, root), 3.0)
