"""Sequences that ranks share: attention that goes round is attention, and training is that of one rank."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from gang import gang
from layouts import ALONE, SHARED, SOAKED, TIED, TINY, Trainee, agree, alone, configured, furthest, measured, tokens
from torch.nn import functional

from headway.message import Configuration
from headway.parallel import Recipe
from headway.parts import CannotRun, check
from headway.ring import Ring
from headway.torch import NoiseMeter, Ranks, UnknownLayout

RECIPE = Recipe(TINY, dropout=0.1, noise_every=1)


def _drawn() -> list[torch.Tensor]:
    """Queries, fewer keys and values, and what the attended is multiplied with."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(2, heads, 24, 8, generator=generator) for heads in (4, 2, 2, 4)]


def _gone_round(size: int) -> tuple[torch.Tensor, list[torch.Tensor], int]:
    ring = Ring(torch.distributed.group.WORLD)
    own = [each[:, :, ring.positions(24)] for each in _drawn()]
    leaves = [each.clone().requires_grad_() for each in own[:3]]
    out = ring.attend(*leaves)
    (out * own[3]).sum().backward()
    return out.detach(), [leaf.grad for leaf in leaves], sum(len(list(ring.pairs(turn))) for turn in range(size))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_what_goes_round_is_attended_as_a_whole(size: int, tmp_path: Path) -> None:
    *leaves, weights = _drawn()
    for leaf in leaves:
        leaf.requires_grad_()
    whole = functional.scaled_dot_product_attention(*leaves, is_causal=True, enable_gqa=True)
    (whole * weights).sum().backward()
    expected = [whole, *(leaf.grad for leaf in leaves)]
    for rank, (out, gradients, pairs) in enumerate(gang(tmp_path, size, lambda: _gone_round(size))):
        chunks = torch.arange(24).chunk(2 * size)
        positions = torch.cat([chunks[rank], chunks[2 * size - 1 - rank]])
        for ours, theirs in zip([out, *gradients], expected, strict=True):
            assert torch.allclose(ours, theirs[:, :, positions], atol=1e-5)
        assert pairs == 2 * size + 1, "every rank has as much to do"


@pytest.mark.parametrize("name", [name for name in SHARED if name not in SOAKED])
def test_ranks_that_share_sequences_train_as_one_rank_does(name: str, tmp_path: Path) -> None:
    configuration = SHARED[name]
    agree(gang(tmp_path, configuration.ranks(), lambda: measured(RECIPE, configuration, 4)), RECIPE)


def test_a_tied_model_and_shared_sequences(tmp_path: Path) -> None:
    recipe = replace(RECIPE, shape=TIED)
    agree(gang(tmp_path, 4, lambda: measured(recipe, configured(pp=2, cp=2), 2)), recipe)


def test_half_precision_goes_round_too(tmp_path: Path) -> None:
    half = Recipe(TINY, bf16=True)
    losses = gang(tmp_path, 2, lambda: Trainee(half, configured(cp=2)).train(4))
    assert furthest(losses, alone(4, half)) < 2e-3


def test_sequences_are_shared_and_given_back(tmp_path: Path) -> None:
    """In memory, by a checkpoint, and in memory back."""

    def change() -> list[float]:
        trainee = Trainee(RECIPE, configured(2, cp=2, sharding="optimizer"))
        losses = trainee.train(1)
        trainee.reshard(configured(pp=2, cp=2))
        losses += trainee.train(1)
        trainee.reload(configured(cp=4, sharding="parameters"), tmp_path / "saved")
        losses += trainee.train(1)
        trainee.reshard(configured(4))
        return losses + trainee.train(1)

    assert furthest(gang(tmp_path, 4, change), alone(4, RECIPE)) < 1e-5


def test_evaluation_of_shared_sequences_is_that_of_one_rank(tmp_path: Path) -> None:
    expected = Trainee(RECIPE, ALONE).parallel.evaluate(tokens, 12)
    for configuration in (configured(2, cp=2), configured(pp=2, cp=2)):
        found = gang(tmp_path, 4, lambda chosen=configuration: Trainee(RECIPE, chosen).parallel.evaluate(tokens, 12))
        assert found == pytest.approx([expected] * 4, abs=1e-5)


@pytest.mark.parametrize("configuration", [configured(cp=0), configured(cp=3), configured(cp=16)])
def test_sequences_that_do_not_divide_are_refused(configuration: Configuration) -> None:
    with pytest.raises(CannotRun, match="cp|degree"):
        check(TINY, configuration, configuration.ranks())


def test_a_meter_that_only_listens_refuses_parts_of_gradients(tmp_path: Path) -> None:
    def refused() -> bool:
        world = torch.distributed.group.WORLD
        with pytest.raises(UnknownLayout, match="share"):
            NoiseMeter(torch.nn.Linear(2, 2), ranks=Ranks(world, context=world))
        return True

    assert gang(tmp_path, 2, refused) == [True, True]
