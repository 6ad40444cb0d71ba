"""Comparisons of results of floating-point kernels.

A kernel may sum in another order on another processor, or where a tensor lies at another address. Tests therefore
compare such results up to rounding, and never by `==` or `torch.equal`. Copies, masks and integers stay exact."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from headway.noise import NoiseSample

# float32 has 24 bits. A few hundred additions in another order change the last few of them.
RELATIVE = 1e-5


def assert_close_tensors(ours: Iterable[Tensor], theirs: Iterable[Tensor]) -> None:
    """Each pair differs by rounding alone, which is relative to the largest value of the pair."""
    for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        largest = float(other.detach().abs().max()) if other.numel() else 0.0
        difference = float((one.detach() - other.detach()).abs().max()) if other.numel() else 0.0
        assert difference <= RELATIVE * largest, f"tensor {index}: {difference} apart, where the largest is {largest}"


def assert_close_numbers(ours: Iterable[float], theirs: Iterable[float]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert abs(one - other) <= RELATIVE * abs(other), f"{one} is not {other}"


def assert_close_noise(ours: NoiseSample | None, theirs: NoiseSample | None) -> None:
    """Both were measured, of the same batches, and differ by rounding alone."""
    assert ours is not None and theirs is not None
    assert (ours.small_batch, ours.big_batch) == (theirs.small_batch, theirs.big_batch)
    assert_close_numbers((ours.small_sqr, ours.big_sqr), (theirs.small_sqr, theirs.big_sqr))
