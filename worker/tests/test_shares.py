"""Replicas on faster nodes do more micro-batches of a step: what comes of it is what one rank would do alone."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from gang import gang
from layouts import TINY, Trainee, agree_with
from tiny import LENGTH, Tiny, batch, loss_of
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import headway
from headway import trainer
from headway.environment import Environment
from headway.integrations.refused import refuse_shares
from headway.message import Configuration, Execution, Layout, Shares, parse_directive
from headway.noise import NoiseSample
from headway.options import first_configuration
from headway.orders import Orders
from headway.parallel import Recipe
from headway.parts import CannotRun, check
from headway.probe.rows import Outcome, Setting, table, to_csv
from headway.torch import GradientAccumulator, Ranks, Reduced, SampleBatches, StepReporter, UnknownLayout

RECIPE = Recipe(TINY, dropout=0.1, noise_every=1)


def shared(
    weights: Sequence[int], micro_batch: int, cycles: int, tp: int = 1, pp: int = 1, **execution: object
) -> Configuration:
    return Configuration(
        Layout(len(weights), tp, pp),
        micro_batch,
        micro_batch * cycles * sum(weights),
        Execution(shares=Shares.of(weights), **execution),  # type: ignore[arg-type]
    )


def test_frameworks_refuse_what_they_would_weigh_wrongly() -> None:
    refuse_shares("Trainer", None)
    refuse_shares("Trainer", cast(Environment, SimpleNamespace(configuration=shared((1, 1), micro_batch=2, cycles=1))))
    uneven = cast(Environment, SimpleNamespace(configuration=shared((1, 2), micro_batch=2, cycles=1)))
    with pytest.raises(ValueError, match="cannot follow this Trainer: its replicas do uneven shares"):
        refuse_shares("Trainer", uneven)


# What a step is made of.


def test_a_step_is_shared_out_by_weight() -> None:
    configuration = shared((1, 1, 2, 2), micro_batch=2, cycles=3)
    assert configuration.execution.shares == Shares(slower=1, faster=2, of_faster=2)
    assert (configuration.per_cycle(), configuration.cycles(), configuration.global_batch) == (6, 3, 36)
    assert [configuration.micro_batches(replica) for replica in range(4)] == [3, 3, 6, 6]
    samples = [configuration.samples(replica) for replica in range(4)]
    assert samples == [range(0, 6), range(6, 12), range(12, 24), range(24, 36)]
    assert configuration.gradient_scale() == 4 / (6 * 3)
    assert configuration.accumulation() is None, "no one number is every replica's"


def test_even_shares_are_what_they_were() -> None:
    configuration = Configuration(Layout(4), 2, 24)
    assert (configuration.shares(), configuration.per_cycle()) == ((1, 1, 1, 1), 4)
    assert configuration.cycles() == configuration.accumulation() == configuration.micro_batches(3) == 3
    assert configuration.gradient_scale() == 1 / 3
    assert Shares.of([2, 2]) == Shares() and replace(configuration, global_batch=20).accumulation() is None


@pytest.mark.parametrize(
    ("shares", "global_batch"),
    [
        (Shares(1, 2, 1), 8),
        (Shares(1, 2, 1), 0),
        (Shares(0, 2, 1), 8),
        (Shares(1, -1, 1), 8),
        (Shares(1, 2, 3), 8),
        (Shares(1, 2, -1), 8),
        (Shares(1, 2, 10**12), 8),
    ],
)
def test_what_makes_no_sense_divides_into_nothing(shares: Shares, global_batch: int) -> None:
    configuration = Configuration(Layout(2), 2, global_batch, Execution(shares=shares))
    assert configuration.cycles() is None and configuration.accumulation() is None
    for ask in (lambda: configuration.micro_batches(0), lambda: configuration.samples(0), configuration.gradient_scale):
        with pytest.raises(ValueError, match="does not divide"):
            ask()
    with pytest.raises(CannotRun):
        check(TINY, configuration, 2)


def test_shares_are_told_as_they_came() -> None:
    uneven, even = shared((1, 2), 2, 1), Configuration(Layout(2), 2, 8, Execution(sharding="optimizer"))
    assert uneven.to_json()["execution"]["shares"] == {"slower": 1, "faster": 2, "of_faster": 1}
    assert "shares" not in even.to_json()["execution"]
    for configuration in (uneven, even):
        assert Configuration.from_json(configuration.to_json()) == configuration
        assert Orders.decode(Orders(configuration=configuration, lr_scale=1.0).encode()).configuration == configuration
    newer = uneven.to_json()
    newer["execution"]["shares"]["slowest"] = 1
    assert Configuration.from_json(newer) == uneven
    for nonsense in ("1,2", [1, 2], 3, {"slower": "one"}):
        configuration = uneven.to_json() | {"execution": {"shares": nonsense}}
        assert parse_directive({"type": "configure", "revision": 1, "configuration": configuration}) is None


def told(shares: str, dp: int = 4) -> dict[str, str]:
    degrees = {"HEADWAY_DP": str(dp), "HEADWAY_TP": "1", "HEADWAY_PP": "1"}
    return {"HEADWAY_SOCKET": "/nobody", "HEADWAY_MICRO_BATCH": "2", "HEADWAY_GLOBAL_BATCH": "12", **degrees} | (
        {"HEADWAY_SHARES": shares} if shares else {}
    )


@pytest.mark.parametrize(
    ("text", "shares"),
    [("1,1,2,2", Shares(1, 2, 2)), ("2,3,3,3", Shares(2, 3, 3)), ("1,1,1,1", Shares()), ("", Shares())],
)
def test_a_launch_tells_each_replicas_weight(text: str, shares: Shares) -> None:
    launched = Environment.read(told(text))
    assert launched is not None and launched.configuration is not None
    assert launched.configuration.execution.shares == shares


@pytest.mark.parametrize("text", ["1,2", "1,2,1,2", "1,2,3,3", "0,0,1,1", "0,0,0,0", "one"])
def test_weights_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Environment.read(told(text))


# The reference trainer.

Found = tuple[list[float], list[NoiseSample | None], dict[str, torch.Tensor]]


def trained(plan: Sequence[Configuration]) -> Found:
    """A step under each; losses, noise and what the parameters have come to."""
    trainee = Trainee(RECIPE, plan[0])
    losses: list[float] = []
    for each in plan:
        now = trainee.parallel.configuration
        if (each.layout, each.execution) == (now.layout, now.execution):
            trainee.parallel.configure(each)
        else:
            trainee.reshard(each)
        losses += trainee.train(1)
    assert trainee.samples_seen == sum(each.global_batch for each in plan)
    parameters = {tile.name: tile.tensor.clone() for tile in trainee.parallel.tiles() if tile.name.startswith("model.")}
    return losses, trainee.noise, parameters


def as_alone(plan: Sequence[Configuration], found: list[Found]) -> None:
    ours = [Configuration(Layout(1), each.micro_batch, each.global_batch) for each in plan]
    losses, noise, parameters = trained(ours)
    agree_with((losses, noise), [(each, samples) for each, samples, _ in found])
    for _, _, theirs in found:
        whole = {name: tensor for name, tensor in theirs.items() if tensor.shape == parameters[name].shape}
        assert whole and all(torch.allclose(tensor, parameters[name], atol=1e-5) for name, tensor in whole.items())


def test_two_unequal_replicas_train_as_one_rank_does(tmp_path: Path) -> None:
    """While batch and micro-batch change, and from one layout to another."""
    optimizer = {"sharding": "optimizer"}
    plans = [
        [shared((1, 2), 2, 2), shared((1, 2), 1, 2), shared((1, 2), 2, 1)],
        [shared((2, 3), 2, 1), shared((2, 3), 1, 3)],
        [shared((1, 2), 2, 1, **optimizer), shared((1, 2), 4, 1, **optimizer)],
        [shared((2, 3), 1, 2, **optimizer), shared((1, 1), 1, 5, **optimizer), shared((1, 3), 1, 2)],
    ]
    for number, found in enumerate(zip(*gang(tmp_path, 2, lambda: [trained(plan) for plan in plans]), strict=True)):
        as_alone(plans[number], list(found))


def test_they_may_share_sequences_and_be_tensor_parallel(tmp_path: Path) -> None:
    plans = [
        [shared((1, 2), 2, 1, cp=2, sharding="optimizer")],
        [shared((1, 3), 1, 1, tp=2, sequence_parallel=True)],
    ]
    for number, found in enumerate(zip(*gang(tmp_path, 4, lambda: [trained(plan) for plan in plans]), strict=True)):
        as_alone(plans[number], list(found))


@pytest.mark.parametrize(
    ("configuration", "complaint"),
    [
        (shared((1, 2), 2, 1, pp=2), "cannot be pipelines"),
        (shared((1, 2), 2, 1, ep=2), "even shares only"),
        (shared((1, 2), 2, 1, sharding="gradients"), "cannot share out gradients"),
        (shared((1, 2), 2, 1, sharding="parameters"), "cannot share out parameters"),
        (Configuration(Layout(2), 2, 12, Execution(shares=Shares(1, 2, 3))), "not those of 2 replicas"),
        (replace(shared((1, 2), 2, 1), global_batch=8), "does not divide"),
    ],
)
def test_what_cannot_be_trained_unevenly_is_refused_by_name(configuration: Configuration, complaint: str) -> None:
    experts = replace(TINY, experts=4, active_experts=2)
    with pytest.raises(CannotRun, match=complaint):
        check(experts, configuration, configuration.ranks())


def test_shares_are_an_option_outside_headway() -> None:
    parsed = trainer.options(["--shares", "1,1,3", "--global-batch", "20", "--micro-batch", "2"])
    configuration = first_configuration(parsed, None, world=3)
    assert (configuration.shares(), configuration.cycles()) == ((1, 1, 3), 2)


def test_measurements_of_uneven_shares_are_told_and_no_rows_of_the_estimators() -> None:
    setting = Setting(TINY, "tiny", "fp32", "CPU", 2)
    outcomes = [Outcome(each, "oom") for each in (shared((1, 2), 2, 2), shared((1, 1), 2, 3))]
    uneven, even = table(setting, outcomes).splitlines()[1:]
    assert uneven.endswith("shares 1,2") and "shares" not in even
    (row,) = csv.DictReader(io.StringIO(to_csv(setting, outcomes)))
    assert row["grad_accum"] == "3"


# Scripts of one's own.


def accumulated(shares: Sequence[int], counts: Sequence[int]) -> Reduced:
    """This rank's turn of one step, of micro-batches of two."""
    rank = torch.distributed.get_rank()
    gradients = GradientAccumulator([Tiny()], shares=shares, every=1)
    (model,) = gradients._modules
    for index in range(sum(counts[:rank]), sum(counts[: rank + 1])):
        inputs, targets = batch(2 * index, 2)
        loss = loss_of(model(inputs), targets)
        loss.backward()
        gradients.end_micro_batch(loss)
    return gradients.reduce(2)


