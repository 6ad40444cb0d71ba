"""Model, data and noise on one rank."""

from __future__ import annotations

import pytest
import torch
from rounding import assert_close_tensors

from headway.data import Corpus, permute
from headway.flops import ModelShape
from headway.model import Decoder
from headway.noise import NoiseAverage, NoiseSample
from headway.optimizer import AdamW
from headway.torch import GradientAccumulator

TINY = ModelShape(layers=2, hidden=16, heads=4, kv_heads=2, ffn_hidden=44, vocab=256, seq_len=16)
CORPUS = Corpus.read(None, TINY.seq_len)


def batch(first: int, count: int) -> torch.Tensor:
    text = b"".join(CORPUS.sample(index) for index in range(first, first + count))
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).view(count, -1).long()


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_the_parameter_count_is_the_schedulers(tied: bool, kv_heads: int) -> None:
    shape = ModelShape(3, 64, 4, kv_heads, 176, 256, 64, tied=tied)
    assert sum(parameter.numel() for parameter in Decoder(shape).parameters()) == shape.parameters()


def test_flops_of_a_known_model() -> None:
    """Llama-3.2-3B: 3.2e9 parameters with a tied head."""
    shape = ModelShape(28, 3072, 24, 8, 8192, 128256, 8192, tied=True)
    assert shape.parameters() == 3_212_749_824
    forward = 2 * 28 * (2 * 3072**2 * (1 + 8 / 24) + 3 * 3072 * 8192) + 2 * 28 * 8192 * 3072 + 2 * 3072 * 128256
    assert shape.forward_flops_per_token() == pytest.approx(forward)
    assert shape.training_flops_per_token() == pytest.approx(3 * forward)


def test_a_future_token_changes_nothing() -> None:
    model = Decoder(TINY, seed=1)
    tokens = batch(0, 1)[:, :-1]
    changed = tokens.clone()
    changed[0, -1] ^= 1
    assert torch.allclose(model(tokens)[0, :-1], model(changed)[0, :-1])


def test_every_sample_comes_once_per_epoch() -> None:
    for size in (1, 2, 3, 1000, 4097):
        assert sorted(permute(position, size, 7) for position in range(size)) == list(range(size))
    corpus = Corpus(bytes(range(256)) * 40, 16)
    epochs = [[corpus.sample(epoch * corpus.training + i) for i in range(corpus.training)] for epoch in range(2)]
    assert epochs[0] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1])


def test_held_out_text_is_never_trained_on() -> None:
    text = b"".join(i.to_bytes(4, "big") for i in range(4000))
    corpus = Corpus(text, 16)
    trained = {corpus.sample(i)[:-1] for i in range(corpus.training)}
    assert not trained & {corpus.held_out_sample(i)[:-1] for i in range(corpus.held_out)}


def test_noise_matches_brute_force_over_single_sequences() -> None:
    """Frozen weights. 64 steps of 4 x 2 sequences against the covariance of the same 512 single gradients. The error of
    tr S is a few per cent at this count; that of |G|^2 about 2 sqrt(phi / nB), so 0.15 holds both."""
    model = Decoder(TINY, seed=1)
    gradients = GradientAccumulator(model.parameters(), every=1)
    optimizer = AdamW(dict(model.named_parameters()), gradients)
    for step in range(30):
        gradients_of(model, gradients, 1000 + 8 * step, 4, 2)
        optimizer.step(3e-3)
    samples = [gradients_of(model, gradients, 8 * step, 4, 2) for step in range(64)]
    variance = sum(sample.variance() for sample in samples) / len(samples)
    gradient_sqr = sum(sample.gradient_sqr() for sample in samples) / len(samples)

    single = gradients_of(model, gradients, 0, 512, 1)
    assert variance == pytest.approx(single.variance(), rel=0.15)
    assert gradient_sqr == pytest.approx(single.gradient_sqr(), rel=0.15)
    average = NoiseAverage(horizon_sequences=1e9)
    for sample in samples:
        average.add(sample)
    assert average.scale() == pytest.approx(single.variance() / single.gradient_sqr(), rel=0.3)


