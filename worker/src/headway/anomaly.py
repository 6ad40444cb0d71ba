"""What is odd about a loss: no finite number, or far above what was usual. Pure: losses in, findings out."""

from __future__ import annotations

import math
from dataclasses import dataclass

DECAY = 0.98
LEARNING = 20
DEVIATIONS = 8.0
LEAST_SHARE = 0.02
USUAL, HIGH, NOT_FINITE = range(3)


@dataclass(frozen=True)
class LossAnomaly:
    """`loss` is None if it is no finite number."""

    loss: float | None
    usual: float | None


class LossWatch:
    """Follows a loss by a moving mean and the moving mean of its distance from that; tells where an odd stretch
    begins."""

    def __init__(self) -> None:
        self._mean, self._distance, self._seen = 0.0, 0.0, 0
        self._oddity = USUAL

    def see(self, loss: float) -> LossAnomaly | None:
        """A finding if this loss is odder than the one before."""
        if not math.isfinite(loss):
            return self._found(NOT_FINITE, LossAnomaly(None, self._mean if self._seen else None))
        limit = self._mean + DEVIATIONS * max(self._distance, LEAST_SHARE * abs(self._mean))
        high = self._seen >= LEARNING and loss > limit
        finding = self._found(HIGH if high else USUAL, LossAnomaly(loss, self._mean))
        # An odd loss counts as the limit, so that a lasting change becomes usual in the end.
        self._learn(limit if high else loss)
        return finding

    def _found(self, oddity: int, finding: LossAnomaly) -> LossAnomaly | None:
        before, self._oddity = self._oddity, oddity
        return finding if oddity > before else None

    def _learn(self, loss: float) -> None:
        self._seen += 1
        weight = max(1.0 - DECAY, 1.0 / self._seen)
        self._distance += weight * ((abs(loss - self._mean) if self._seen > 1 else 0.0) - self._distance)
        self._mean += weight * (loss - self._mean)
