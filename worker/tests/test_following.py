"""What a script follows the scheduler with: the order of its samples, and its learning rate."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gang import gang

from headway.message import Configuration, Layout
from headway.torch import SampleBatches, ScaledLearningRate


def taken(batches: SampleBatches, count: int) -> list[list[int]]:
    micro_batches = iter(batches)
    return [next(micro_batches) for _ in range(count)]


def test_every_sample_comes_once_an_epoch_in_an_order_of_its_own() -> None:
    samples = sum(taken(SampleBatches(10, micro_batch=4, accumulation=2, first=0), 5), [])
    assert sorted(samples[:10]) == sorted(samples[10:]) == list(range(10))
    assert samples[:10] != samples[10:]
    assert samples == sum(taken(SampleBatches(10, 2, first=0), 10), []), "whatever the batch"


def test_samples_go_on_after_those_that_were_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    all_of_them = sum(taken(SampleBatches(10, 2, first=0), 10), [])
    monkeypatch.setenv("HEADWAY_SOCKET", "/nobody")
    monkeypatch.setenv("HEADWAY_SAMPLES_SEEN", "14")
    assert sum(taken(SampleBatches(10, 3), 2), []) == all_of_them[14:20]


def test_replicas_share_a_step_out(tmp_path: Path) -> None:
    whole = taken(SampleBatches(64, 8, first=16), 2)

    def replica() -> list[list[int]]:
        return taken(SampleBatches(64, micro_batch=2, accumulation=2, first=16), 4)

    first, second = gang(tmp_path, 2, replica)
    assert [sum(first[:2] + second[:2], []), sum(first[2:] + second[2:], [])] == whole


def test_another_batch_begins_where_the_last_step_ended() -> None:
    batches = SampleBatches(100, micro_batch=2, accumulation=2, first=0)
    micro_batches = iter(batches)
    seen = [next(micro_batches) for _ in range(4)]
    batches.configure(Configuration(Layout(1), micro_batch=3, global_batch=9))
    seen += [next(micro_batches) for _ in range(3)]
    assert [len(each) for each in seen] == [2, 2, 2, 2, 3, 3, 3]
    assert sum(seen, []) + next(iter(batches)) == sum(taken(SampleBatches(100, 4, first=0), 5), [])


def test_a_batch_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="does not divide"):
        SampleBatches(100, 2).configure(Configuration(Layout(2), micro_batch=3, global_batch=8))


def stepped(optimizer: torch.optim.Optimizer, weight: torch.nn.Parameter) -> float:
    """How far one step of gradient 1 goes."""
    before = weight.item()
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    return before - weight.item()


def test_steps_are_scaled_and_the_recipe_knows_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_SOCKET", "/nobody")
    monkeypatch.setenv("HEADWAY_LR_SCALE", "2")
    weight = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)  # it multiplies what it finds
    rate = ScaledLearningRate(optimizer)
    assert stepped(optimizer, weight) == pytest.approx(1.0)
    assert optimizer.param_groups[0]["lr"] == 0.5
    schedule.step()
    assert stepped(optimizer, weight) == pytest.approx(0.5)
    rate.aim(4.0)
    assert [stepped(optimizer, weight) for _ in range(11)] == pytest.approx(
        [0.25 * (2.0 + 0.2 * step) for step in range(1, 11)] + [1.0]
    )
    assert optimizer.state_dict()["param_groups"][0]["lr"] == 0.25
    rate.close()
    assert stepped(optimizer, weight) == pytest.approx(0.25)


def test_outside_headway_the_learning_rate_is_the_recipes() -> None:
    weight = torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    ScaledLearningRate(optimizer)
    assert stepped(optimizer, weight) == pytest.approx(0.5)