def test_an_accumulator_is_told_shares_and_holds_ranks_to_them(tmp_path: Path) -> None:
    def rank() -> tuple[Reduced, str]:
        kept = accumulated((1, 2), (2, 4))
        with pytest.raises(RuntimeError) as refused:
            accumulated((1, 2), (3, 3))
        for shares in ((1, 2, 3), (0, 1)):
            with pytest.raises(UnknownLayout, match="are not the shares of 2 replicas"):
                GradientAccumulator([Tiny()], shares=shares)
        sharded = Tiny()
        fully_shard(sharded)
        with pytest.raises(UnknownLayout, match="their shares must be even"):
            GradientAccumulator([sharded], shares=(1, 2))
        GradientAccumulator([sharded], shares=(2, 2)).close()
        return kept, str(refused.value)

    model = Tiny()
    gradients = GradientAccumulator([model], every=1)
    for index in range(6):
        inputs, targets = batch(2 * index, 2)
        loss = loss_of(model(inputs), targets)
        loss.backward()
        gradients.end_micro_batch(loss)
    expected = gradients.reduce(2)
    assert expected.noise is not None
    for reduced, refused in gang(tmp_path, 2, rank):
        assert "3 here, 6 on all 2. Give every rank as many as it weighs: 1,2" in refused
        assert reduced.noise is not None
        assert reduced.loss == pytest.approx(expected.loss, rel=1e-5)
        assert reduced.gradient_sqr == pytest.approx(expected.gradient_sqr, rel=1e-5)
        assert reduced.noise.to_json() == pytest.approx(expected.noise.to_json(), rel=1e-5)


