"""A tiny model trained in any layout by forked ranks: what tests and the long matrix of `soak` share."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import pytest

# Imported here, once, and not in every forked rank.
import torch
import torch._dynamo
import torch.distributed
import torch.distributed.fsdp
import torch.distributed.tensor.parallel

import headway.pipeline  # noqa: F401
from headway import sharded
from headway.checkpoint import Draft
from headway.data import Corpus
from headway.flops import ModelShape
from headway.gang import Gangs
from headway.message import Configuration, Execution, Layout
from headway.noise import NoiseSample
from headway.parallel import Parallel, Recipe
from headway.reshard import exchange
from headway.saver import Saver
from headway.tiles import staged

warnings.filterwarnings("ignore", module="torch")

TINY = ModelShape(layers=4, hidden=16, heads=4, kv_heads=2, ffn_hidden=44, vocab=256, seq_len=16)
TIED = ModelShape(layers=4, hidden=16, heads=4, kv_heads=2, ffn_hidden=44, vocab=256, seq_len=16, tied=True)
EXPERTS = replace(TINY, layers=2, ffn_hidden=20, experts=4, active_experts=2)
CORPUS = Corpus(b"".join(b"line %d says %d\n" % (i, i * i) for i in range(4000)), TINY.seq_len)
GLOBAL, SMALL, LEARNING_RATE = 8, 2, 1e-2


def configured(dp: int = 1, tp: int = 1, pp: int = 1, micro_batch: int = SMALL, **execution: object) -> Configuration:
    return Configuration(Layout(dp, tp, pp), micro_batch, GLOBAL, Execution(**execution))  # type: ignore[arg-type]


ALONE = configured()
LAYOUTS = {
    "dp4": configured(4),
    "dp4, ZeRO-1": configured(4, sharding="optimizer"),
    "dp2, ZeRO-2": configured(2, sharding="gradients"),
    "dp4, ZeRO-3": configured(4, sharding="parameters"),
    "dp2, ZeRO-3, full recompute": configured(2, sharding="parameters", recompute="full"),
    "dp2, selective recompute": configured(2, recompute="selective"),
    "pp4, 1F1B": configured(pp=4),
    "pp2 dp2, GPipe, ZeRO-1": configured(2, pp=2, schedule="gpipe", sharding="optimizer"),
    "pp2 dp2, interleaved": configured(2, pp=2, vpp=2),
    "pp2, breadth first, selective recompute": configured(pp=2, vpp=2, schedule="breadth_first", recompute="selective"),
    "pp2 dp2, interleaved, ZeRO-2": configured(2, pp=2, vpp=2, sharding="gradients"),
    "tp2": configured(tp=2),
    "dp2 tp2, sequence parallel, ZeRO-1": configured(2, tp=2, sequence_parallel=True, sharding="optimizer"),
    "pp2 tp2, sequence parallel": configured(tp=2, pp=2, sequence_parallel=True),
    "dp2 tp2, ZeRO-3, sequence parallel": configured(2, tp=2, sequence_parallel=True, sharding="parameters"),
    "dp2, ZeRO-1, offload": configured(2, sharding="optimizer", offload="host"),
    "dp2, ZeRO-3, offload": configured(2, sharding="parameters", offload="host"),
}
# Ranks that share sequences, and replicas over which experts are spread.
SHARED = {
    "cp2": configured(cp=2),
    "cp4": configured(cp=4),
    "dp2 cp2, ZeRO-1": configured(2, cp=2, sharding="optimizer"),
    "dp2 cp2, ZeRO-3, full recompute": configured(2, cp=2, sharding="parameters", recompute="full"),
    "cp2, ZeRO-2, selective recompute": configured(cp=2, sharding="gradients", recompute="selective"),
    "pp2 cp2, interleaved": configured(pp=2, cp=2, vpp=2),
    "tp2 cp2, sequence parallel": configured(tp=2, cp=2, sequence_parallel=True),
}
SPREAD = {
    "dp2, ZeRO-3, full recompute": configured(2, sharding="parameters", recompute="full"),
    "dp2 tp2, ZeRO-2": configured(2, tp=2, sharding="gradients"),
    "ep2": configured(2, ep=2),
    "dp4 ep4, full recompute": configured(4, ep=4, recompute="full"),
    "dp4 ep2, selective recompute, offload": configured(4, ep=2, recompute="selective", offload="host"),
    "dp4 ep2, ZeRO-1": configured(4, ep=2, sharding="optimizer"),
    "pp2 dp2 ep2": configured(2, pp=2, ep=2),
    "dp2 tp2 ep2, sequence parallel, ZeRO-1": configured(2, tp=2, ep=2, sequence_parallel=True, sharding="optimizer"),
    "dp2 tp2 ep4": configured(2, tp=2, ep=4),
    "tp2 cp2 ep2, sequence parallel": configured(tp=2, cp=2, ep=2, sequence_parallel=True),
    "tp2 ep2": configured(tp=2, ep=2),
    "cp2 ep2": configured(cp=2, ep=2),
    "cp4 ep2, ZeRO-1": configured(cp=4, ep=2, sharding="optimizer"),
    "dp2 cp2 ep4": configured(2, cp=2, ep=4),
    "dp2 ep2 cp2, ZeRO-1": configured(2, ep=2, cp=2, sharding="optimizer"),
}
# Left to `soak`: what is in these, others have between them.
SOAKED = {"cp2", "dp2 cp2, ZeRO-3, full recompute", "dp2 tp2, ZeRO-2", "ep2", "cp2 ep2"}
# Six of four ranks each, for resharding: every axis and every way of sharing state out.
SIX = {
    "dp4, ZeRO-1": LAYOUTS["dp4, ZeRO-1"],
    "dp4, ZeRO-3": LAYOUTS["dp4, ZeRO-3"],
    "pp4": LAYOUTS["pp4, 1F1B"],
    "pp2 dp2, interleaved": LAYOUTS["pp2 dp2, interleaved"],
    "dp2 tp2, ZeRO-1, SP": LAYOUTS["dp2 tp2, sequence parallel, ZeRO-1"],
    "pp2 tp2, SP": LAYOUTS["pp2 tp2, sequence parallel"],
}


def tokens(samples: range) -> torch.Tensor:
    text = b"".join(CORPUS.sample(index) for index in samples)
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).view(len(samples), -1).long()


class Trainee:
    """One rank's training, which may change its layout as it goes."""

    def __init__(self, recipe: ModelShape | Recipe, configuration: Configuration) -> None:
        self._recipe = recipe if isinstance(recipe, Recipe) else Recipe(recipe)
        self._gangs = Gangs(torch.device("cpu"))
        self.parallel = self._build(configuration)
        self.parallel.initialise()
        self.samples_seen = 0
        self.noise: list[NoiseSample | None] = []
        """Of every step so far."""

    def train(self, steps: int) -> list[float]:
        losses = []
        for _ in range(steps):
            configuration = self.parallel.configuration
            own = configuration.samples(self.parallel.replica)
            first = self.samples_seen + own.start
            self.parallel.train(tokens(range(first, self.samples_seen + own.stop)), first)
            reduced = self.parallel.reduce([])
            self.parallel.update(reduced, LEARNING_RATE)
            self.samples_seen += configuration.global_batch
            losses.append(reduced.loss)
            self.noise.append(reduced.noise)
        return losses

    def reshard(self, configuration: Configuration) -> None:
        """In memory."""
        held, steps = staged(self.parallel.tiles()), self.parallel.optimizer_steps
        self.parallel.close()
        self.parallel = self._build(configuration)
        exchange(held, self.parallel.tiles(), _world())
        self.parallel.optimizer_steps = steps

    def reload(self, configuration: Configuration, folder: Path) -> None:
        """By way of a checkpoint."""
        rank = torch.distributed.get_rank()
        saver = Saver(str(folder), "job", 1, rank, torch.distributed.get_world_size())
        saver.start(self.parallel.optimizer_steps, self.samples_seen, self.parallel.tiles, {})
        assert saver.wait()
        draft = Draft(str(folder), 1, self.parallel.optimizer_steps)
        steps = self.parallel.optimizer_steps
        self.parallel.close()
        self.parallel = self._build(configuration)
        sharded.read(str(draft.final), self.parallel.tiles(), _world())
        self.parallel.optimizer_steps = steps

    def _build(self, configuration: Configuration) -> Parallel:
        return Parallel(self._recipe, configuration, self._gangs.of(configuration))


