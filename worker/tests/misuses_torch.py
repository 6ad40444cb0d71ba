"""What a script can do wrong with `headway.torch`: alone, and on two ranks."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from misuses import Corrected, Misuse, Outcome, Raises, Says, Scene
from tiny import LENGTH, VOCAB, Tiny, batch, loss_of
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

import headway
from headway.torch import GradientAccumulator, NoiseMeter, StepReporter, together

SMALL = 2


def train(
    scene: Scene | None = None,
    steps: int = 2,
    accumulation: int = 2,
    before_end: Callable[[nn.Module, torch.optim.Optimizer], Any] = lambda model, optimizer: None,
    model: nn.Module | None = None,
    watched: nn.Module | None = None,
    zero_grad: bool = True,
    backwards: int = 1,
    report_every: int = 1,
    end: dict[str, Any] | None = None,
    loss: Callable[[Tensor], Any] = lambda loss: loss,
    first: int = 0,
    sizes: tuple[int, ...] = (),
) -> StepReporter:
    """A loop with the five lines, and one thing wrong with it."""
    model = model if model is not None else Tiny()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    reporter = StepReporter(
        watched if watched is not None else model,
        micro_batch=SMALL,
        sequence_length=LENGTH,
        every=1,
        report_every_s=0.0,
    )
    for step in range(steps):
        if zero_grad:
            optimizer.zero_grad()
        for index in range(accumulation):
            size = sizes[index] if sizes else SMALL
            inputs, targets = batch(first + (step * accumulation + index) * SMALL, size)
            with reducing(model, last=index + 1 == accumulation):
                found = loss_of(model(inputs), targets)
                for again in range(backwards):
                    (found / accumulation).backward(retain_graph=again + 1 < backwards)
        before_end(model, optimizer)
        if step % report_every == 0:
            reporter.end_step(loss(found), **{"accumulation": accumulation, **(end or {})})
        optimizer.step()
    return reporter


def reducing(model: nn.Module, last: bool) -> contextlib.AbstractContextManager[None]:
    """With the last micro-batch of a step only."""
    return model.no_sync() if isinstance(model, DistributedDataParallel) and not last else contextlib.nullcontext()


def fused() -> nn.Module:
    """A model whose optimizer makes its step within backward."""
    model = Tiny()
    for parameter in model.parameters():
        optimizer = torch.optim.SGD([parameter], lr=0.01)

        def step(of: nn.Parameter, optimizer: torch.optim.Optimizer = optimizer) -> None:
            optimizer.step()
            of.grad = None

        parameter.register_post_accumulate_grad_hook(step)
    return model


def ask(scene: Scene, *messages: dict[str, Any]) -> StepReporter:
    """Has the agent ask after a first step; the script has heard it when this returns."""
    reporter = train(steps=1)
    scene.agent.serve(lambda: bool(scene.agent.of("step")))
    scene.agent.say(*messages)
    asked = headway.torch.Asked()
    while not (asked.save or asked.stop):
        scene.agent.serve_once()
        asked = end_step(reporter)
    return reporter


def end_step(reporter: StepReporter) -> headway.torch.Asked:
    """Of a step whose gradients do not matter."""
    return reporter.end_step(1.0, 2)


def ignore_saves(scene: Scene) -> None:
    reporter = ask(scene, {"type": "checkpoint"})
    scene.agent.say({"type": "stop", "checkpoint": True})
    while not end_step(reporter).stop:
        scene.agent.serve_once()
    reporter.stopped()


def train_on(scene: Scene) -> None:
    reporter = ask(scene, {"type": "stop", "checkpoint": False})
    end_step(reporter)
    reporter.stopped()


def leave_by_oneself(scene: Scene) -> None:
    reporter = ask(scene, {"type": "stop", "checkpoint": False})
    assert reporter._heeded is not None
    reporter._heeded._at_exit()
    reporter.stopped()


def accumulate(scene: Scene, clears: bool = True, wraps: Callable[[nn.Module], nn.Module] = lambda model: model) -> Any:
    model = wraps(Tiny())
    gradients = GradientAccumulator([model])
    for step in range(2):
        inputs, targets = batch(step * SMALL, SMALL)
        loss = loss_of(model(inputs), targets)
        loss.backward()
        gradients.end_micro_batch(loss)
        gradients.reduce(SMALL)
        if clears:
            gradients.clear()
    return gradients


def accumulate_unequal(_: Scene) -> None:
    model = Tiny()
    gradients = GradientAccumulator([model])
    for size in (SMALL, 1):
        inputs, targets = batch(0, size)
        loss = loss_of(model(inputs), targets)
        loss.backward()
        gradients.end_micro_batch(loss)
    gradients.reduce(SMALL)


def step_on_nothing(_: Scene) -> None:
    gradients = GradientAccumulator([Tiny()])
    gradients.end_micro_batch()
    gradients.reduce(SMALL)


def wrapped(_: Scene) -> None:
    with alone():
        GradientAccumulator([DistributedDataParallel(Tiny())])


def other_ranks_than_launched(_: Scene) -> None:
    os.environ["HEADWAY_DP"], os.environ["WORLD_SIZE"] = "2", "1"
    train()


@contextlib.contextmanager
def alone() -> Any:
    """A world of one rank."""
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def clip(model: nn.Module, _: torch.optim.Optimizer) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)


def step_first(_: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.step()
    optimizer.zero_grad()


def forget_to_divide(_: Scene) -> None:
    """The scale divides small and full squares alike, so the noise scale, their ratio, is the same."""
    scales = []
    for gradient_scale in (0.5, 1.0):
        meter = NoiseMeter(model := Tiny(), every=1)
        for index in range(2):
            inputs, targets = batch(index * SMALL, SMALL)
            (loss_of(model(inputs), targets) / 2).backward()
        noise = meter.measure(SMALL, gradient_scale).noise
        assert noise is not None
        scales.append(noise.variance() / noise.gradient_sqr())
    assert math.isclose(*scales, rel_tol=1e-6)


def accumulate_two(model: nn.Module, gradients: GradientAccumulator) -> None:
    for start in (0, SMALL):
        inputs, targets = batch(start, SMALL)
        loss = loss_of(model(inputs), targets)
        loss.backward()
        gradients.end_micro_batch(loss)


def half(_: Scene) -> Any:
    model = Tiny().bfloat16()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    gradients = GradientAccumulator([model])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    accumulate_two(model, gradients)
    gradients.reduce(SMALL)
    optimizer.step()
    assert any((now != then).any() for now, then in zip(model.parameters(), before, strict=True))


def freeze(_: Scene) -> Any:
    model = Tiny()
    gradients = GradientAccumulator([model])
    for step in range(2):
        for parameter in model.blocks.parameters():
            parameter.requires_grad_(step == 0)
        accumulate_two(model, gradients)
        gradients.reduce(SMALL)
        assert all((parameter.grad is None) == (step == 1) for parameter in model.blocks.parameters())
        gradients.clear()


TORCH: dict[str, Misuse] = {
    "not saving when asked": Misuse(ignore_saves, Says("a checkpoint was asked for at step")),
    "training on when asked to stop": Misuse(train_on, Says("was asked to stop at step")),
    "ending without stopped()": Misuse(leave_by_oneself, Says("ends without reporter.stopped()")),
    # Steps.
    "a micro-batch of nothing": Misuse(
        lambda _: StepReporter(Tiny(), micro_batch=0, sequence_length=LENGTH),
        Raises(ValueError, "micro_batch must be 1 at least, not 0"),
    ),
    "no accumulation": Misuse(
        lambda _: train(end={"accumulation": 0}), Raises(ValueError, "accumulation must be 1 at least, not 0")
    ),
    "a gradient scale of zero": Misuse(
        lambda _: train(end={"gradient_scale": 0.0}), Raises(ValueError, "gradient_scale must be finite and positive")
    ),
    "a loss of several elements": Misuse(
        lambda _: train(loss=lambda loss: torch.stack([loss, loss])),
        Raises(TypeError, "loss must be a number, not Tensor"),
    ),
    "a step without backward": Misuse(lambda _: train(backwards=0), Says("backward has not reached the parameters")),
    "watching another copy of the model": Misuse(
        lambda _: train(watched=Tiny()), Says("backward has not reached the parameters")
    ),
    "measuring after the optimizer": Misuse(
        lambda _: train(before_end=step_first), Says("the mean gradient is gone when the step is measured")
    ),
    "an optimizer within backward": Misuse(
        lambda _: train(model=fused()), Says("the mean gradient is gone when the step is measured")
    ),
    "measuring after clipping": Misuse(
        lambda _: train(steps=40, before_end=clip), Says("Measure before clipping and unscaling")
    ),
    "a missing zero_grad": Misuse(
        lambda _: train(steps=40, zero_grad=False), Says("the mean gradient is not the mean of the micro-batches")
    ),
    "several backwards of a micro-batch": Misuse(
        lambda _: train(backwards=2), Says("gradients came 4 times in a step of 2 micro-batches")
    ),
    "micro-batches of unequal sizes that are not told": Misuse(
        lambda _: train(sizes=(2, 1)), Says("micro-batches are of unequal sizes")
    ),
    "sizes of fewer micro-batches than there are": Misuse(
        lambda _: train(sizes=(2, 1), end={"sequences": [3]}),
        Raises(ValueError, "one number is wanted for each of 2 micro-batches"),
    ),
    "a micro-batch of negative size": Misuse(
        lambda _: train(end={"sequences": [2, -2]}),
        Raises(ValueError, "sequences must each be finite and 0 at least"),
    ),
    "a wrong gradient scale, the same in all steps": Misuse(
        forget_to_divide, Corrected("the noise scale is a ratio, and stays what it is")
    ),
    "steps that are not ended": Misuse(lambda _: train(steps=3, report_every=2), Says("Call measure at every step")),
    "other ranks than the launch's": Misuse(
        other_ranks_than_launched, Raises(headway.torch.UnknownLayout, "the job was launched with dp 2")
    ),
    # The accumulator.
    "a wrapped model in the accumulator": Misuse(
        wrapped, Raises(headway.torch.UnknownLayout, "DistributedDataParallel reduces gradients by itself")
    ),
    "no clear between steps": Misuse(
        lambda scene: accumulate(scene, clears=False), Raises(RuntimeError, "the step before is not cleared")
    ),
    "a short micro-batch in the accumulator": Misuse(
        accumulate_unequal, Says("Give all of a step equally many sequences")
    ),
    "one micro-batch on one replica": Misuse(accumulate, Says("a step is one micro-batch of one replica")),
    "a step on nothing": Misuse(step_on_nothing, Raises(RuntimeError, "no gradient has arrived")),
    "parameters of half precision": Misuse(half, Corrected("trained: summed and measured in single precision")),
    "layers frozen between steps": Misuse(freeze, Corrected("followed from the step on")),
}


def save_on_rank_1(_: Path) -> None:
    reporter = train()
    if torch.distributed.get_rank() == 1:
        reporter.save(lambda _: None)


def end_step_on_rank_0(_: Path) -> None:
    together.MEET_S = 0.5
    if torch.distributed.get_rank() == 0:
        train()


def save_together_on_rank_0(folder: Path) -> None:
    together.MEET_S = 0.5
    os.environ |= {"HEADWAY_SOCKET": str(folder / "nobody"), "HEADWAY_CHECKPOINT_DIR": str(folder)}
    reporter = train()
    if torch.distributed.get_rank() == 0:
        reporter.save_together(lambda _: None)


def accumulate_unevenly(_: Path) -> None:
    model = Tiny()
    gradients = GradientAccumulator([model])
    for index in range(1 + torch.distributed.get_rank()):
        inputs, targets = batch(index * SMALL, SMALL)
        loss = loss_of(model(inputs), targets)
        loss.backward()
        gradients.end_micro_batch(loss)
    gradients.reduce(SMALL)


def end_uneven_steps(_: Path) -> None:
    """Ranks weigh alike in DistributedDataParallel's mean, so the one micro-batch of the first weighs twice the
    second's."""
    accumulation = 1 + torch.distributed.get_rank()
    reporter = train(accumulation=accumulation, model=DistributedDataParallel(Tiny()))
    assert reporter.samples_seen == 2 * 3 * SMALL, "what all ranks have trained on"
    model = DistributedDataParallel(Tiny())
    meter = NoiseMeter(model, every=1)
    for index in range(accumulation):
        inputs, targets = batch(index * SMALL, SMALL)
        with reducing(model, last=index + 1 == accumulation):
            (loss_of(model(inputs), targets) / accumulation).backward()
    noise = meter.measure(SMALL, 1 / accumulation, accumulation).noise
    assert noise is not None
    squares = []
    for index in range(2):
        reference = Tiny()
        inputs, targets = batch(index * SMALL, SMALL)
        loss_of(reference(inputs), targets).backward()
        squares.append(sum(float(each.grad.double().square().sum()) for each in reference.parameters()))
    # The first micro-batch is that of both ranks.
    assert math.isclose(noise.small_sqr, 0.75 * squares[0] + 0.25 * squares[1], rel_tol=1e-5)
    assert noise.small_batch == SMALL and math.isclose(noise.big_batch, SMALL / (0.5**2 + 2 * 0.25**2), rel_tol=1e-6)


