"""A job driven through 50 random reconfigurations and 10 kills, behind `docs/measurements/worker-agreement.md`. Run by
`make soak`; again with another plan: `python -m pytest -s soak/test_kills.py --seed 7`. A seed fixes the plan and what is
drawn, not the milliseconds at which processes on a busy machine are hit."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from lifetime import MOMENTS, Lifetime
from undisturbed import arrived, difference, undisturbed

RECONFIGURATIONS, KILLS = 50, 10
# Of the loss at any step, of a parameter (a step moves one by up to 10⁻²), and of the evaluation, told to four digits.
LOSS, PARAMETER, EVALUATION = 1e-4, 1e-3, 2e-4
# Of Adam's moments, relative to the largest of their kind.
MOMENT = 5e-2


def test_fifty_reconfigurations_and_ten_kills_see_every_sample_once(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    seed, began = pytestconfig.getoption("seed"), time.monotonic()
    print(f"\nseed {seed}; once more: python -m pytest -s soak/test_kills.py --seed {seed}")
    life = Lifetime(tmp_path, seed, RECONFIGURATIONS, KILLS)
    life.live()
    took_s = time.monotonic() - began
    offers = [offer for generation in life.generations for offer in generation.offers]
    for offer in offers:
        life.check_every_sample_once(offer)
    history = life.history(offers[-1])
    alone = undisturbed(life, history)
    apart, noise = difference(arrived(life, offers[-1]), alone), difference(undisturbed(life, history, 1), alone)
    _print(life, took_s)
    print(f"apart: {apart}\nthe undisturbed run in other micro-batches: {noise}")
    assert len(life.reconfigurations) == RECONFIGURATIONS and len(life.kills) == KILLS
    assert {kill.moment for kill in life.kills} == set(MOMENTS)
    assert not life.complaints()
    assert apart.loss < LOSS and apart.evaluation < EVALUATION
    assert apart.parameter < PARAMETER and apart.moment < MOMENT


def _print(life: Lifetime, took_s: float) -> None:
    offers = sum(len(generation.offers) for generation in life.generations)
    trained = sum(len(generation.steps) for generation in life.generations)
    kinds = {kind: life.reconfigurations.count(kind) for kind in sorted(set(life.reconfigurations))}
    assert life.committed is not None
    print(f"{took_s:.0f} s, {len(life.generations)} generations, {kinds}, {offers} committed checkpoints")
    print(f"{trained} steps heard of, {life.committed.step} of {life.committed.samples_seen} samples kept")
    print("| moment | killed | after step | samples trained again | save cut short | gang down after |")
    print("|---|---|---|---|---|---|")
    for kill in life.kills:
        layout = kill.configuration.layout
        rank = "the forking process" if kill.rank is None else f"rank {kill.rank} of {layout.ranks()}"
        print(
            f"| {kill.moment} | {rank} (dp{layout.dp} tp{layout.tp} pp{layout.pp}) | {kill.step} | "
            f"{kill.lost_samples} | {'yes' if kill.cut_short else 'no'} | {kill.took_down_s:.2f} s |"
        )
