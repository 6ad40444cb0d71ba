"""The gradient noise scale from squared gradient norms (McCandlish et al. 2018, appendix A.1). Pure arithmetic.

With K small batches of b sequences and B = K·b: small = mean |g_k|², big = |mean g_k|², and unbiased
|G|² = (K·big - small)/(K - 1), tr Σ = b·K/(K - 1)·(small - big), φ = tr Σ/|G|² (in sequences).
Workers report the raw squares; this module also serves their own log lines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class NoiseSample:
    """Raw squared gradient norms of one step, or their mean over several of one configuration."""

    small_sqr: float
    big_sqr: float
    small_batch: float
    big_batch: float

    @staticmethod
    def of(variance: float, gradient_sqr: float, small_batch: float, big_batch: float) -> NoiseSample:
        """What two batches show of such unbiased estimates."""
        small_sqr, big_sqr = gradient_sqr + variance / small_batch, gradient_sqr + variance / big_batch
        return NoiseSample(small_sqr, big_sqr, small_batch, big_batch)

    def gradient_sqr(self) -> float:
        """Unbiased |G|²; may be negative in a single step."""
        count = self.big_batch / self.small_batch
        return (count * self.big_sqr - self.small_sqr) / (count - 1.0)

    def variance(self) -> float:
        """Unbiased tr Σ per sequence."""
        count = self.big_batch / self.small_batch
        return self.small_batch * count / (count - 1.0) * (self.small_sqr - self.big_sqr)

    def is_finite(self) -> bool:
        return math.isfinite(self.small_sqr) and math.isfinite(self.big_sqr)

    def to_json(self) -> dict[str, float]:
        return {
            "small_sqr": self.small_sqr,
            "big_sqr": self.big_sqr,
            "small_batch": self.small_batch,
            "big_batch": self.big_batch,
        }


@dataclass(frozen=True)
class NoiseScale:
    """φ in sequences, the standard error of the estimate to first order, and the interval in which φ lies at 95 %.
    Where |G|² is not clear of zero that has no upper end, `high` is infinite, and the error means nothing."""

    sequences: float
    standard_error: float
    low: float
    high: float


class NoiseAverage:
    """Smooths numerator and denominator apart, weighted by samples: the mean of ratios would be biased."""

    def __init__(self, horizon_sequences: float) -> None:
        """`horizon_sequences`: over how many sequences the average looks back."""
        self._horizon = horizon_sequences
        self._weight = self._unmeasured = 0.0
        self._mean = _Moments()
        # The same sums with squared weights, for the error.
        self._squared_weight = 0.0
        self._spread = _Moments()

    def skip(self, sequences: float) -> None:
        """So many were trained on and not measured: the next sample stands for them too, or the average would look back
        the further the more seldom it is fed."""
        self._unmeasured += sequences

    def add(self, sample: NoiseSample, steps: int = 1) -> None:
        """Takes a finite sample, over so many steps; one broken step must not poison the average."""
        if not sample.is_finite():
            return
        keep = math.exp(-(steps * sample.big_batch + self._unmeasured) / self._horizon)
        self._unmeasured = 0.0
        new = 1.0 - keep
        variance, gradient_sqr = sample.variance(), sample.gradient_sqr()
        self._weight = keep * self._weight + new
        self._mean.add(keep, new, variance, gradient_sqr)
        self._squared_weight = keep**2 * self._squared_weight + new**2
        self._spread.add(keep**2, new**2, variance, gradient_sqr)

    def scale(self) -> float | None:
        """φ in sequences; None while the signal does not stand out of the noise."""
        if self._weight == 0.0 or self._mean.gradient_sqr <= 0.0:
            return None
        return self._mean.variance / self._mean.gradient_sqr

    def estimate(self) -> NoiseScale | None:
        """φ with its standard error; None from a single step, or while φ itself is None.

        The error of a ratio of weighted means (Cochran 1977, chapter 6, with weights; to first order what a jackknife
        over the steps gives): se² = Σ w²(S - φG)² / (Σ w G)² · n/(n - 1), with S = tr Σ and G = |G|² of a step and the
        effective number of steps n = (Σ w)²/Σ w². It knows nothing of steps that are alike because the weights are.
        """
        scale, interval = self.scale(), self.interval()
        if scale is None or interval is None:
            return None
        steps = self._weight**2 / self._squared_weight
        spread = self._spread
        residual = spread.variance_sqr - 2.0 * scale * spread.product + scale**2 * spread.gradient_sqr_sqr
        error_sqr = max(0.0, residual) / self._mean.gradient_sqr**2 * steps / (steps - 1.0)
        return NoiseScale(scale, math.sqrt(error_sqr), *interval)

    def interval(self) -> tuple[float, float] | None:
        """Within what φ lies at 95 % (Fieller 1954), also while φ itself is None; as the scheduler reckons it. None
        from a single step, and where |G|² is below zero by more than its error.

        All ρ > 0 with (S - ρG)² ≤ t²·var(S - ρG), S and G the means: aρ² - 2hρ + c ≤ 0.
        """
        if self._weight**2 <= self._squared_weight * (1.0 + 1e-9):
            return None
        steps = self._weight**2 / self._squared_weight
        noise, signal = self._mean.variance / self._weight, self._mean.gradient_sqr / self._weight
        spread, weight = self._spread, self._squared_weight
        unit = student(steps - 1.0) ** 2 / self._weight**2 * steps / (steps - 1.0)
        noise_noise = spread.variance_sqr - 2.0 * noise * spread.variance + noise**2 * weight
        signal_signal = spread.gradient_sqr_sqr - 2.0 * signal * spread.gradient_sqr + signal**2 * weight
        both = spread.product - noise * spread.gradient_sqr - signal * spread.variance + noise * signal * weight
        a = signal**2 - unit * max(0.0, signal_signal)
        h = noise * signal - unit * both
        c = noise**2 - unit * max(0.0, noise_noise)
        far = h + math.sqrt(max(0.0, h**2 - a * c))
        if a > 0.0:
            return (max(0.0, c / far), far / a) if far > 0.0 else None
        return (c / far if c > 0.0 and far > 0.0 else 0.0), math.inf


def student(degrees_of_freedom: float) -> float:
    """The 97.5th percentile, by its expansion around the normal's (Abramowitz and Stegun 1964, 26.7.5)."""
    z, n = 1.959963985, max(1.0, degrees_of_freedom)
    terms = (
        (z**3 + z) / 4.0,
        (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0,
        (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0,
        (79.0 * z**9 + 776.0 * z**7 + 1482.0 * z**5 - 1920.0 * z**3 - 945.0 * z) / 92160.0,
    )
    return z + sum(term / n**power for power, term in enumerate(terms, start=1))


class _Moments:
    """Weighted sums of S, G and their products over steps, the older ones fading."""

    def __init__(self) -> None:
        self.variance = self.gradient_sqr = 0.0
        self.variance_sqr = self.product = self.gradient_sqr_sqr = 0.0

    def add(self, keep: float, weight: float, variance: float, gradient_sqr: float) -> None:
        self.variance = keep * self.variance + weight * variance
        self.gradient_sqr = keep * self.gradient_sqr + weight * gradient_sqr
        self.variance_sqr = keep * self.variance_sqr + weight * variance**2
        self.product = keep * self.product + weight * variance * gradient_sqr
        self.gradient_sqr_sqr = keep * self.gradient_sqr_sqr + weight * gradient_sqr**2