def alone(steps: int, recipe: ModelShape | Recipe = TINY) -> list[float]:
    """The undisturbed run of one rank, which all others must agree with."""
    return Trainee(recipe, ALONE).train(steps)


def furthest(losses: list[list[float]], expected: list[float]) -> float:
    """The largest difference of any rank at any step."""
    return max(abs(ours - theirs) for rank in losses for ours, theirs in zip(rank, expected, strict=True))


def measured(recipe: Recipe, configuration: Configuration, steps: int) -> tuple[list[float], list[NoiseSample | None]]:
    """Losses and noise of a run."""
    trainee = Trainee(recipe, configuration)
    return trainee.train(steps), trainee.noise


def agree(found: list[tuple[list[float], list[NoiseSample | None]]], recipe: Recipe) -> float:
    """Every rank's losses and noise with one rank's; returns the largest difference of a loss."""
    return agree_with(measured(recipe, ALONE, len(found[0][0])), found)


def agree_with(
    expected: tuple[list[float], list[NoiseSample | None]], found: list[tuple[list[float], list[NoiseSample | None]]]
) -> float:
    losses, noise = expected
    difference = furthest([each for each, _ in found], losses)
    assert difference < 1e-5
    for _, samples in found:
        for ours, theirs in zip(samples, noise, strict=True):
            assert ours is not None and theirs is not None
            assert ours.to_json() == pytest.approx(theirs.to_json(), rel=1e-5)
            assert ours.variance() == pytest.approx(theirs.variance(), rel=1e-4)
    return difference


def _world() -> torch.distributed.ProcessGroup | None:
    return torch.distributed.group.WORLD if torch.distributed.get_world_size() > 1 else None
