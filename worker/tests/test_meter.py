"""A meter that only listens measures what the accumulator measures, whoever owns the gradients; and its pitfalls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from gang import gang
from rounding import assert_close_noise, assert_close_tensors
from tiny import Tiny, batch, loss_of, tensor_parallel
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from headway.noise import NoiseAverage, NoiseSample
from headway.torch import GradientAccumulator, Measured, NoiseMeter, Ranks, UnknownLayout, Unmeasured

SMALL, GLOBAL = 2, 8


def expected(model: nn.Module | None = None) -> NoiseSample:
    """What the accumulator says of the eight samples on one rank."""
    model = model if model is not None else Tiny()
    gradients = GradientAccumulator(model.parameters(), every=1)
    for start in range(0, GLOBAL, SMALL):
        inputs, targets = batch(start, SMALL)
        loss = loss_of(model(inputs), targets)
        loss.backward()
        gradients.end_micro_batch(loss)
    noise = gradients.reduce(SMALL).noise
    assert noise is not None
    gradients.close()
    return noise


@dataclass(frozen=True)
class Loop:
    """How somebody else's loop goes about its gradients."""

    dp: int = 1
    tp: int = 1
    sequence_parallel: bool = False
    wrapper: str = "none"
    synchronize_last_only: bool = False


def train(loop: Loop) -> Measured:
    mesh = init_device_mesh("cpu", (loop.dp, loop.tp), mesh_dim_names=("dp", "tp"))
    model: nn.Module = Tiny()
    if loop.tp > 1:
        tensor_parallel(model, mesh["tp"], loop.sequence_parallel)
    if loop.wrapper == "ddp":
        model = DistributedDataParallel(model)
    if loop.wrapper == "fsdp":
        for block in model.blocks.values():
            fully_shard(block, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    meter = NoiseMeter(model, ranks=Ranks.of(mesh) if loop.tp > 1 else None, every=1)
    accumulation = GLOBAL // SMALL // loop.dp
    first = torch.distributed.get_rank(mesh["dp"].get_group()) * accumulation * SMALL
    for index in range(accumulation):
        last = index == accumulation - 1
        waiting = contextlib.nullcontext()
        if loop.synchronize_last_only and not last and loop.wrapper == "ddp":
            waiting = model.no_sync()
        if loop.synchronize_last_only and loop.wrapper == "fsdp":
            model.set_requires_gradient_sync(last)
        inputs, targets = batch(first + index * SMALL, SMALL)
        with waiting:
            (loss_of(model(inputs), targets) / accumulation).backward()
    measured = meter.measure(SMALL, gradient_scale=1 / accumulation)
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3, foreach=False) if loop.tp == 1 else None
    return measured


LOOPS = {
    "one rank": Loop(),
    "DDP": Loop(dp=4, wrapper="ddp"),
    "DDP, reducing every micro-batch": Loop(dp=2, wrapper="ddp"),
    "DDP, reducing the last micro-batch": Loop(dp=2, wrapper="ddp", synchronize_last_only=True),
    "FSDP2": Loop(dp=4, wrapper="fsdp"),
    "FSDP2, reducing every micro-batch": Loop(dp=2, wrapper="fsdp"),
    "FSDP2, reducing the last micro-batch": Loop(dp=2, wrapper="fsdp", synchronize_last_only=True),
    "FSDP2 and tensor parallel": Loop(dp=2, tp=2, wrapper="fsdp"),
    "FSDP2 and sequence parallel": Loop(dp=2, tp=2, wrapper="fsdp", sequence_parallel=True),
    "tensor parallel": Loop(tp=2),
}


@pytest.mark.parametrize("name", LOOPS)
def test_whoever_reduces_the_meter_measures_the_same(name: str, tmp_path: Path) -> None:
    loop = LOOPS[name]
    theirs = expected()
    for measured in gang(tmp_path, loop.dp * loop.tp, lambda: train(loop)):
        assert measured.noise is not None
        assert measured.noise.to_json() == pytest.approx(theirs.to_json(), rel=1e-5)
        assert measured.noise.variance() == pytest.approx(theirs.variance(), rel=1e-4)


def alone(
    scale: float = 1.0, count: int = GLOBAL // SMALL, every: int = 1, steps: int = 1, spoil: bool = False
) -> tuple[NoiseMeter, list[Measured]]:
    """A plain loop on one rank."""
    model = Tiny()
    meter = NoiseMeter(model, every=every)
    measured = []
    for _ in range(steps):
        model.zero_grad()
        for start in range(0, count * SMALL, SMALL):
            inputs, targets = batch(start, SMALL)
            (loss_of(model(inputs), targets) * (float("inf") if spoil and start else scale)).backward()
        measured.append(meter.measure(SMALL, gradient_scale=scale))
    return meter, measured


