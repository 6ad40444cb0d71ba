"""Tensor parallelism of plain tensors, as Megatron has it: measured right where it is marked, else refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from gang import gang
from plain import Plain
from tiny import Tiny, batch, loss_of
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from headway.noise import NoiseSample
from headway.torch import GradientAccumulator, Measured, NoiseMeter, Ranks, Summed, UnknownLayout, Unmeasured

SMALL, GLOBAL = 2, 8


def expected(tied: bool = False) -> NoiseSample:
    model = Tiny(tied)
    gradients = GradientAccumulator([model], every=1)
    for start in range(0, GLOBAL, SMALL):
        inputs, targets = batch(start, SMALL)
        loss = loss_of(model(inputs), targets)
        loss.backward()
        gradients.end_micro_batch(loss)
    noise = gradients.reduce(SMALL).noise
    assert noise is not None
    return noise


@dataclass(frozen=True)
class Loop:
    dp: int = 1
    tp: int = 2
    sequence: bool = False
    tied: bool = False
    sums_terms: bool = True
    """As Megatron does before the optimizer: the gradients of norms and biases, over the sequence's parts."""
    owned: bool = False
    """By the accumulator."""


def groups(dp: int, tp: int) -> Ranks:
    return Ranks.of(init_device_mesh("cpu", (dp, tp), mesh_dim_names=("dp", "tp")))


def reduce_all(parameters: Iterable[nn.Parameter], group: torch.distributed.ProcessGroup, share: float = 1.0) -> None:
    for parameter in parameters:
        torch.distributed.all_reduce(parameter.grad, group=group)
        parameter.grad *= share


def train(loop: Loop) -> NoiseSample | None:
    ranks = groups(loop.dp, loop.tp)
    model = Plain(ranks.tensor, loop.sequence, loop.tied)
    owner = GradientAccumulator([model], ranks, every=1) if loop.owned else None
    meter = None if loop.owned else NoiseMeter(model, ranks=ranks, every=1)
    accumulation = GLOBAL // SMALL // loop.dp
    first = torch.distributed.get_rank(ranks.data) * accumulation * SMALL
    for start in range(first, first + accumulation * SMALL, SMALL):
        inputs, targets = batch(start, SMALL)
        loss = loss_of(model(inputs), targets)
        (loss if owner is not None else loss / accumulation).backward()
        if owner is not None:
            owner.end_micro_batch(loss)
    if owner is not None:
        return owner.reduce(SMALL).noise
    reduce_all(model.parameters(), ranks.data, 1 / loop.dp)
    if loop.sums_terms:
        reduce_all(model.terms(), ranks.tensor)
    assert meter is not None
    return meter.measure(SMALL, gradient_scale=1 / accumulation).noise


LOOPS = {
    "two shards": Loop(),
    "four shards": Loop(tp=4),
    "replicas of shards": Loop(dp=2),
    "a tied vocabulary": Loop(tied=True),
    "cut sequences": Loop(sequence=True),
    "cut sequences, terms not summed yet": Loop(sequence=True, sums_terms=False),
    "replicas, cut sequences, a tied vocabulary": Loop(dp=2, sequence=True, tied=True),
    "an accumulator's": Loop(owned=True),
    "an accumulator's replicas, cut sequences, a tied vocabulary": Loop(dp=2, sequence=True, tied=True, owned=True),
}


@pytest.mark.parametrize("name", LOOPS)
def test_marked_shards_of_plain_tensors_are_measured_as_one_rank_does(name: str, tmp_path: Path) -> None:
    loop = LOOPS[name]
    theirs = expected(loop.tied)
    for noise in gang(tmp_path, loop.dp * loop.tp, lambda: train(loop)):
        assert noise is not None
        assert noise.to_json() == pytest.approx(theirs.to_json(), rel=1e-5)
        assert noise.variance() == pytest.approx(theirs.variance(), rel=1e-4)


