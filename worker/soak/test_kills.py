"""A job driven through 50 random reconfigurations and 10 kills, behind `docs/measurements/worker-agreement.md`. Run by
`make soak`; again with another plan: `python -m pytest -s soak/test_kills.py --seed 7`. A seed fixes the plan and what
is drawn, not the milliseconds at which processes on a busy machine are hit."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from lifetime import MOMENTS, Lifetime
from record import Kill
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
    took_s, record = time.monotonic() - began, life.record
    last, offers = record.offers()[-1], len(record.offers())
    for offer in record.offers():
        record.check_every_sample_once(offer)
    history = record.history(last)
    alone = undisturbed(life, history)
    apart, noise = difference(arrived(life, last), alone), difference(undisturbed(life, history, micro_batch=1), alone)
    trained = sum(len(generation.steps) for generation in record.generations)
    print(f"{took_s:.0f} s, {len(record.generations)} generations, {Counter(record.reconfigurations)}")
    print(f"{offers} committed checkpoints; {trained} steps heard of, {last.step} of {last.samples_seen} samples kept")
    print(f"apart: {apart}\nthe undisturbed run in other micro-batches: {noise}")
    _print(record.kills)
    assert len(record.reconfigurations) == RECONFIGURATIONS and len(record.kills) == KILLS
    assert {kill.moment for kill in record.kills} == set(MOMENTS)
    assert not life.complaints()
    assert apart.loss < LOSS and apart.evaluation < EVALUATION
    assert apart.parameter < PARAMETER and apart.moment < MOMENT


def _print(kills: list[Kill]) -> None:
    print("| moment | killed | after step | samples trained again | save cut short | gang down after |")
    print("|---|---|---|---|---|---|")
    for kill in kills:
        layout = kill.configuration.layout
        rank = "the forking process" if kill.rank is None else f"rank {kill.rank} of {layout.ranks()}"
        print(
            f"| {kill.moment} | {rank} (dp{layout.dp} tp{layout.tp} pp{layout.pp}) | {kill.step} | "
            f"{kill.lost_samples} | {'yes' if kill.cut_short else 'no'} | {kill.took_down_s:.2f} s |"
        )
