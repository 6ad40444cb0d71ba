"""What the accumulator does beside counting: the estimate against brute force, scaling, clipping, broken steps."""

from __future__ import annotations

import copy
import statistics

import pytest
import torch
from rounding import assert_close_noise, assert_close_numbers, assert_close_tensors
from tiny import VOCAB, WIDTH, Tiny, batch, loss_of
from torch import Tensor, nn

from headway import said
from headway.noise import NoiseAverage
from headway.torch import GradientAccumulator, Preconditioner, Reduced, UnknownLayout, Unmeasured

SMALL = 2


def one_step(model: Tiny, gradients: GradientAccumulator, first: int, count: int, scale: float = 1.0) -> Reduced:
    """`count` micro-batches of two; the mean gradient is left for an optimizer."""
    gradients.clear()
    for start in range(first, first + count * SMALL, SMALL):
        inputs, targets = batch(start, SMALL)
        loss = loss_of(model(inputs), targets)
        (loss * scale).backward()
        gradients.end_micro_batch(loss)
    return gradients.reduce(SMALL, gradient_scale=scale)


def trained(steps: int = 20) -> tuple[Tiny, torch.optim.Adam]:
    """A model whose second moments mean something."""
    model = Tiny()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
    for step in range(steps):
        optimizer.zero_grad()
        inputs, targets = batch(100_000 + 16 * step, 16)
        loss_of(model(inputs), targets).backward()
        optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def second_moment(optimizer: torch.optim.Adam, parameter: nn.Parameter) -> Tensor | None:
    """Bias-corrected, and nearly nothing for the rarest tokens' rows of the embedding, as in a large vocabulary."""
    state = optimizer.state.get(parameter)
    if not state:
        return None
    moment = state["exp_avg_sq"] / (1.0 - 0.95 ** float(state["step"]))
    if parameter.shape == (VOCAB, WIDTH):
        moment[VOCAB - 2 :] *= 1e-6
    return moment


def brute_force(model: Tiny, examples: int, scale: Tensor | None = None) -> tuple[float, float]:
    """tr Σ and unbiased |G|² from single examples' gradients, in double precision."""
    rows = []
    for index in range(examples):
        model.zero_grad()
        inputs, targets = batch(1_000_000 + index, 1)
        loss_of(model(inputs), targets).backward()
        flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).double()
        rows.append(flat if scale is None else flat / scale)
    model.zero_grad()
    stacked = torch.stack(rows)
    variance = float(stacked.var(dim=0).sum())
    return variance, float(stacked.mean(dim=0).square().sum()) - variance / examples


def test_the_estimate_is_within_its_stated_error_of_brute_force() -> None:
    """Twelve runs of 40 steps on samples of their own: their distances in standard errors must look like noise."""
    model, _ = trained()
    gradients = GradientAccumulator(model.parameters(), every=1)
    averages = []
    for run in range(12):
        average = NoiseAverage(1e9)
        for step in range(40):
            sample = one_step(model, gradients, 320 * run + 8 * step, 4).noise
            assert sample is not None
            average.add(sample)
        averages.append(average)
    gradients.close()
    variance, gradient_sqr = brute_force(model, 2000)
    truth = variance / gradient_sqr
    distances = []
    for average in averages:
        estimate = average.estimate()
        assert estimate is not None
        distances.append((estimate.sequences - truth) / estimate.standard_error)
    print(f"brute force {truth:.2f}, distances {[round(each, 2) for each in distances]}")
    assert statistics.fmean(each**2 for each in distances) < 2.0
    assert abs(statistics.fmean(distances)) < 1.0


def flat_scale(model: Tiny, preconditioner: Preconditioner) -> Tensor:
    scales = [preconditioner.scale(parameter) for parameter in model.parameters()]
    assert all(scale is not None for scale in scales)
    return torch.cat([scale.flatten() for scale in scales if scale is not None]).double()


def preconditioned(damping: float) -> tuple[float, float]:
    """The estimate over 150 steps, and brute force; both of tr Σ over |G|², preconditioned alike."""
    model, optimizer = trained()
    preconditioner = Preconditioner(lambda parameter: second_moment(optimizer, parameter), damping)
    gradients = GradientAccumulator(model.parameters(), preconditioner=preconditioner, every=1)
    average = NoiseAverage(1e9)
    for step in range(150):
        reduced = one_step(model, gradients, 8 * step, 4)
        assert (reduced.preconditioned is None) == (step == 0), "the first step learns the damping"
        if reduced.preconditioned is not None:
            average.add(reduced.preconditioned)
    gradients.close()
    variance, gradient_sqr = brute_force(model, 2000, flat_scale(model, preconditioner))
    estimate = average.scale()
    assert estimate is not None
    return estimate, variance / gradient_sqr


def test_the_damped_preconditioned_estimate_meets_brute_force() -> None:
    estimate, truth = preconditioned(0.3)
    assert estimate == pytest.approx(truth, rel=0.1)


