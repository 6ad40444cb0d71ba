"""How steps become reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway import Configuration, Layout, NoiseSample, StepSummary, StepWindow


def step(number: int, batch: int, seconds: float, noise: bool = True) -> StepSummary:
    sample = NoiseSample(float(number), 1.0, 2.0, float(batch)) if noise else None
    configuration = Configuration(Layout(1), 2, batch)
    return StepSummary(number, 1, number * batch, 64 * batch, seconds, configuration, float(number), sample)


def test_steps_gather_until_a_second_has_passed() -> None:
    window = StepWindow(every_s=1.0)
    assert window.add(step(1, 8, 0.4)) == []
    assert window.add(step(2, 8, 0.4, noise=False)) == []
    (report,) = window.add(step(3, 8, 0.4))
    assert (report.step, report.steps, report.samples_seen, report.tokens) == (3, 3, 24, 3 * 64 * 8)
    assert report.loss == 2.0 and abs(report.duration_s - 1.2) < 1e-9
    assert report.noise is not None
    assert report.noise.to_json() == pytest.approx(NoiseSample(2.0, 1.0, 2.0, 8.0).to_json())
    assert window.flush() == []


def test_a_report_covers_one_configuration() -> None:
    window = StepWindow(every_s=1.0)
    window.add(step(1, 8, 0.4))
    (report,) = window.add(step(2, 16, 0.4))
    assert (report.steps, report.configuration.global_batch) == (1, 8)
    (rest,) = window.flush()
    assert (rest.steps, rest.configuration.global_batch) == (1, 16)


def test_steps_of_other_small_batches_are_averaged_by_what_they_estimate() -> None:
    """The same tr Σ = 30 and |G|² = 2 seen at other batches, and a step whose |G|² comes out negative."""
    window = StepWindow(every_s=1.0)
    seen = [
        NoiseSample.of(30.0, 2.0, 2.0, 8.0),
        NoiseSample.of(30.0, 2.0, 1.0, 5.0),
        NoiseSample.of(60.0, -1.0, 3.0, 60.0),
    ]
    reports = []
    for number, sample in enumerate(seen, start=1):
        reports += window.add(replace(step(number, 8, 0.4), noise=sample))
    (report,) = reports
    assert report.noise is not None
    assert (report.noise.small_batch, report.noise.big_batch) == (1.0, 5.0)
    assert (report.noise.variance(), report.noise.gradient_sqr()) == pytest.approx((40.0, 1.0))
    assert report.noise.big_sqr > 0.0
