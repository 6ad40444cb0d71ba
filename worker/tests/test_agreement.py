"""What does not agree ends no training that went on before, and holds no rank up."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from gang import gang
from tiny import Tiny, batch, loss_of
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel

from headway.torch import GradientAccumulator, Measured, NoiseMeter, Ranks, Unmeasured, agreement

STEPS = 6


def test_ranks_that_find_nothing_look_as_often_as_those_that_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "SELDOM", 2)

    def main() -> list[str | None]:
        ranks = Ranks.of(init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp")))
        model = Tiny()
        gradients = GradientAccumulator([model], ranks, every=1)
        told: list[str | None] = []
        for step in range(STEPS):
            if step == 1 and torch.distributed.get_rank() == 3:
                with torch.no_grad():
                    next(model.parameters()).add_(1.0)
            inputs, targets = batch(0, 2)
            loss = loss_of(model(inputs), targets)
            loss.backward()
            gradients.end_micro_batch(loss)
            reduced = gradients.reduce(2)
            told.append(reduced.unmeasured.name if reduced.unmeasured else None)
            gradients.clear()
        return told

    apart = Unmeasured.NO_COPIES.name
    # Found at the third step, when all look again, and until the next look.
    assert gang(tmp_path, 4, main) == [[None, None, apart, apart, apart, apart]] * 4


def test_scripts_under_the_first_fsdp_train_on_without_noise(tmp_path: Path) -> None:
    def main() -> list[Measured]:
        model = FullyShardedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), device_id=torch.device("cpu"))
        meter = NoiseMeter(model, every=1)
        measured = []
        for _ in range(2):
            model.zero_grad()
            model(torch.randn(2, 8)).sum().backward()
            measured.append(meter.measure(2))
        return measured

    for measured in gang(tmp_path, 2, main):
        assert [each.noise for each in measured] == [None, None]


def test_a_model_that_is_listened_to_can_be_saved_whole() -> None:
    model = nn.Linear(4, 4)
    meter = NoiseMeter(model, every=1)
    kept = io.BytesIO()
    torch.save(model, kept)
    meter.close()
    kept.seek(0)
    again = torch.load(kept, weights_only=False)
    again(torch.zeros(1, 4)).sum().backward()
    assert torch.equal(again.weight, model.weight)