def test_without_damping_rare_rows_spoil_the_estimate() -> None:
    """Why there is damping at all."""
    estimate, truth = preconditioned(1e-3)
    assert abs(estimate / truth - 1.0) > 0.25


def test_small_and_big_see_the_same_preconditioner() -> None:
    """With equal micro-batches there is no noise, however they are scaled."""
    model, optimizer = trained()
    preconditioner = Preconditioner(lambda parameter: second_moment(optimizer, parameter))
    gradients = GradientAccumulator(model.parameters(), preconditioner=preconditioner, every=1)
    for _ in range(2):
        gradients.clear()
        for _ in range(3):
            inputs, targets = batch(0, SMALL)
            loss = loss_of(model(inputs), targets)
            loss.backward()
            gradients.end_micro_batch(loss)
        reduced = gradients.reduce(SMALL)
    assert reduced.preconditioned is not None
    assert reduced.preconditioned.small_sqr == pytest.approx(reduced.preconditioned.big_sqr, rel=1e-5)
    assert reduced.preconditioned.small_sqr > 10.0 * reduced.gradient_sqr, "it is another norm"


def test_a_preconditioner_that_lies_in_other_shards_is_refused() -> None:
    with pytest.raises(UnknownLayout):
        GradientAccumulator(Tiny().parameters(), shard=True, preconditioner=Preconditioner(lambda _: None))


@pytest.mark.parametrize("scale", [0.25, 65536.0])
def test_the_scale_of_the_loss_does_not_matter(scale: float) -> None:
    model = Tiny()
    gradients = GradientAccumulator(model.parameters(), every=1)
    plain, scaled = one_step(model, gradients, 0, 4), one_step(model, gradients, 0, 4, scale)
    assert plain.noise is not None and scaled.noise is not None
    assert scaled.noise.to_json() == pytest.approx(plain.noise.to_json(), rel=1e-6)
    assert scaled.gradient_sqr == pytest.approx(plain.gradient_sqr, rel=1e-6)


def test_clipping_comes_after_measuring() -> None:
    model = Tiny()
    gradients = GradientAccumulator(model.parameters(), every=1)
    reduced = one_step(model, gradients, 0, 4)
    gradients.clip(reduced, 1e-3)
    clipped = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    assert float(clipped.norm()) == pytest.approx(1e-3, rel=1e-4)
    again = one_step(model, gradients, 0, 4)
    assert_close_noise(again.noise, reduced.noise)


def test_one_small_batch_is_flagged_and_said(caplog: pytest.LogCaptureFixture) -> None:
    said.forget()
    model = Tiny()
    reduced = one_step(model, GradientAccumulator(model.parameters(), every=1), 0, 1)
    assert reduced.noise is None and reduced.unmeasured is Unmeasured.ONE_SMALL_BATCH
    assert "a step is one micro-batch of one replica" in caplog.text
    assert reduced.gradient_sqr > 0.0


def test_a_step_that_is_not_finite_is_skipped_and_counted() -> None:
    model = Tiny()
    gradients = GradientAccumulator(model.parameters(), every=1)
    good = one_step(model, gradients, 0, 4)
    broken = one_step(model, gradients, 0, 4, scale=float("nan"))
    assert broken.noise is None and broken.unmeasured is Unmeasured.NOT_FINITE
    assert gradients.not_finite == 1
    assert_close_noise(one_step(model, gradients, 0, 4).noise, good.noise)


def test_the_cadence_leaves_loss_and_gradient_alone() -> None:
    model = Tiny()
    often = GradientAccumulator(model.parameters(), every=1)
    expected = [one_step(model, often, 8 * step, 4) for step in range(4)]
    often.close()
    seldom = GradientAccumulator(model.parameters(), every=3)
    reduced = [one_step(model, seldom, 8 * step, 4) for step in range(4)]
    assert [each.unmeasured for each in reduced] == [None, Unmeasured.NOT_DUE, Unmeasured.NOT_DUE, None]
    assert_close_numbers([each.loss for each in reduced], [each.loss for each in expected])
    assert_close_numbers([each.gradient_sqr for each in reduced], [each.gradient_sqr for each in expected])
    for step in (0, 3):
        assert_close_noise(reduced[step].noise, expected[step].noise)


def test_a_tied_weight_counts_once() -> None:
    """Given by both of its modules, it is still one parameter with one gradient."""
    model = Tiny(tied=True)
    gradients = GradientAccumulator([model.embedding, model.blocks, model.norm, model.head], every=1)
    reduced = one_step(model, gradients, 0, 4)
    gradients.close()
    gradients.clear()
    inputs, targets = batch(0, 8)
    loss_of(model(inputs), targets).backward()
    expected = sum(float(parameter.grad.double().square().sum()) for parameter in model.parameters())
    assert reduced.gradient_sqr == pytest.approx(expected, rel=1e-5)


