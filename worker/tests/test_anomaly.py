"""When a loss is odd."""

from __future__ import annotations

import math
import random

from headway.anomaly import LossAnomaly, LossWatch


def falling(steps: int, noise: float, seed: int = 1) -> list[float]:
    draw = random.Random(seed)
    return [2.0 + 4.0 * math.exp(-step / 100) + draw.gauss(0.0, noise) for step in range(steps)]


def test_an_ordinary_run_is_never_odd() -> None:
    for seed in range(20):
        watch = LossWatch()
        assert not any(watch.see(loss) for loss in falling(500, 0.05, seed))


def test_a_spike_is_told_once_with_what_was_usual() -> None:
    watch = LossWatch()
    findings = [watch.see(loss) for loss in [*falling(300, 0.02), 7.0, 7.5, 7.0, *falling(300, 0.02)[-50:], 8.0]]
    told = [finding for finding in findings if finding is not None]
    assert [finding.loss for finding in told] == [7.0, 8.0]
    assert told[0].usual is not None and 1.9 < told[0].usual < 2.6


def test_a_loss_that_is_no_number_is_told_from_the_first_step_on() -> None:
    watch = LossWatch()
    assert watch.see(math.nan) == LossAnomaly(None, None)
    assert watch.see(math.inf) is None
    assert watch.see(5.0) is None
    finding = watch.see(math.nan)
    assert finding is not None and finding.loss is None and finding.usual == 5.0


def test_a_loss_that_rises_before_it_is_lost_is_told_twice() -> None:
    watch = LossWatch()
    findings = [watch.see(loss) for loss in [*falling(300, 0.02), 9.0, math.nan, math.nan, 9.0]]
    assert [finding.loss for finding in findings if finding is not None] == [9.0, None]


def test_a_lasting_change_becomes_usual() -> None:
    watch = LossWatch()
    for loss in falling(300, 0.02):
        watch.see(loss)
    for _ in range(400):
        watch.see(4.0)
    assert watch.see(4.1) is None
