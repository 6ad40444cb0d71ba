"""The noise scale's arithmetic, and its standard error against many repetitions of a known truth."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from headway.noise import NoiseAverage, NoiseSample


def step(variance: float, gradient_sqr: float, count: int = 4, small_batch: float = 2.0) -> NoiseSample:
    """The squares that have these unbiased estimates."""
    spread = variance * (count - 1) / (small_batch * count)
    big = gradient_sqr + spread / (count - 1)
    return NoiseSample(big + spread, big, small_batch, small_batch * count)


def run_of(seed: int, steps: int, horizon: float) -> NoiseAverage:
    """Steps around tr Σ = 30 and |G|² = 2."""
    generator = random.Random(seed)
    average = NoiseAverage(horizon)
    for _ in range(steps):
        average.add(step(generator.gauss(30.0, 10.0), generator.gauss(2.0, 1.0)))
    return average


def test_a_step_gives_back_its_estimates() -> None:
    sample = step(30.0, 2.0)
    assert sample.variance() == pytest.approx(30.0) and sample.gradient_sqr() == pytest.approx(2.0)


@pytest.mark.parametrize("horizon", [1e9, 400.0])
def test_the_stated_error_is_that_of_many_runs(horizon: float) -> None:
    estimates = [run_of(seed, 200, horizon).estimate() for seed in range(400)]
    assert all(estimate is not None for estimate in estimates)
    scatter = statistics.stdev(estimate.sequences for estimate in estimates if estimate)
    stated = math.sqrt(statistics.fmean(estimate.standard_error**2 for estimate in estimates if estimate))
    assert stated == pytest.approx(scatter, rel=0.12)


def test_the_stated_error_is_the_jackknifes() -> None:
    generator = random.Random(3)
    samples = [step(generator.gauss(30.0, 10.0), generator.gauss(2.0, 0.5)) for _ in range(100)]
    average = NoiseAverage(1e12)
    for sample in samples:
        average.add(sample)
    variance = sum(sample.variance() for sample in samples)
    gradient_sqr = sum(sample.gradient_sqr() for sample in samples)
    without = [(variance - s.variance()) / (gradient_sqr - s.gradient_sqr()) for s in samples]
    middle = statistics.fmean(without)
    jackknife = math.sqrt(sum((value - middle) ** 2 for value in without) * 99 / 100)
    estimate = average.estimate()
    assert estimate is not None and estimate.standard_error == pytest.approx(jackknife, rel=0.03)


def test_one_step_states_no_error() -> None:
    average = NoiseAverage(100.0)
    average.add(step(30.0, 2.0))
    assert average.scale() == pytest.approx(15.0)
    assert average.estimate() is None


def test_a_broken_step_does_not_poison_the_average() -> None:
    average = NoiseAverage(100.0)
    average.add(step(30.0, 2.0))
    average.add(NoiseSample(math.inf, math.nan, 2.0, 8.0))
    assert average.scale() == pytest.approx(15.0)


def test_measuring_seldom_looks_back_over_as_many_sequences() -> None:
    """A noise that grows while half of each stretch is forgotten: the average must not lag behind for being sampled."""
    often, seldom = NoiseAverage(800.0), NoiseAverage(800.0)
    for number in range(1000):
        sample = step(30.0 + 0.1 * number, 2.0)
        often.add(sample)
        if number % 4 == 3:
            seldom.add(sample)
        else:
            seldom.skip(sample.big_batch)
    scales = [average.scale() for average in (often, seldom)]
    assert scales[0] is not None and scales[1] == pytest.approx(scales[0], rel=0.01)
    errors = [average.estimate() for average in (often, seldom)]
    assert errors[0] is not None and errors[1] is not None
    assert errors[1].standard_error > 1.5 * errors[0].standard_error, "a quarter of the samples says less"


def test_noise_without_signal_has_no_scale() -> None:
    average = NoiseAverage(100.0)
    average.add(step(30.0, -0.5))
    average.add(step(30.0, -0.4))
    assert average.scale() is None and average.estimate() is None