@pytest.mark.parametrize("scale", [1.0, 0.25, 65536.0, 1e21])
def test_the_scale_of_the_loss_does_not_matter(scale: float) -> None:
    """Squares of gradients scaled by 1e21 do not fit in single precision."""
    _, (measured,) = alone(scale)
    assert measured.noise is not None
    assert measured.noise.to_json() == pytest.approx(expected().to_json(), rel=1e-5)


def test_one_small_batch_is_flagged_and_said(caplog: pytest.LogCaptureFixture) -> None:
    _, (measured,) = alone(count=1)
    assert measured == Measured(unmeasured=Unmeasured.ONE_SMALL_BATCH)
    assert "a step is one micro-batch of one replica" in caplog.text


def test_a_step_that_is_not_finite_is_skipped_and_counted() -> None:
    meter, (measured,) = alone(spoil=True)
    assert measured == Measured(unmeasured=Unmeasured.NOT_FINITE)
    assert meter.not_finite == 1


def test_between_measured_steps_nothing_is_done() -> None:
    _, measured = alone(every=3, steps=7)
    assert [each.unmeasured is Unmeasured.NOT_DUE for each in measured] == [False, True, True, False, True, True, False]
    assert_close_noise(measured[3].noise, measured[0].noise)


def test_a_framework_that_keeps_gradients_elsewhere_tells_their_norm() -> None:
    model = Tiny()
    meter = NoiseMeter(model, every=1)
    for start in range(0, GLOBAL, SMALL):
        inputs, targets = batch(start, SMALL)
        (loss_of(model(inputs), targets) * SMALL / GLOBAL).backward()
    norm = float(nn.utils.clip_grad_norm_(model.parameters(), 1e-3))
    for parameter in model.parameters():
        parameter.grad = None
    measured = meter.measure(SMALL, gradient_scale=SMALL / GLOBAL, gradient_norm=norm)
    assert measured.noise is not None
    assert measured.noise.to_json() == pytest.approx(expected().to_json(), rel=1e-5)


def test_a_mean_gradient_that_nobody_told_gives_no_sample(caplog: pytest.LogCaptureFixture) -> None:
    """Taken for zero, it would make the noise infinite."""
    model = Tiny()
    meter = NoiseMeter(model, every=1)
    for _ in range(2):
        for start in range(0, GLOBAL, SMALL):
            inputs, targets = batch(start, SMALL)
            loss_of(model(inputs), targets).backward()
        model.zero_grad()
        assert meter.measure(SMALL).unmeasured is Unmeasured.NO_MEAN
    assert caplog.text.count("the mean gradient is gone") == 1


def backwards(meter: NoiseMeter, model: Tiny, times: int = 1) -> None:
    """A step of four micro-batches, each passed back so many times in equal parts."""
    model.zero_grad()
    for start in range(0, GLOBAL, SMALL):
        inputs, targets = batch(start, SMALL)
        for _ in range(times):
            (loss_of(model(inputs), targets) / times).backward()


def test_micro_batches_that_come_more_often_than_told_give_no_sample(caplog: pytest.LogCaptureFixture) -> None:
    """Counted as they came, a skipped `measure` would double the noise, and two backward passes a micro-batch halve
    it."""
    model, count = Tiny(), GLOBAL // SMALL
    meter = NoiseMeter(model, every=1)
    backwards(meter, model)
    backwards(meter, model)
    assert meter.measure(SMALL, micro_batches=count).unmeasured is Unmeasured.MISCOUNTED
    backwards(meter, model, times=2)
    assert meter.measure(SMALL, micro_batches=count).unmeasured is Unmeasured.MISCOUNTED
    assert caplog.text.count("no noise is measured") == 1
    backwards(meter, model)
    measured = meter.measure(SMALL, micro_batches=count)
    assert measured.noise is not None
    assert measured.noise.to_json() == pytest.approx(expected().to_json(), rel=1e-5)


def test_a_mean_that_was_scaled_before_it_was_measured_gives_no_sample(caplog: pytest.LogCaptureFixture) -> None:
    """As by a pipeline's schedule with scale_grads=True, or by clipping."""
    model, count = Tiny(), GLOBAL // SMALL
    meter = NoiseMeter(model, every=1)
    found = []
    for step in range(40):
        model.zero_grad()
        for start in range(step * GLOBAL, (step + 1) * GLOBAL, SMALL):
            inputs, targets = batch(start, SMALL)
            loss_of(model(inputs), targets).backward()
        for parameter in model.parameters():
            parameter.grad /= count**2
        found.append(meter.measure(SMALL, micro_batches=count).unmeasured)
    assert found[-1] is Unmeasured.CONTRADICTORY and caplog.text.count("not the mean of the micro-batches'") == 1
    larger = NoiseMeter(model, every=1)
    backwards(larger, model)
    for parameter in model.parameters():
        parameter.grad *= count
    assert larger.measure(SMALL, micro_batches=count).unmeasured is Unmeasured.CONTRADICTORY