RATE = 0.1
FIRST, WIDER = shared((1, 2), micro_batch=2, cycles=2), shared((1, 2), micro_batch=4, cycles=2)
ORDERS = {2: replace(WIDER, global_batch=16), 3: WIDER}
"""At which step; the first would divide among equal replicas only."""


def followed() -> list[headway.StepSummary]:
    """Under DistributedDataParallel, whose ranks do as the scheduler says; what was reported here."""
    os.environ |= told(",".join(map(str, FIRST.shares())), dp=2)
    rank = torch.distributed.get_rank()
    model = DistributedDataParallel(Tiny())
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    reporter = StepReporter(model, micro_batch=2, sequence_length=LENGTH, every=1, report_every_s=0.0, batch="live")
    reported: list[headway.StepSummary] = []
    headway.report_steps = reported.append
    orders = {step: headway.Configure(step, configuration, 1.0) for step, configuration in ORDERS.items()}
    headway.poll = lambda: orders.pop(reporter.step + 1, None)
    chosen = FIRST
    while reporter.step < 5:
        optimizer.zero_grad()
        samples, size = chosen.samples(rank), chosen.micro_batch
        losses = []
        for first in samples[::size]:
            inputs, targets = batch(reporter.samples_seen + first, size)
            with contextlib.nullcontext() if first + size == samples.stop else model.no_sync():
                losses.append(loss_of(model(inputs), targets))
                (losses[-1] * chosen.gradient_scale()).backward()
        asked = reporter.end_step(sum(losses).item() / len(losses), len(losses))
        optimizer.step()
        chosen = asked.configure.configuration if asked.configure is not None else chosen
    return reported