def over_stages() -> NoiseSample | None:
    """A tied embedding on both of two stages, under a meter."""
    ranks = Ranks.of(init_device_mesh("cpu", (2,), mesh_dim_names=("pp",)))
    stage = torch.distributed.get_rank()
    model = Tiny(True, stage)
    weight = model.shared_weight()
    weight.shared_embedding = True
    with pytest.raises(UnknownLayout, match="tied over pipeline stages"):
        NoiseMeter(model, ranks=ranks)
    meter = NoiseMeter(model, ranks=ranks, every=1, summed=[Summed([weight], ranks.pipeline)])
    place = PipelineStage(model, stage, 2, torch.device("cpu"), group=ranks.pipeline)
    pipeline = Schedule1F1B(place, GLOBAL // SMALL, loss_fn=loss_of, scale_grads=False)
    inputs, targets = batch(0, GLOBAL)
    pipeline.step(inputs) if stage == 0 else pipeline.step(target=targets)
    reduce_all([weight], ranks.pipeline)
    return meter.measure(SMALL).noise


def test_an_embedding_tied_over_stages_is_summed_before_it_is_squared(tmp_path: Path) -> None:
    theirs = expected(tied=True)
    for noise in gang(tmp_path, 2, over_stages):
        assert noise is not None and noise.to_json() == pytest.approx(theirs.to_json(), rel=1e-5)


def step(model: nn.Module, meter: NoiseMeter) -> Measured:
    for start in range(0, GLOBAL, SMALL):
        inputs, targets = batch(start, SMALL)
        loss_of(model(inputs), targets).backward()
    return meter.measure(SMALL)


def taken_for_replicas() -> str:
    """All ranks see the same samples, as they would, but nobody said that they hold shards."""
    model = Plain(torch.distributed.group.WORLD, mark=False)
    with pytest.raises(UnknownLayout) as refused:
        step(model, NoiseMeter(model, every=1))
    owner = GradientAccumulator([model], every=1)
    loss = loss_of(model(batch(0, SMALL)[0]), batch(0, SMALL)[1])
    loss.backward()
    owner.end_micro_batch(loss)
    with pytest.raises(UnknownLayout, match="embedding"):
        owner.reduce(SMALL)
    return str(refused.value)


def taken_for_copies() -> str:
    """Declared as tensor parallelism, but not marked."""
    model = Plain(torch.distributed.group.WORLD, mark=False)
    with pytest.raises(UnknownLayout) as refused:
        step(model, NoiseMeter(model, ranks=groups(1, 2), every=1))
    return str(refused.value)


@pytest.mark.parametrize("main", [taken_for_replicas, taken_for_copies])
def test_shards_that_nobody_declared_are_refused_by_name(main: object, tmp_path: Path) -> None:
    for message in gang(tmp_path, 2, main):
        assert message == "ranks that are said to hold copies of embedding hold each another one"


def stages_taken_for_replicas() -> str:
    model = Tiny(stage=torch.distributed.get_rank())
    meter = NoiseMeter(model, every=1)
    with pytest.raises(UnknownLayout) as refused:
        meter.measure(SMALL)
    return str(refused.value)


def test_pipeline_stages_that_nobody_declared_are_refused(tmp_path: Path) -> None:
    for message in gang(tmp_path, 2, stages_taken_for_replicas):
        assert message == "ranks that are said to hold the same parameters hold other ones"


class Biased(nn.Module):
    """A bias that begins as nothing on every rank, and is a shard: its values alone do not show it."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(8))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return (self.bias * inputs).sum()


def begins_as_nothing() -> list[Unmeasured | None]:
    model = Biased()
    meter = NoiseMeter(model, ranks=groups(1, 2), every=1)
    found = []
    for _ in range(2):
        for micro_batch in range(3):
            model(torch.arange(8.0) + micro_batch + torch.distributed.get_rank() * 8).backward()
        found.append(meter.measure(1).unmeasured)
    return found


def not_averaged() -> list[Unmeasured | None]:
    """Each replica measures its own mean gradient, before anybody has averaged them."""
    torch.manual_seed(0)
    model = Tiny()
    meter = NoiseMeter(model, every=1)
    for start in range(torch.distributed.get_rank() * 4, torch.distributed.get_rank() * 4 + 4, SMALL):
        inputs, targets = batch(start, SMALL)
        loss_of(model(inputs), targets).backward()
    return [meter.measure(SMALL).unmeasured]


@pytest.mark.parametrize("main", [begins_as_nothing, not_averaged])
def test_mean_gradients_that_are_no_copies_give_no_sample(main: object, tmp_path: Path) -> None:
    for found in gang(tmp_path, 2, main):
        assert found and all(each is Unmeasured.NOT_AVERAGED for each in found)


def drifting() -> list[Unmeasured | None]:
    model = Tiny()
    meter = NoiseMeter(model, every=1)
    found = []
    for number in range(66):
        if number == 1:
            with torch.no_grad():
                model.norm.weight += torch.distributed.get_rank()
        meter.measure(SMALL, gradient_norm=1.0)
        found.append(meter.measure(SMALL, gradient_norm=1.0).unmeasured)
    return found


def test_replicas_that_drift_apart_give_no_sample_from_the_next_look_on(tmp_path: Path) -> None:
    for found in gang(tmp_path, 2, drifting):
        assert found[-1] is Unmeasured.NO_COPIES


def test_experts_are_refused() -> None:
    model = Tiny()
    model.norm.weight.allreduce = False
    for make in (lambda: NoiseMeter(model), lambda: GradientAccumulator([model])):
        with pytest.raises(UnknownLayout, match="expert parallelism"):
            make()


def test_gradients_that_fused_kernels_add_up_are_not_taken_for_what_was_heard() -> None:
    model = Tiny()
    meter = NoiseMeter(model, every=1)
    model.head.weight.grad_added_to_main_grad = True
    assert step(model, meter).unmeasured is Unmeasured.FUSED