def test_listening_changes_no_gradient() -> None:
    def gradients(listen: Callable[[nn.Module], object]) -> list[torch.Tensor]:
        model = Tiny()
        listen(model)
        for start in (0, SMALL):
            inputs, targets = batch(start, SMALL)
            loss_of(model(inputs), targets).backward()
        return [parameter.grad for parameter in model.parameters()]

    assert_close_tensors(gradients(NoiseMeter), gradients(lambda _: None))


def test_half_precision_is_squared_in_full() -> None:
    """A norm taken in bfloat16 would have three digits."""
    model = Tiny().bfloat16()
    meter = NoiseMeter(model, every=1)
    squares: list[float] = []
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: squares.append(float(gradient.double().square().sum())))
    for start in range(0, GLOBAL, SMALL):
        inputs, targets = batch(start, SMALL)
        loss_of(model(inputs), targets).backward()
    measured = meter.measure(SMALL)
    assert measured.noise is not None
    assert measured.noise.small_sqr == pytest.approx(sum(squares) / (GLOBAL // SMALL), rel=1e-6)


def mixed_precision() -> Measured:
    model = Tiny()
    fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    meter = NoiseMeter(model, every=1)
    for start in range(torch.distributed.get_rank() * 4, torch.distributed.get_rank() * 4 + 4, SMALL):
        inputs, targets = batch(start, SMALL)
        (loss_of(model(inputs), targets) / 2).backward()
    return meter.measure(SMALL, gradient_scale=0.5)


def test_fsdp_in_bfloat16_is_near_full_precision(tmp_path: Path) -> None:
    for measured in gang(tmp_path, 2, mixed_precision):
        assert measured.noise is not None
        assert measured.noise.to_json() == pytest.approx(expected().to_json(), rel=0.02)


def undeclared() -> str:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    model = Tiny()
    tensor_parallel(model, mesh, False)
    with pytest.raises(UnknownLayout) as refused:
        NoiseMeter(model)
    return str(refused.value)


def test_tensor_parallelism_that_was_not_declared_is_refused(tmp_path: Path) -> None:
    """All ranks would be taken for replicas, and the estimate would be wrong by about their number."""
    assert all("data-parallel" in message for message in gang(tmp_path, 2, undeclared))


def uneven(
    sizes: list[int], mean: bool, told: bool = True, model: Tiny | None = None, first: int = 0
) -> tuple[Measured, Tiny]:
    """One step of micro-batches of such sizes: their mean losses weighted alike (`mean`), or by size."""
    model = model if model is not None else Tiny()
    meter = NoiseMeter(model, every=1)
    scales = [1 / len(sizes) if mean else size / sum(sizes) for size in sizes]
    for size, scale in zip(sizes, scales, strict=True):
        inputs, targets = batch(first, size)
        first += size
        (loss_of(model(inputs), targets) * scale).backward()
    measured = meter.measure(sizes if told else sizes[0], scales if told else 1 / len(sizes), len(sizes))
    meter.close()
    return measured, model


@pytest.mark.parametrize("mean", [True, False])
def test_micro_batches_of_unequal_sizes_are_weighted_by_them(mean: bool) -> None:
    """Σ v|g|², the batch 1/Σ(v/b) that it is of, |Σ v g|², and 1/Σ(v²/b)."""
    sizes = [4, 4, 4, 1]
    measured, _ = uneven(sizes, mean)
    weights = [1 / 4 if mean else size / 13 for size in sizes]
    small, total, first = 0.0, 0.0, 0
    for size, weight in zip(sizes, weights, strict=True):
        model = Tiny()
        inputs, targets = batch(first, size)
        first += size
        loss_of(model(inputs), targets).backward()
        gradient = torch.cat([parameter.grad.flatten().double() for parameter in model.parameters()])
        small += weight * float(gradient.square().sum())
        total = total + weight * gradient
    wanted = NoiseSample(
        small,
        float(total.square().sum()),
        1 / sum(weight / size for weight, size in zip(weights, sizes, strict=True)),
        1 / sum(weight**2 / size for weight, size in zip(weights, sizes, strict=True)),
    )
    assert measured.noise is not None
    assert measured.noise.to_json() == pytest.approx(wanted.to_json(), rel=1e-5)


@pytest.mark.parametrize("mean", [True, False])
def test_unequal_micro_batches_estimate_what_equal_ones_do(mean: bool) -> None:
    """Over many steps of one model: their noise is the same, which the sizes' spread alone would have changed."""
    model = Tiny()
    even, odd = NoiseAverage(1e9), NoiseAverage(1e9)
    for number in range(300):
        for sizes, average in (([2, 2, 2, 2, 2], even), ([5, 2, 1, 1, 1], odd)):
            model.zero_grad()
            measured, _ = uneven(sizes, mean, model=model, first=10 * number)
            assert measured.noise is not None
            average.add(measured.noise)
    estimates = [average.estimate() for average in (even, odd)]
    assert estimates[0] is not None and estimates[1] is not None
    apart = estimates[1].sequences - estimates[0].sequences
    assert abs(apart) < 3 * (estimates[0].standard_error + estimates[1].standard_error)
    assert abs(apart) < 0.15 * estimates[0].sequences


def test_a_short_micro_batch_that_nobody_told_gives_no_sample(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        measured, _ = uneven([4, 4, 4, 1], mean=True, told=False)
        assert measured == Measured(unmeasured=Unmeasured.UNEQUAL)
    assert "Tell the sequences of each" in caplog.text


class Labelled(nn.Module):
    """As Hugging Face's models are called: some labels are ignored."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Tiny()

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return loss_of(self.model(tokens), labels)


@pytest.mark.parametrize(("ignored", "unmeasured"), [([0, 3], Unmeasured.UNEQUAL), ([2, 2], None)])
def test_losses_over_differing_numbers_of_labels_are_no_equal_micro_batches(
    ignored: list[int], unmeasured: Unmeasured | None
) -> None:
    model = Labelled()
    meter = NoiseMeter(model, every=1)
    for index, none in enumerate(ignored):
        inputs, targets = batch(2 * index, SMALL)
        labels = targets.clone()
        labels[:, :none] = -100
        (model(inputs, labels=labels) / 2).backward()
    assert meter.measure(SMALL, 0.5).unmeasured is unmeasured


def test_the_tokens_of_each_micro_batch_are_the_unit_of_its_size() -> None:
    """Two micro-batches of two sequences: of 12 tokens and of 4. A sequence is one of 8/2 tokens, the step's mean."""
    model = Labelled()
    meter = NoiseMeter(model, every=1)
    for index, none in enumerate([0, 4]):
        inputs, targets = batch(2 * index, SMALL)
        labels = targets.clone()
        labels[:, :none] = -100
        (model(inputs, labels=labels) * (12 - 2 * none) / 16).backward()
    noise = meter.measure(SMALL, [0.75, 0.25], tokens=[12, 4]).noise
    assert noise is not None
    assert (noise.small_batch, noise.big_batch) == pytest.approx((2.0, 4.0))


def replicas_of_other_sizes(told: bool) -> Measured:
    """One of two replicas has fewer sequences, and as many micro-batches."""
    rank = torch.distributed.get_rank()
    size = 3 - rank
    model = DistributedDataParallel(Tiny())
    meter = NoiseMeter(model, every=1)
    for index in range(2):
        inputs, targets = batch(6 * rank + size * index, size)
        (loss_of(model(inputs), targets) / 2).backward()
    return meter.measure([size, size] if told else 3, 0.5)


def test_replicas_of_other_sizes_are_weighted_or_refused(tmp_path: Path) -> None:
    for measured in gang(tmp_path, 2, lambda: replicas_of_other_sizes(True)):
        assert measured.noise is not None
        assert (measured.noise.small_batch, measured.noise.big_batch) == pytest.approx((2.4, 9.6))
    for measured in gang(tmp_path, 2, lambda: replicas_of_other_sizes(False)):
        assert measured.unmeasured is Unmeasured.UNEQUAL


def test_what_is_told_of_micro_batches_must_be_told_of_each() -> None:
    model = Tiny()
    meter = NoiseMeter(model, every=1)
    backwards(meter, model)
    with pytest.raises(ValueError, match="one number is wanted for each of 4 micro-batches"):
        meter.measure([SMALL, SMALL], micro_batches=4)


class Routed(nn.Module):
    """Half of it rests in every other micro-batch, as experts do that no token is sent to."""

    def __init__(self) -> None:
        super().__init__()
        self.always, self.sometimes = Tiny(), Tiny()

    def forward(self, tokens: torch.Tensor, second: bool) -> torch.Tensor:
        return self.always(tokens) + (self.sometimes(tokens) if second else 0.0)


@pytest.mark.parametrize(("sizes", "unmeasured"), [([2, 2], None), ([2, 1], Unmeasured.MISCOUNTED)])
def test_a_rest_is_no_miscount_unless_micro_batches_differ(sizes: list[int], unmeasured: Unmeasured | None) -> None:
    """Which micro-batch a gradient is of is then not known."""
    model = Routed()
    meter = NoiseMeter(model, every=1)
    for index, size in enumerate(sizes):
        inputs, targets = batch(2 * index, size)
        loss_of(model(inputs, index == 1), targets).backward()
    assert meter.measure(sizes).unmeasured is unmeasured
