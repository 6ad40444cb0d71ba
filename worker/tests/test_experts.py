"""Experts, on one rank and spread over many."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from gang import gang
from layouts import ALONE, EXPERTS, SOAKED, SPREAD, TINY, Trainee, agree, alone, configured, furthest, measured, tokens

from headway import trainer
from headway.flops import ModelShape
from headway.message import Configuration
from headway.model import Decoder
from headway.parallel import Recipe
from headway.parts import CannotRun, check

RECIPE = Recipe(EXPERTS, dropout=0.1, noise_every=1)


def test_the_parameter_count_is_the_schedulers() -> None:
    """`architecture.rs`: attention, norms, router and all experts of a layer; of the last two, what a token passes."""
    model = Decoder(EXPERTS)
    assert sum(parameter.numel() for parameter in model.parameters()) == EXPERTS.parameters()
    expert, attention = 3 * 16 * 20, 2 * 16 * 16 * (1 + 2 / 4)
    assert EXPERTS.parameters() == 2 * (attention + 2 * 16 + 16 * 4 + 4 * expert) + 2 * 256 * 16 + 16
    layers = 2 * 2 * (attention + 16 * 4 + 2 * expert) + 2 * 2 * 16 * 16
    assert EXPERTS.forward_flops_per_token() == layers + 2 * 256 * 16


def test_every_token_passes_the_experts_it_scores_highest() -> None:
    (layer,) = Decoder(replace(EXPERTS, layers=1), seed=3).layers.values()
    x = torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(1))
    experts = layer.feed_forward
    with torch.no_grad():
        experts.router.weight *= 50.0
        out = experts(x)
        for token, found in zip(x.flatten(0, 1), out.flatten(0, 1), strict=True):
            scores = experts.router.weight @ token
            best = scores.argsort(descending=True)[:2]
            weights = scores[best].softmax(0)
            each = [experts.experts[str(int(number))](token) for number in best]
            assert torch.allclose(found, weights[0] * each[0] + weights[1] * each[1], atol=1e-6)


@pytest.mark.parametrize("name", [name for name in SPREAD if name not in SOAKED])
def test_experts_train_as_on_one_rank(name: str, tmp_path: Path) -> None:
    """In these steps no two scores that decide lie closer than 3·10⁻⁴; within rounding they might go either way."""
    configuration = SPREAD[name]
    agree(gang(tmp_path, configuration.ranks(), lambda: measured(RECIPE, configuration, 4)), RECIPE)


def test_a_rank_holds_its_experts_alone(tmp_path: Path) -> None:
    def held() -> list[str]:
        return [tile.name for tile in Trainee(RECIPE, configured(4, ep=2)).parallel.tiles()]

    for rank, names in enumerate(gang(tmp_path, 4, held)):
        experts = {int(name.split(".experts.")[1].split(".")[0]) for name in names if ".experts." in name}
        assert experts == ({0, 1}, {2, 3})[rank % 2]


def test_experts_are_spread_and_gathered_again(tmp_path: Path) -> None:
    """In memory, by a checkpoint, and in memory back."""

    def change() -> list[float]:
        trainee = Trainee(RECIPE, configured(4, ep=4))
        losses = trainee.train(1)
        trainee.reshard(configured(2, ep=2, pp=2))
        losses += trainee.train(1)
        trainee.reload(configured(4, ep=2, sharding="optimizer"), tmp_path / "saved")
        losses += trainee.train(1)
        trainee.reshard(configured(4, sharding="parameters"))
        return losses + trainee.train(1)

    assert furthest(gang(tmp_path, 4, change), alone(4, RECIPE)) < 1e-5


def test_evaluation_of_spread_experts_is_that_of_one_rank(tmp_path: Path) -> None:
    expected = Trainee(RECIPE, ALONE).parallel.evaluate(tokens, 12)
    found = gang(tmp_path, 2, lambda: Trainee(RECIPE, configured(2, ep=2)).parallel.evaluate(tokens, 12))
    assert found == pytest.approx([expected] * 2, abs=1e-5)


@pytest.mark.parametrize(
    ("shape", "configuration", "complaint"),
    [
        (EXPERTS, configured(ep=2), "ep 2 does not divide 4 experts and dp x cp x tp 1"),
        (EXPERTS, configured(8, micro_batch=1, ep=8), "ep 8 does not divide 4 experts"),
        (TINY, configured(2, ep=2), "ep 2 does not divide 0 experts"),
        (EXPERTS, configured(2, ep=2, sharding="gradients"), "not sharded by FSDP2"),
        (
            replace(EXPERTS, seq_len=24, experts=6),
            configured(4, cp=3, ep=2),
            "neither of ep 2 and cp x tp 3 divides the other",
        ),
    ],
)
def test_what_cannot_be_spread_is_refused_by_name(
    shape: ModelShape, configuration: Configuration, complaint: str
) -> None:
    with pytest.raises(CannotRun, match=complaint):
        check(shape, configuration, configuration.ranks())


@pytest.mark.parametrize("sharding", ["none", "optimizer"])
def test_whatever_the_scheduler_may_choose_can_be_spread(sharding: str) -> None:
    """`Room::expert_obstacle`: ep divides the experts and the ranks of a stage."""
    shape, powers = replace(EXPERTS, heads=4, kv_heads=4), (1, 2, 4)
    chosen = [
        configured(dp, tp=tp, pp=pp, micro_batch=1, cp=cp, ep=ep, sharding=sharding)
        for dp, tp, pp, cp, ep in itertools.product(powers, powers, (1, 2), powers, powers)
        if shape.experts % ep == 0 and dp * tp * cp % ep == 0
    ]
    assert any(each.layout.dp * each.execution.cp % each.execution.ep for each in chosen), "tp is counted in"
    for configuration in chosen:
        check(shape, configuration, configuration.ranks())


def test_more_active_experts_than_there_are_is_no_model() -> None:
    with pytest.raises(ValueError, match="experts"):
        replace(EXPERTS, active_experts=5)
    assert trainer.options(["--experts", "8"]).shape.active_experts == 2
    assert trainer.options([]).shape.active_experts == 0