def told_shares() -> None:
    os.environ |= {"HEADWAY_SOCKET": "/nobody", "HEADWAY_DP": "2", "HEADWAY_TP": "1", "HEADWAY_PP": "1"}
    os.environ |= {"HEADWAY_MICRO_BATCH": str(SMALL), "HEADWAY_GLOBAL_BATCH": "12", "HEADWAY_SHARES": "1,2"}


def ignore_shares(_: Path) -> None:
    told_shares()
    train(accumulation=3, model=DistributedDataParallel(Tiny()))


def reduce_too_soon(_: Path) -> None:
    """On the faster replica alone: the slower one would wait for it."""
    told_shares()
    model = DistributedDataParallel(Tiny())
    if torch.distributed.get_rank() == 1:
        reporter = StepReporter(model, micro_batch=SMALL, sequence_length=LENGTH)
        model.eval()
        model(batch(0, SMALL)[0])
        model.train()
        with model.no_sync():
            model(batch(0, SMALL)[0])
        model(batch(0, SMALL)[0])
        reporter._reductions.end_step()
        model(batch(0, SMALL)[0])


def train_apart(_: Path) -> None:
    train(first=1000 * torch.distributed.get_rank())


def begin_apart(_: Path) -> None:
    torch.manual_seed(torch.distributed.get_rank())
    train(model=nn.Sequential(nn.Embedding(VOCAB, VOCAB)))


