"""The noise of the gradients as Adam scales them: against brute force over single examples, in layouts that share out
the moments differently, by the trainer's own optimizer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gang import gang
from layouts import ALONE, EXPERTS, GLOBAL, LAYOUTS, LEARNING_RATE, SHARED, SMALL, SPREAD, TINY, tokens

from headway.gang import Gangs
from headway.message import Configuration
from headway.noise import NoiseAverage
from headway.parallel import Parallel, Recipe
from headway.torch import Reduced

TRAINED, MEASURED, COMPARED, EXAMPLES, DAMPING = 3, 24, 3, 192, 0.3
RECIPE = Recipe(TINY, noise="adam", noise_every=1)
CHOSEN = ("dp4, ZeRO-1", "dp2, ZeRO-2", "pp2 dp2, interleaved", "dp2 tp2, ZeRO-3, sequence parallel", "dp2 cp2, ZeRO-1")


def step(parallel: Parallel, first: int) -> Reduced:
    share = GLOBAL // parallel.configuration.layout.dp
    start = first + parallel.replica * share
    parallel.train(tokens(range(start, start + share)), start)
    return parallel.reduce([])


def trained(configuration: Configuration, recipe: Recipe = RECIPE) -> Parallel:
    """After a few updates, so that the moments mean something."""
    parallel = Parallel(recipe, configuration, Gangs(torch.device("cpu")).of(configuration))
    parallel.initialise()
    for number in range(TRAINED):
        parallel.update(step(parallel, number * GLOBAL), LEARNING_RATE)
    return parallel


def measured(configuration: Configuration, steps: int, recipe: Recipe = RECIPE) -> list[Reduced]:
    """Steps on other samples, whose gradients move nothing."""
    parallel = trained(configuration, recipe)
    reduced = []
    for number in range(TRAINED, TRAINED + steps):
        reduced.append(step(parallel, number * GLOBAL))
        parallel.gradients.clear()
    return reduced


def brute_force() -> float:
    """tr Σ over |G|² of single examples' gradients, scaled by the optimizer's moments."""
    parallel = trained(ALONE)
    moments = {tile.name: tile.tensor for tile in parallel.tiles() if tile.name.startswith("second.")}
    names = list(moments)
    mean = sum(float(moments[name].sum()) for name in names) / sum(moments[name].numel() for name in names)
    scale = {name: moments[name].sqrt().clamp(min=DAMPING * mean**0.5) for name in names}
    parallel.configure(Configuration(ALONE.layout, 1, 1))
    rows = []
    for index in range(EXAMPLES):
        first = TRAINED * GLOBAL + index
        parallel.train(tokens(range(first, first + 1)), first)
        parallel.reduce([])
        gradients = {f"second.{name}": parameter.grad for name, parameter in parallel._named.items()}
        rows.append(torch.cat([(gradients[name] / scale[name]).flatten() for name in names]).double())
        parallel.gradients.clear()
    stacked = torch.stack(rows)
    variance = float(stacked.var(dim=0).sum())
    return variance / (float(stacked.mean(dim=0).square().sum()) - variance / EXAMPLES)


@pytest.fixture(scope="module")
def alone() -> list[Reduced]:
    return measured(ALONE, MEASURED)


def test_alone_it_meets_brute_force(alone: list[Reduced]) -> None:
    average = NoiseAverage(1e9)
    for reduced in alone:
        assert reduced.preconditioned is not None and reduced.noise is not None
        average.add(reduced.preconditioned)
    estimate, truth = average.estimate(), brute_force()
    assert estimate is not None
    print(f"φ = {estimate.sequences:.2f} ± {estimate.standard_error:.2f} sequences, brute force {truth:.2f}")
    assert abs(estimate.sequences - truth) < 3.0 * estimate.standard_error < truth
    assert alone[-1].preconditioned.small_sqr > 2.0 * alone[-1].noise.small_sqr, "it is another norm"
    assert alone[0].preconditioned.small_batch == SMALL


@pytest.mark.parametrize("name", CHOSEN)
def test_every_layout_measures_the_same(name: str, alone: list[Reduced], tmp_path: Path) -> None:
    configuration = (LAYOUTS | SHARED)[name]
    agree(gang(tmp_path, configuration.ranks(), lambda: measured(configuration, COMPARED)), alone)


def test_spread_experts_measure_the_same(tmp_path: Path) -> None:
    """In two layouts, each with shares of its own of the experts' moments."""
    recipe = Recipe(EXPERTS, noise="adam", noise_every=1)
    for name in ("ep2", "dp4 ep2, ZeRO-1"):
        configuration = SPREAD[name]
        found = gang(tmp_path, configuration.ranks(), lambda chosen=configuration: measured(chosen, COMPARED, recipe))
        agree(found, measured(ALONE, COMPARED, recipe))


def agree(found: list[list[Reduced]], alone: list[Reduced]) -> None:
    for reduced in found:
        for ours, theirs in zip(reduced, alone, strict=False):
            assert ours.preconditioned is not None and theirs.preconditioned is not None
            assert ours.preconditioned.to_json() == pytest.approx(theirs.preconditioned.to_json(), rel=1e-3)
