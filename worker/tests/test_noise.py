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


def drawn(generator: random.Random, phi: float, dimensions: int) -> NoiseSample:
    """The squares of one step of eight small batches of eight, exactly as they are distributed where |G|² = 1 and the
    noise is normal, alike in so many dimensions."""
    each, count, batch = phi / dimensions, 8, 64.0

    def squares(degrees: int) -> float:
        return 2.0 * generator.gammavariate(degrees / 2.0, 1.0) * each / batch

    big = (1.0 + generator.gauss(0.0, math.sqrt(each / batch))) ** 2 + squares(dimensions - 1)
    return NoiseSample(big + squares(dimensions * (count - 1)), big, batch / count, batch)


@pytest.mark.parametrize("over_batch", [0.1, 1.0, 10.0, 40.0, 80.0, 100.0])
def test_nineteen_of_twenty_intervals_hold_the_truth_in_every_regime(over_batch: float) -> None:
    """Also where they have no upper end."""
    generator, phi = random.Random(19), 64.0 * over_batch
    for dimensions, steps, runs in ((200, 10, 1000), (200, 40, 1000), (20_000, 40, 1000), (200, 400, 600)):
        held = 0
        for _ in range(runs):
            average = NoiseAverage(1e9)
            for _ in range(steps):
                average.add(drawn(generator, phi, dimensions))
            interval = average.interval()
            held += interval is not None and interval[0] <= phi <= interval[1]
        assert 0.92 <= held / runs <= 0.97, (dimensions, steps, held / runs)


def test_a_drowned_gradient_bounds_the_scale_from_below_only() -> None:
    average = NoiseAverage(1e9)
    for gradient_sqr in (4.0, -3.6, 5.0, -4.0, 3.0):
        average.add(step(30.0 + gradient_sqr, gradient_sqr))
    estimate = average.estimate()
    assert estimate is not None and estimate.high == math.inf
    assert 1.0 < estimate.low < estimate.sequences
    for _ in range(2):
        average.add(step(30.0, -4.0))
    interval = average.interval()
    assert average.scale() is None and interval is not None and interval[0] > 1.0 and interval[1] == math.inf


def test_a_gradient_below_nothing_has_no_interval() -> None:
    average = NoiseAverage(1e9)
    for variance in (29.0, 30.0, 31.0):
        average.add(step(variance, -2.0 - variance / 1000.0))
    assert average.interval() is None


def test_the_interval_is_the_schedulers() -> None:
    """The same five steps, and the same ends in `core/goodput/src/noise.rs`."""
    average = NoiseAverage(1e12)
    for variance, gradient_sqr in ((30.0, 2.0), (33.0, 1.7), (27.0, 2.2), (31.0, 2.1), (29.0, 1.9)):
        average.add(step(variance, gradient_sqr))
    interval = average.interval()
    assert interval is not None and interval == pytest.approx((12.4324, 18.5778), rel=2e-4)