def gradients_of(model: Decoder, gradients: GradientAccumulator, first: int, count: int, size: int) -> NoiseSample:
    """One step's noise sample; leaves the mean gradient for the optimizer."""
    gradients.clear()
    for start in range(first, first + count * size, size):
        loss = model.loss(batch(start, size))
        loss.backward()
        gradients.end_micro_batch(loss)
    sample = gradients.reduce(size).noise
    assert sample is not None
    return sample


def test_squares_are_those_of_autograd() -> None:
    model, reference = Decoder(TINY, seed=2), Decoder(TINY, seed=2)
    gradients = GradientAccumulator(model.parameters(), every=1)
    sample = gradients_of(model, gradients, 0, 2, 2)
    flats = []
    for start in (0, 2):
        reference.zero_grad()
        reference.loss(batch(start, 2)).backward()
        flats.append(torch.cat([parameter.grad.flatten() for parameter in reference.parameters()]).double())
    assert sample.small_sqr == pytest.approx(float(sum(flat @ flat for flat in flats)) / 2, rel=1e-5)
    mean = (flats[0] + flats[1]) / 2
    assert sample.big_sqr == pytest.approx(float(mean @ mean), rel=1e-5)
    assert (sample.small_batch, sample.big_batch) == (2.0, 4.0)


def test_one_small_batch_gives_no_sample() -> None:
    model = Decoder(TINY)
    gradients = GradientAccumulator(model.parameters(), every=1)
    loss = model.loss(batch(0, 4))
    loss.backward()
    gradients.end_micro_batch(loss)
    assert gradients.reduce(4).noise is None


def test_the_optimizer_is_adamw() -> None:
    model, reference = Decoder(TINY, seed=3), Decoder(TINY, seed=3)
    gradients = GradientAccumulator(model.parameters(), every=1)
    optimizer = AdamW(dict(model.named_parameters()), gradients)
    groups = [
        {"params": [p for p in reference.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in reference.parameters() if p.dim() == 1], "weight_decay": 0.0},
    ]
    expected = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
    for step in range(3):
        gradients_of(model, gradients, 4 * step, 2, 2)
        optimizer.step(1e-2)
        expected.zero_grad()
        for start in (0, 2):
            (reference.loss(batch(4 * step + start, 2)) / 2).backward()
        expected.step()
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_offloaded_states_are_stepped_apart_from_the_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without a GPU both are in the same memory, and still each by itself."""
    model, reference = Decoder(TINY, seed=3), Decoder(TINY, seed=3)
    pairs = []
    for each, offload in ((model, True), (reference, False)):
        gradients = GradientAccumulator(each.parameters(), every=1)
        pairs.append((each, gradients, AdamW(dict(each.named_parameters()), gradients, offload=offload)))
    own = {parameter.data_ptr() for parameter in model.parameters()} | {pairs[0][1].mean.data_ptr()}
    kernel, stepped = torch._fused_adamw_, []

    def watched(values: list[torch.Tensor], *states: object, **rates: object) -> None:
        stepped.append(values)
        kernel(values, *states, **rates)

    monkeypatch.setattr(torch, "_fused_adamw_", watched)
    for step in range(3):
        for each, gradients, optimizer in pairs:
            gradients_of(each, gradients, 4 * step, 2, 2)
            stepped.clear()
            optimizer.step(1e-2)
            if each is model:
                assert len(stepped) == len(list(model.parameters()))
                assert {len(values) for values in stepped} == {1}, "host memory holds one parameter more"
                assert all(values[0].device.type == "cpu" and values[0].data_ptr() not in own for values in stepped)
    assert_close_tensors(model.parameters(), reference.parameters())
    assert {tile.tensor.device.type for tile in pairs[0][2].tiles()} == {"cpu"}


def test_clipping_scales_and_keeps_what_was_measured() -> None:
    model = Decoder(TINY)
    gradients = GradientAccumulator(model.parameters(), every=1)
    loss = model.loss(batch(0, 4))
    loss.backward()
    gradients.end_micro_batch(loss)
    reduced = gradients.reduce(4)
    gradients.clip(reduced, 0.01)
    assert float(gradients.mean.norm()) == pytest.approx(0.01, rel=1e-4)
    assert reduced.gradient_sqr > 0.01**2