def test_a_reporter_measures_what_unequal_replicas_were_told_to_do(tmp_path: Path) -> None:
    reported, nothing = gang(tmp_path, 2, followed)
    assert [step.configuration for step in reported] == [FIRST] * 3 + [WIDER] * 2 and not nothing
    model = Tiny()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    gradients = GradientAccumulator([model], every=1)
    seen = 0
    for step in reported:
        size = step.configuration.micro_batch
        for first in range(seen, seen + step.configuration.global_batch, size):
            inputs, targets = batch(first, size)
            loss = loss_of(model(inputs), targets)
            loss.backward()
            gradients.end_micro_batch(loss)
        reduced = gradients.reduce(size)
        assert step.noise is not None and reduced.noise is not None
        assert step.loss == pytest.approx(reduced.loss, rel=1e-5), "the mean over sequences"
        assert step.noise.to_json() == pytest.approx(reduced.noise.to_json(), rel=1e-5)
        optimizer.step()
        gradients.clear()
        seen += step.configuration.global_batch
        assert step.samples_seen == seen


@dataclass(frozen=True)
class Seat(Ranks):
    """Of one of several replicas, without processes."""

    number: int = 0
    of: int = 1

    @property
    def replica(self) -> int:
        return self.number

    @property
    def replicas(self) -> int:
        return self.of


def in_order(micro_batch: int, accumulation: int, seat: Seat) -> SampleBatches:
    return SampleBatches(1000, micro_batch, accumulation, ranks=seat, order=lambda _: range(1000))


def test_every_sample_of_a_step_comes_once_whatever_shares_and_batches() -> None:
    choice = random.Random(3)
    for _ in range(20):
        weights = [choice.randint(1, 3)] * choice.randint(1, 3) + [choice.randint(1, 4)] * choice.randint(0, 3)
        plan = [shared(weights, choice.randint(1, 3), choice.randint(1, 3)) for _ in range(4)]
        samplers = [in_order(1, 1, Seat(number=replica, of=len(weights))) for replica in range(len(weights))]
        iterators, first = [iter(each) for each in samplers], 0
        for configuration in plan:
            taken = []
            for replica, (sampler, micro_batches) in enumerate(zip(samplers, iterators, strict=True)):
                sampler.configure(configuration)
                own = [next(micro_batches) for _ in range(configuration.micro_batches(replica))]
                assert {len(each) for each in own} == {configuration.micro_batch}
                assert sum(own, []) == [first + each for each in configuration.samples(replica)]
                taken += sum(own, [])
            assert taken == list(range(first, first + configuration.global_batch))
            first += configuration.global_batch


def test_samples_follow_the_shares_of_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in told("1,2", dp=2).items():
        monkeypatch.setenv(name, value)

    def taken(replica: int, count: int) -> list[list[int]]:
        batches = iter(in_order(2, count, Seat(number=replica, of=2)))
        return [next(batches) for _ in range(count + 1)]

    assert taken(0, 1) == [[0, 1], [6, 7]] and taken(1, 2) == [[2, 3], [4, 5], [8, 9]]
    with pytest.raises(ValueError, match="an accumulation of 3 is no multiple of 2"):
        taken(1, 3)
    with pytest.raises(UnknownLayout, match="are not the shares of 1 replicas"):
        next(iter(SampleBatches(100, 2)))