def test_a_closed_accumulator_lets_go() -> None:
    model = Tiny()
    gradients = GradientAccumulator(model.parameters(), every=1)
    gradients.close()
    inputs, targets = batch(0, 2)
    loss_of(model(inputs), targets).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_parameters_of_any_precision_are_trained_and_measured(dtype: torch.dtype) -> None:
    """The mean gradient of a whole step, in the parameters' own numbers, accumulated in at least single precision."""
    model = Tiny().to(dtype)
    gradients = GradientAccumulator(model.parameters(), every=1)
    reduced = one_step(model, gradients, 0, 4)
    found = torch.cat([parameter.grad.flatten().double() for parameter in model.parameters()])
    assert all(parameter.grad.dtype == dtype for parameter in model.parameters())
    gradients.clip(reduced, 1e-3)
    clipped = torch.cat([parameter.grad.flatten().double() for parameter in model.parameters()])
    assert float(clipped.norm()) == pytest.approx(1e-3, rel=2e-2)
    gradients.close()
    gradients.clear()
    for start in range(0, 4 * SMALL, SMALL):
        inputs, targets = batch(start, SMALL)
        (loss_of(model(inputs), targets) / 4).backward()
    expected = torch.cat([parameter.grad.flatten().double() for parameter in model.parameters()])
    rounding = torch.finfo(dtype).eps if dtype != torch.float64 else 1e-12
    assert float((found - expected).norm() / expected.norm()) < 4 * rounding
    assert reduced.gradient_sqr == pytest.approx(float(expected.square().sum()), rel=16 * rounding)
    single = Tiny()
    exact = one_step(single, GradientAccumulator(single.parameters(), every=1), 0, 4).noise
    assert reduced.noise is not None and exact is not None
    assert reduced.noise.small_sqr == pytest.approx(exact.small_sqr, rel=0.02)


def test_half_precision_learns() -> None:
    model = Tiny().to(torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    gradients = GradientAccumulator(model.parameters())
    losses = []
    for _ in range(20):
        losses.append(one_step(model, gradients, 0, 4).loss)
        optimizer.step()
    assert losses[-1] < 0.9 * losses[0], losses


def test_a_step_on_nothing_is_refused() -> None:
    model = Tiny()
    gradients = GradientAccumulator(model.parameters())
    with pytest.raises(RuntimeError, match="no micro-batch has ended"):
        gradients.reduce(SMALL)
    inputs, targets = batch(0, SMALL)
    loss = loss_of(model(inputs), targets)
    gradients.end_micro_batch(loss)
    with pytest.raises(RuntimeError, match="no gradient has arrived"):
        gradients.reduce(SMALL)


def test_a_layer_unfrozen_later_is_trained_and_one_frozen_later_rests() -> None:
    """As a script does between two steps, which says so to nobody: what comes is what an accumulator that is made anew
    would give."""
    model = Tiny()
    first, second = model.blocks["0"], model.blocks["1"]
    first.requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.5)
    gradients = GradientAccumulator([model], every=1)
    one_step(model, gradients, 0, 4)
    optimizer.step()
    first.requires_grad_(True)
    second.requires_grad_(False)
    resting = [parameter.detach().clone() for parameter in second.parameters()]
    twin = copy.deepcopy(model)
    reduced = one_step(model, gradients, 8, 4)
    expected = one_step(twin, GradientAccumulator([twin], every=1), 8, 4)
    assert_close_noise(reduced.noise, expected.noise)
    for (name, parameter), other in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert (parameter.grad is None) == name.startswith("blocks.1")
        if parameter.grad is not None:
            assert_close_tensors([parameter.grad], [other.grad])
    optimizer.step()
    assert all(torch.equal(now, then) for now, then in zip(second.parameters(), resting, strict=True))
    one_step(model, gradients, 16, 4)
    assert all(parameter.grad is not None for parameter in first.parameters())
    model.requires_grad_(False)
    gradients.clear()
    gradients.end_micro_batch(torch.tensor(1.0))
    assert gradients.reduce(SMALL).gradient_sqr == 0.0, "nothing is trained for a while"
    model.requires_grad_(True)
    assert one_step(model, gradients, 24, 4).gradient_sqr > 0.0


def test_slices_of_other_parameters_are_refused() -> None:
    model = Tiny()
    gradients = GradientAccumulator(model.parameters(), shard=True)
    model.blocks["0"].requires_grad_(False)
    with pytest.raises(RuntimeError, match="make both anew"):
        one_step(model, gradients, 0, 4)


def test_a_short_micro_batch_gives_no_sample_which_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    said.forget()
    model = Tiny()
    gradients = GradientAccumulator([model], every=1)
    for _ in range(2):
        for size in (SMALL, SMALL, 1):
            inputs, targets = batch(0, size)
            loss = loss_of(model(inputs), targets)
            loss.backward()
            gradients.end_micro_batch(loss)
        assert gradients.reduce(SMALL).unmeasured is Unmeasured.UNEQUAL
        gradients.clear()
    assert caplog.text.count("Give all of a step equally many sequences") == 1
    assert one_step(model, gradients, 0, 4).noise is not None
