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


class NoiseAverage:
    """Smooths numerator and denominator apart, weighted by samples: the mean of ratios would be biased."""

    def __init__(self, horizon_sequences: float) -> None:
        """`horizon_sequences`: over how many sequences the average looks back."""
        self._horizon = horizon_sequences
        self._variance = 0.0
        self._gradient_sqr = 0.0
        self._weight = 0.0

    def add(self, sample: NoiseSample, steps: int = 1) -> None:
        """Takes a finite sample; one broken step must not poison the average."""
        if not sample.is_finite():
            return
        keep = math.exp(-steps * sample.big_batch / self._horizon)
        self._variance = keep * self._variance + (1.0 - keep) * sample.variance()
        self._gradient_sqr = keep * self._gradient_sqr + (1.0 - keep) * sample.gradient_sqr()
        self._weight = keep * self._weight + (1.0 - keep)

    def scale(self) -> float | None:
        """φ in sequences; None while the signal does not stand out of the noise."""
        if self._weight == 0.0 or self._gradient_sqr <= 0.0:
            return None
        return self._variance / self._gradient_sqr
