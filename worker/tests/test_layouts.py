"""The same noise in every layout: real ranks over gloo, the same eight samples as four micro-batches of two."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from gang import gang
from tiny import Tiny, batch, loss_of, tensor_parallel
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from headway.torch import GradientAccumulator, Ranks, Reduced, Summed

SMALL, GLOBAL, STEPS = 2, 8, 2


@dataclass(frozen=True)
class Layout:
    pp: int = 1
    dp: int = 1
    tp: int = 1
    sequence_parallel: bool = False
    shard: bool = False
    fsdp: bool = False
    hybrid: bool = False
    tied: bool = False

    @property
    def world(self) -> int:
        return self.pp * self.dp * self.tp


def train(layout: Layout) -> list[Reduced]:
    """This rank's view of a few steps, with the weights left alone."""
    if layout.hybrid:
        mesh = init_device_mesh("cpu", (2, layout.dp // 2), mesh_dim_names=("dp_replicate", "dp_shard"))
        data = mesh
    else:
        mesh = init_device_mesh("cpu", (layout.pp, layout.dp, layout.tp), mesh_dim_names=("pp", "dp", "tp"))
        data = mesh["dp"]
    ranks = Ranks.of(mesh)
    stage = torch.distributed.get_rank(ranks.pipeline) if layout.pp > 1 else None
    model = Tiny(layout.tied, stage)
    if layout.tp > 1:
        tensor_parallel(model, mesh["tp"], layout.sequence_parallel)
    if layout.fsdp:
        for block in model.blocks.values():
            fully_shard(block, mesh=data)
        fully_shard(model, mesh=data)
    summed = [Summed([model.shared_weight()], ranks.pipeline)] if layout.tied and layout.pp > 1 else []
    gradients = GradientAccumulator([model], ranks, shard=layout.shard, summed=summed, every=1)
    pipeline = None
    accumulation = GLOBAL // SMALL // layout.dp
    if layout.pp > 1:
        place = PipelineStage(model, stage, layout.pp, torch.device("cpu"), group=ranks.pipeline)
        pipeline = Schedule1F1B(place, accumulation, loss_fn=loss_of, scale_grads=False)
    reduced = []
    for step in range(STEPS):
        first = step * GLOBAL + torch.distributed.get_rank(ranks.data) * accumulation * SMALL
        if pipeline is not None:
            inputs, targets = batch(first, accumulation * SMALL)
            losses: list[torch.Tensor] = []
            if stage == 0:
                pipeline.step(inputs)
            else:
                pipeline.step(target=targets, losses=losses)
            for loss in losses or [None] * accumulation:
                gradients.end_micro_batch(loss)
        else:
            for start in range(first, first + accumulation * SMALL, SMALL):
                inputs, targets = batch(start, SMALL)
                loss = loss_of(model(inputs), targets)
                loss.backward()
                gradients.end_micro_batch(loss)
        reduced.append(gradients.reduce(SMALL))
        gradients.clear()
    return reduced


def alone(tied: bool) -> list[Reduced]:
    """One rank without any process group."""
    model = Tiny(tied)
    gradients = GradientAccumulator(model.parameters(), every=1)
    reduced = []
    for step in range(STEPS):
        for start in range(step * GLOBAL, (step + 1) * GLOBAL, SMALL):
            inputs, targets = batch(start, SMALL)
            loss = loss_of(model(inputs), targets)
            loss.backward()
            gradients.end_micro_batch(loss)
        reduced.append(gradients.reduce(SMALL))
        gradients.clear()
    return reduced


LAYOUTS = {
    "data parallel": Layout(dp=4),
    "data parallel with accumulation": Layout(dp=2),
    "optimizer sharded": Layout(dp=4, shard=True),
    "tensor parallel": Layout(tp=2),
    "sequence parallel": Layout(tp=2, sequence_parallel=True),
    "pipeline": Layout(pp=2),
    "data and tensor parallel": Layout(dp=2, tp=2),
    "data and sequence parallel, optimizer sharded": Layout(dp=2, tp=2, sequence_parallel=True, shard=True),
    "data parallel pipelines": Layout(pp=2, dp=2),
    "tensor parallel pipelines": Layout(pp=2, tp=2, sequence_parallel=True),
    "fully sharded": Layout(dp=4, fsdp=True),
    "fully sharded with accumulation": Layout(dp=2, fsdp=True),
    "fully sharded and tensor parallel": Layout(dp=2, tp=2, fsdp=True),
    "fully sharded and sequence parallel": Layout(dp=2, tp=2, fsdp=True, sequence_parallel=True),
    "fully sharded pipelines": Layout(pp=2, dp=2, fsdp=True),
    "hybrid sharded": Layout(dp=4, fsdp=True, hybrid=True),
    "tied over stages": Layout(pp=2, tied=True),
    "tied over data parallel stages, optimizer sharded": Layout(pp=2, dp=2, tied=True, shard=True),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_measures_the_same(name: str, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    expected = alone(layout.tied)
    for rank, reduced in enumerate(gang(tmp_path, layout.world, lambda: train(layout))):
        for ours, theirs in zip(reduced, expected, strict=True):
            assert ours.noise is not None and theirs.noise is not None
            assert ours.loss == pytest.approx(theirs.loss, rel=1e-5), rank
            assert ours.gradient_sqr == pytest.approx(theirs.gradient_sqr, rel=1e-5), rank
            assert ours.noise.to_json() == pytest.approx(theirs.noise.to_json(), rel=1e-5), rank
            assert ours.noise.variance() == pytest.approx(theirs.noise.variance(), rel=1e-4), rank