def reduce_twice(_: Path) -> None:
    model = DistributedDataParallel(Tiny(), gradient_as_bucket_view=True)
    gradients = GradientAccumulator(model.module.parameters())
    inputs, targets = batch(torch.distributed.get_rank() * SMALL, SMALL)
    loss = loss_of(model(inputs), targets)
    loss.backward()
    gradients.end_micro_batch(loss)


def compress(_: Path) -> None:
    """Half the bits: the square of the mean gradient stays what it was, to a hundredth."""
    measured = []
    for compresses in (False, True):
        model = DistributedDataParallel(Tiny())
        if compresses:
            model.register_comm_hook(None, bf16_compress_hook)
        meter = NoiseMeter(model, every=1)
        inputs, targets = batch(torch.distributed.get_rank() * SMALL, SMALL)
        loss_of(model(inputs), targets).backward()
        noise = meter.measure(SMALL).noise
        assert noise is not None
        measured.append(noise.big_sqr)
    assert measured[1] != measured[0] and abs(measured[1] / measured[0] - 1.0) < 0.01


def another_process_group(_: Path) -> None:
    reporter = train()
    torch.distributed.destroy_process_group()
    with alone():
        reporter.end_step(1.0, 2)


TOGETHER: dict[str, tuple[int, Callable[[Path], None], Outcome]] = {
    "saving on another rank than the first": (
        1,
        save_on_rank_1,
        Raises(RuntimeError, "reporter.save is for rank 0 alone"),
    ),
    "ending a step on one rank only": (
        0,
        end_step_on_rank_0,
        Raises(RuntimeError, "not within 0.5 s on rank 1: it is for every rank"),
    ),
    "saving together on one rank only": (
        0,
        save_together_on_rank_0,
        Raises(RuntimeError, "save_together was called on rank 0, and not"),
    ),
    "another accumulation on each rank": (
        0,
        end_uneven_steps,
        Corrected("each micro-batch weighs what it does in the mean gradient, and its samples are counted"),
    ),
    "uneven shares that are told and not kept": (
        0,
        ignore_shares,
        Raises(
            RuntimeError, "launched with shares 1,2, but its replicas do not accumulate by them: 3 micro-batches here"
        ),
    ),
    "reducing before the last micro-batch of the larger share": (
        1,
        reduce_too_soon,
        Raises(RuntimeError, "run all but the last within model.no_sync()"),
    ),
    "a model that nobody reduces": (
        0,
        train_apart,
        Says("Measure once gradients are averaged over replicas"),
    ),
    "replicas that begin with other weights": (
        0,
        begin_apart,
        Raises(headway.torch.UnknownLayout, "ranks that are said to hold copies of 0.weight hold each another one"),
    ),
    "another count of micro-batches on each rank": (
        0,
        accumulate_unevenly,
        Raises(RuntimeError, "ranks have ended different numbers of micro-batches in this step: 1 here, 3 on all 2"),
    ),
    "gradients that somebody else reduces too": (
        0,
        reduce_twice,
        Raises(RuntimeError, "somebody else puts gradients into p.grad"),
    ),
    "a process group of another size": (
        0,
        another_process_group,
        Raises(RuntimeError, "the process group has 1 rank now, and had 2 when StepReporter was made"),
    ),
    "compressed gradients": (
        0,
        compress,
        Corrected("in half the bits the mean gradient's square is off by less than a hundredth"),
    ),
}
"""On two ranks: which of them hears of it."""
