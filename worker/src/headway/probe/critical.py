"""From a checkpoint branched at several batches to the critical batch and κ (Merrill et al. 2025). Pure: losses and a
noise scale in, a judgement out.

Each branch trains on the same samples with k times the batch; a branch is accepted whose final loss is at most the
baseline's plus a tolerance: the smoothed training loss, as in the paper, or the loss on samples held out. The critical
batch B_crit is the largest batch up to which all are accepted, and κ = B_crit/φ. A bracket, not a point: the truth lies
between the largest accepted and the smallest refused batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headway.noise import NoiseScale

SMOOTHING = 0.5
TOLERANCE = 0.01
LEAST_STEPS = 4
"""Of the largest batch: with fewer, the smoothed loss would still hold losses from before the branch."""
_LEAST_SAMPLES = 5


def factors(limit: int) -> list[int]:
    """1, 2, 4, ... up to a limit."""
    return [1 << power for power in range(max(1, limit).bit_length())]


def learning_rate_factor(rule: str, k: int) -> float:
    """Over that of the baseline's batch: √k for Adam (Malladi et al. 2022), k for SGD (Goyal et al. 2017)."""
    return {"none": 1.0, "sqrt": math.sqrt(k), "linear": float(k)}[rule]


def smoothed(losses: Sequence[float]) -> float:
    """Exponential moving average from the first loss on; infinite for a branch that diverged."""
    if not losses or not all(map(math.isfinite, losses)):
        return math.inf
    average = losses[0]
    for loss in losses[1:]:
        average += SMOOTHING * (loss - average)
    return average


def scatter(losses: Sequence[float]) -> float | None:
    """Standard deviation that the smoothed loss has from the steps' own scatter, which is taken from successive
    differences and so hardly feels the trend (von Neumann et al. 1941). None from fewer than three finite losses."""
    if len(losses) < 3 or not all(map(math.isfinite, losses)):
        return None
    squares = [(after - before) ** 2 for before, after in zip(losses, losses[1:], strict=False)]
    variance = sum(squares) / len(squares) / 2.0
    return math.sqrt(variance * SMOOTHING / (2.0 - SMOOTHING))


@dataclass(frozen=True)
class Branch:
    """A branch that was trained to its end, or diverged."""

    k: int
    batch_sequences: int
    steps: int
    learning_rate: float
    """Of its last step."""
    loss: float
    """Smoothed; infinite if it diverged."""
    scatter: float | None
    evaluation: float | None
    """Loss on samples held out, the same for all branches; None if it diverged."""

    @staticmethod
    def of(k: int, batch: int, rate: float, losses: Sequence[float], evaluation: float | None) -> Branch:
        return Branch(k, batch, len(losses), rate, smoothed(losses), scatter(losses), evaluation)


@dataclass(frozen=True)
class Noise:
    """φ along the baseline, in tokens, or why there is none that could be used."""

    tokens: float | None
    low: float | None
    """With `high`, its interval at 95 %."""
    high: float | None
    why_not: str | None = None

    @staticmethod
    def none(why: str) -> Noise:
        return Noise(None, None, None, why)


def usable_noise(estimate: NoiseScale | None, samples: int, seq_len: int) -> Noise:
    """As strict as the scheduler is with a job's reports."""
    if samples == 0:
        return Noise.none("no step had two small batches to compare: a smaller micro-batch is needed")
    if samples < _LEAST_SAMPLES:
        return Noise.none(f"only {samples} steps measured it, {_LEAST_SAMPLES} are needed")
    if estimate is None or estimate.sequences <= 0.0:
        return Noise.none("the gradient is drowned in its noise")
    if math.isinf(estimate.high):
        return Noise.none(f"nothing bounds it from above, only from below: {estimate.low * seq_len:.4g} tokens")
    return Noise(estimate.sequences * seq_len, estimate.low * seq_len, estimate.high * seq_len)


