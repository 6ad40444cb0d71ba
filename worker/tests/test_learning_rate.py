"""The learning rate goes by the samples seen, whatever the batches."""

from __future__ import annotations

import json
import math

import pytest

from headway import trainer
from headway.learning_rate import REWARM_STEPS, LearningRate, RateSchedule

COSINE = RateSchedule(0.1, warmup=100, decay="cosine", end=1100, floor=0.1)


@pytest.mark.parametrize(
    ("decay", "seen", "expected"),
    [
        ("none", 1, 0.001),
        ("none", 50, 0.05),
        ("none", 100, 0.1),
        ("none", 5000, 0.1),
        ("linear", 50, 0.05),
        ("linear", 100, 0.1),
        ("linear", 350, 0.1 * (0.1 + 0.9 * 0.75)),
        ("linear", 1100, 0.01),
        ("linear", 5000, 0.01),
        ("cosine", 50, 0.05),
        ("cosine", 100, 0.1),
        ("cosine", 350, 0.1 * (0.1 + 0.9 * (2 + math.sqrt(2)) / 4)),
        ("cosine", 600, 0.1 * (0.1 + 0.9 / 2)),
        ("cosine", 1100, 0.01),
        ("cosine", 5000, 0.01),
    ],
)
def test_it_warms_up_decays_and_stays_at_its_floor(decay: str, seen: int, expected: float) -> None:
    schedule = RateSchedule(0.1, warmup=100, decay=decay, end=1100, floor=0.1)
    assert schedule.at(seen) == pytest.approx(expected, rel=1e-12)


def test_larger_batches_take_it_no_further_than_their_samples() -> None:
    small, large = LearningRate(COSINE, 1.0), LearningRate(COSINE, 2.0)
    by_eights = {seen: small.next(seen) for seen in range(8, 2000, 8)}
    for seen in range(32, 2000, 32):
        assert large.next(seen) == pytest.approx(2.0 * by_eights[seen], rel=1e-12)


def test_a_resumed_run_has_the_same_rates_to_the_bit() -> None:
    """Stopped amid a change of the batch, within the decay."""
    undisturbed, stopped = LearningRate(COSINE, 1.0), LearningRate(COSINE, 1.0)
    rates, seen = [], 480
    for each in (undisturbed, stopped):
        each.next(480)
        each.aim(1.5)
    for step in range(2 * REWARM_STEPS):
        seen += 16
        rates.append(undisturbed.next(seen))
        if step == 3:
            state = json.loads(json.dumps(stopped.state()))
            stopped = LearningRate(COSINE, 1.5)
            stopped.load(state)
            stopped.aim(1.5)
        assert stopped.next(seen) == rates[-1]
    assert rates[-1] == 1.5 * COSINE.at(seen)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ("--decay linear", "--decay needs --decay-samples"),
        ("--decay cosine --decay-samples 320", "does not follow a warm-up"),
        ("--decay cosine --decay-samples 1000 --lr-floor 1.5", "from 0 to 1"),
        ("--decay-samples 1000", "--decay-samples needs --decay"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(
    wrong: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        trainer.options(wrong.split())
    assert end.value.code == 2 and complaint in capsys.readouterr().err
