"""The full matrices behind `docs/measurements/worker-agreement.md`: every layout against one rank, and every pair of
six layouts by checkpoint and in memory. Run by `make soak`; with `-s` it prints the tables."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gang import gang
from layouts import (
    ALONE,
    EXPERTS,
    LAYOUTS,
    SHARED,
    SIX,
    SPREAD,
    TIED,
    TINY,
    Trainee,
    agree,
    alone,
    configured,
    furthest,
    measured,
)

from headway.flops import ModelShape
from headway.message import Configuration
from headway.parallel import Recipe

TOLERANCE = 1e-5
STEPS_BEFORE, STEPS_AFTER = 3, 4

Record = Callable[[str, str, float], None]


@pytest.fixture(scope="module")
def undisturbed() -> list[float]:
    return alone(20)


@pytest.fixture(scope="module")
def undisturbed_tied() -> list[float]:
    return alone(20, TIED)


@pytest.fixture(scope="module")
def record() -> Iterator[Record]:
    """Collects differences and prints them as tables when the module is done."""
    tables: dict[str, list[tuple[str, float]]] = {}
    yield lambda table, row, difference: tables.setdefault(table, []).append((row, difference))
    for table, rows in tables.items():
        print(f"\n\n| {table} | largest difference of the loss |\n|---|---|")
        for row, difference in rows:
            print(f"| {row} | {difference:.1e} |")


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("name", LAYOUTS)
def test_twenty_steps_agree(
    name: str, tied: bool, undisturbed: list[float], undisturbed_tied: list[float], record: Record, tmp_path: Path
) -> None:
    configuration = LAYOUTS[name]
    shape = TIED if tied else TINY
    if tied and configuration.layout.pp > 1 and configuration.execution.sharding in ("gradients", "parameters"):
        return  # refused: see `parts.check`
    losses = gang(tmp_path, configuration.ranks(), lambda: Trainee(shape, configuration).train(20))
    difference = furthest(losses, undisturbed_tied if tied else undisturbed)
    record("20 steps, tied embedding" if tied else "20 steps", name, difference)
    assert difference < TOLERANCE


@pytest.mark.parametrize("name", {**SHARED, **SPREAD})
def test_shared_sequences_and_spread_experts_agree(name: str, record: Record, tmp_path: Path) -> None:
    """Experts for ten steps, in which no scores that decide lie closer than 4·10⁻⁵: two within rounding of each other,
    as there are in the twelfth, may go either way, and then the loss is another."""
    configuration, shape, steps = (SHARED[name], TINY, 20) if name in SHARED else (SPREAD[name], EXPERTS, 10)
    recipe = Recipe(shape, noise_every=1)
    difference = agree(gang(tmp_path, configuration.ranks(), lambda: measured(recipe, configuration, steps)), recipe)
    record(f"{steps} steps, {'shared sequences' if name in SHARED else 'experts'}", name, difference)


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(SIX, 2)))
def test_a_checkpoint_goes_from_any_to_any(
    before: str, after: str, undisturbed: list[float], record: Record, tmp_path: Path
) -> None:
    folder = tmp_path / "saved"

    def change() -> list[float]:
        trainee = Trainee(TINY, SIX[before])
        losses = trainee.train(STEPS_BEFORE)
        trainee.reload(SIX[after], folder)
        return losses + trainee.train(STEPS_AFTER)

    difference = furthest(gang(tmp_path, 4, change), undisturbed[: STEPS_BEFORE + STEPS_AFTER])
    record("by checkpoint", f"{before} → {after}", difference)
    assert difference < TOLERANCE


@pytest.mark.parametrize("before", SIX)
def test_memory_goes_from_one_to_all_others(
    before: str, undisturbed: list[float], record: Record, tmp_path: Path
) -> None:
    """In one process that comes back to the first layout between any two others."""
    others = [name for name in SIX if name != before]

    def change() -> list[float]:
        trainee = Trainee(TINY, SIX[before])
        losses = trainee.train(1)
        for other in others:
            trainee.reshard(SIX[other])
            losses += trainee.train(1)
            trainee.reshard(SIX[before])
            losses += trainee.train(1)
        return losses

    difference = furthest(gang(tmp_path, 4, change), undisturbed[: 1 + 2 * len(others)])
    record("in memory", f"{before} ↔ each of the others", difference)
    assert difference < TOLERANCE


def test_fifty_reconfigurations_see_every_sample_once(record: Record, tmp_path: Path) -> None:
    choice = random.Random(11)
    layouts = [
        configured(4),
        configured(4, sharding="optimizer"),
        configured(2, pp=2, vpp=2),
        configured(pp=4),
        configured(2, pp=2, sharding="optimizer", schedule="gpipe"),
    ]
    plan = []
    for _ in range(50):
        base = choice.choice(layouts)
        small = choice.choice([1, 2])
        plan.append(Configuration(base.layout, small, choice.choice([8, 16]), base.execution))

    difference = furthest(gang(tmp_path, 4, lambda: _follow(TINY, plan)), _follow(TINY, plan, alone=True))
    record("random", "50 changes of batch, micro-batch and layout", difference)
    assert difference < TOLERANCE


def _follow(shape: ModelShape, plan: list[Configuration], alone: bool = False) -> list[float]:
    """A step in each configuration of a plan; on one rank only batches change."""
    trainee = Trainee(shape, ALONE if alone else plan[0])
    losses = []
    for each in plan:
        now = trainee.parallel.configuration
        if not alone and (each.layout, each.execution) != (now.layout, now.execution):
            trainee.reshard(each)
        else:
            trainee.parallel.configure(Configuration(now.layout, each.micro_batch, each.global_batch, now.execution))
        losses += trainee.train(1)
    assert trainee.samples_seen == sum(each.global_batch for each in plan)
    return losses
