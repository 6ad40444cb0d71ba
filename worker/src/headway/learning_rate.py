"""The learning rate of a step: the recipe's at this point of training, times the factor for the batch.

Where training is, is told by the samples seen and never by steps, since the batch may change: a run that takes larger
batches warms up and decays over the same samples, and one that is resumed goes on where it was.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

REWARM_STEPS = 10
DECAYS = ("none", "linear", "cosine")


@dataclass(frozen=True)
class RateSchedule:
    """The recipe's learning rate at the reference batch: a linear warm-up to the base, then none, a linear or a cosine
    decay (Loshchilov and Hutter 2017, equation 5, without restarts) to a floor, where it stays."""

    base: float
    warmup: int = 0
    """Samples to the end of the warm-up."""
    decay: str = "none"
    end: int = 0
    """Samples from the beginning of training to the end of the decay."""
    floor: float = 0.0
    """What is left in the end, as a share of the base."""

    def __post_init__(self) -> None:
        if self.decay not in DECAYS:
            raise ValueError(f"no decay is called {self.decay}")
        if self.decay != "none" and self.end <= self.warmup:
            raise ValueError(f"a decay that ends at {self.end} samples does not follow a warm-up of {self.warmup}")
        if not 0.0 <= self.floor <= 1.0:
            raise ValueError("the floor of the learning rate is a share of it, from 0 to 1")

    def at(self, seen: int) -> float:
        """Of the step that brings the samples seen to so many."""
        if seen < self.warmup:
            return self.base * seen / self.warmup
        if self.decay == "none":
            return self.base
        done = min(1.0, (seen - self.warmup) / (self.end - self.warmup))
        left = 1.0 - done if self.decay == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
        return self.base * (self.floor + (1.0 - self.floor) * left)


class LearningRate:
    """The batch's factor comes from the scheduler (rule and reference batch are the job's) and is approached over a few
    steps when it changes."""

    def __init__(self, schedule: RateSchedule, scale: float) -> None:
        self._schedule = schedule
        self._scale = self._target = scale
        self._left = 0

    def aim(self, scale: float) -> None:
        if scale != self._target:
            self._target, self._left = scale, REWARM_STEPS

    def next(self, seen: int) -> float:
        """For the step that brings the samples seen to so many."""
        if self._left:
            self._scale += (self._target - self._scale) / self._left
            self._left -= 1
        return self._schedule.at(seen) * self._scale

    def state(self) -> dict[str, float]:
        return {"scale": self._scale, "target": self._target, "left": self._left}

    def load(self, state: dict[str, float]) -> None:
        self._scale, self._target, self._left = state["scale"], state["target"], int(state["left"])
