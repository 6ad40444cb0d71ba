"""Gathers optimizer steps into one report, so that reports stay about one a second however fast the steps are."""

from __future__ import annotations

from dataclasses import dataclass

from headway.message import Configuration
from headway.noise import NoiseSample


@dataclass(frozen=True)
class StepSummary:
    """One or several steps of one configuration: sums of tokens and time, means of loss and squares."""

    step: int
    steps: int
    samples_seen: int
    tokens: int
    duration_s: float
    configuration: Configuration
    loss: float
    noise: NoiseSample | None
    preconditioned: NoiseSample | None = None


class StepWindow:
    """Collects steps until `every_s` of them have passed or the configuration changes."""

    def __init__(self, every_s: float = 1.0) -> None:
        self._every_s = every_s
        self._steps: list[StepSummary] = []

    def add(self, step: StepSummary) -> list[StepSummary]:
        """Takes one step; returns the summaries now complete, in order."""
        complete = []
        if self._steps and self._steps[-1].configuration != step.configuration:
            complete += self.flush()
        self._steps.append(step)
        if sum(one.duration_s for one in self._steps) >= self._every_s:
            complete += self.flush()
        return complete

    def flush(self) -> list[StepSummary]:
        """What is left, as at most one summary."""
        steps, self._steps = self._steps, []
        if not steps:
            return []
        last = steps[-1]
        return [
            StepSummary(
                step=last.step,
                steps=sum(one.steps for one in steps),
                samples_seen=last.samples_seen,
                tokens=sum(one.tokens for one in steps),
                duration_s=sum(one.duration_s for one in steps),
                configuration=last.configuration,
                loss=sum(one.loss for one in steps) / len(steps),
                noise=_mean([one.noise for one in steps if one.noise is not None]),
                preconditioned=_mean([one.preconditioned for one in steps if one.preconditioned is not None]),
            )
        ]


def _mean(samples: list[NoiseSample]) -> NoiseSample | None:
    if not samples:
        return None
    variance = sum(sample.variance() for sample in samples) / len(samples)
    gradient_sqr = sum(sample.gradient_sqr() for sample in samples) / len(samples)
    # With unequal micro-batches each step's squares are of other batches, and only what is estimated from them can be
    # averaged. At the smallest of these no square is below the steps' own, so none is negative.
    small_batch = min(sample.small_batch for sample in samples)
    return NoiseSample.of(variance, gradient_sqr, small_batch, min(sample.big_batch for sample in samples))
