"""How steps become reports."""

from __future__ import annotations

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
    assert report.noise == NoiseSample(2.0, 1.0, 2.0, 8.0)
    assert window.flush() == []


def test_a_report_covers_one_configuration() -> None:
    window = StepWindow(every_s=1.0)
    window.add(step(1, 8, 0.4))
    (report,) = window.add(step(2, 16, 0.4))
    assert (report.steps, report.configuration.global_batch) == (1, 8)
    (rest,) = window.flush()
    assert (rest.steps, rest.configuration.global_batch) == (1, 16)