@dataclass(frozen=True)
class Judgement:
    """What the branches say. Batches in tokens; None in a bracket means that nothing bounds that side."""

    bar: float
    """The largest loss that is accepted."""
    accepted: tuple[int, ...]
    largest_accepted: int
    smallest_refused: int | None
    critical_batch_tokens: tuple[float | None, float | None]
    """At least the first, below the second."""
    kappa: float | None
    """At the largest accepted batch. None without a usable φ."""
    kappa_bracket: tuple[float | None, float | None]
    warnings: tuple[str, ...]

    def line(self) -> str:
        """For a job's specification; a comment where there is nothing to write into it."""
        low, high = self.kappa_bracket
        if self.kappa is None:
            return "# kappa: not known, see the warnings"
        if low is None:
            return f"kappa: {self.kappa:.3g}  # an upper bound is {high:.3g}: no larger batch was accepted"
        if high is None:
            return f"kappa: {self.kappa:.3g}  # at least: every batch tried was accepted"
        return f"kappa: {self.kappa:.3g}  # between {low:.3g} and {high:.3g}"


def judge(
    branches: Sequence[Branch], noise: Noise, tolerance: float, seq_len: int, held_out: bool = False
) -> Judgement:
    """`branches` in rising order of k, the baseline first. By their smoothed loss, or by that of samples held out."""

    def loss(branch: Branch) -> float:
        if not held_out:
            return branch.loss
        return math.inf if branch.evaluation is None else branch.evaluation

    baseline, warnings = branches[0], []
    bar = loss(baseline) + tolerance
    passed = [each for each in branches if each is baseline or loss(each) <= bar]
    refused = [each for each in branches if each not in passed]
    smallest_refused = refused[0] if refused else None
    largest = max(each.k for each in passed if smallest_refused is None or each.k < smallest_refused.k)
    low = float(largest * baseline.batch_sequences * seq_len) if largest > baseline.k else None
    high = float(smallest_refused.batch_sequences * seq_len) if smallest_refused else None
    if low is None and high is not None:
        warnings.append(f"no larger batch was accepted: the critical batch is below {high:.4g} tokens, how far is open")
    if high is None:
        warnings.append(f"every batch was accepted: the critical batch is at least {largest} times the baseline's")
    strays = [each.k for each in passed if smallest_refused and each.k > smallest_refused.k]
    if strays and smallest_refused:
        warnings.append(
            f"k = {', '.join(map(str, strays))} was accepted above k = {smallest_refused.k}, which was refused: "
            "the losses are too noisy for this tolerance"
        )
    doubtful = [each.k for each in branches[1:] if not held_out and _in_doubt(each, baseline, bar)]
    if doubtful:
        warnings.append(
            f"k = {', '.join(map(str, doubtful))}: closer to the bar than the smoothed losses scatter; "
            "the loss held out would tell more (--judge-by held-out)"
        )
    if noise.tokens is None:
        warnings.append(f"φ cannot be used: {noise.why_not}; only the critical batch is bounded")

    def kappa(batch: float | None) -> float | None:
        return None if batch is None or noise.tokens is None else batch / noise.tokens

    return Judgement(
        bar=bar,
        accepted=tuple(each.k for each in passed),
        largest_accepted=largest,
        smallest_refused=smallest_refused.k if smallest_refused else None,
        critical_batch_tokens=(low, high),
        kappa=kappa(float(largest * baseline.batch_sequences * seq_len)),
        kappa_bracket=(kappa(low), kappa(high)),
        warnings=tuple(warnings),
    )


def table(branches: Sequence[Branch], judgement: Judgement) -> str:
    lines = ["   k  batch  steps  learning rate     loss        ±  held out  verdict"]
    for each in branches:
        verdict = "baseline" if each is branches[0] else "accepted" if each.k in judgement.accepted else "refused"
        batch = f"{each.k:4d} {each.batch_sequences:6d} {each.steps:6d}  {each.learning_rate:13.3e}"
        losses = [f"{_number(value):>8}" for value in (each.loss, each.scatter)]
        lines.append(f"{batch} {' '.join(losses)}  {_number(each.evaluation):>8}  {verdict}")
    return "\n".join(lines)


def to_json(branches: Sequence[Branch], noise: Noise, judgement: Judgement) -> dict[str, Any]:
    told = [{**asdict(each), "loss": each.loss if math.isfinite(each.loss) else None} for each in branches]
    return {"branches": told, "noise": asdict(noise), "judgement": asdict(judgement)}


def _in_doubt(branch: Branch, baseline: Branch, bar: float) -> bool:
    if branch.scatter is None or baseline.scatter is None:
        return False
    return abs(branch.loss - bar) < math.hypot(branch.scatter, baseline.scatter)


def _number(value: float | None) -> str:
    return "-" if value is None else "diverged" if math.isinf(value) else f"{value:.4f}"
