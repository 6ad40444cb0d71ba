"""The learning rate of a step: the recipe's base, warmed up at the start, times the factor for the batch."""

from __future__ import annotations

REWARM_STEPS = 10


class LearningRate:
    """The batch's factor comes from the scheduler (rule and reference batch are the job's) and is approached over a few
    steps when it changes."""

    def __init__(self, base: float, warmup_steps: int, scale: float) -> None:
        self._base, self._warmup_steps = base, warmup_steps
        self._scale = self._target = scale
        self._left = 0

    def aim(self, scale: float) -> None:
        if scale != self._target:
            self._target, self._left = scale, REWARM_STEPS

    def next(self, step: int) -> float:
        """For the step after `step` finished ones."""
        if self._left:
            self._scale += (self._target - self._scale) / self._left
            self._left -= 1
        return self._base * self._scale * min(1.0, (step + 1) / max(1, self._warmup_steps))

    def state(self) -> dict[str, float]:
        return {"scale": self._scale, "target": self._target, "left": self._left}

    def load(self, state: dict[str, float]) -> None:
        self._scale, self._target, self._left = state["scale"], state["target"], int(state["left"])
