"""Dropout by counters: whether an activation is dropped is a function of the seed, the place in the model, the sample,
the position in it and the channel, and of no generator's state. So a sample loses the same in every layout, on whatever
rank and as whatever slice it is computed, after every restart, and when its activations are computed again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Drop = Callable[[Tensor, str], Tensor]
_MULTIPLIER, _WEYL, _WORD = 0xD256D193, 0x9E3779B9, (1 << 32) - 1


def drop_nothing(x: Tensor, _: str) -> Tensor:
    return x


@dataclass(frozen=True)
class Dropout:
    """Srivastava et al. 2014, with what is kept scaled up instead of weights scaled down."""

    share: float
    """Of the activations that is dropped."""
    seed: int

    def of(self, samples: range | None, positions: Tensor) -> Drop:
        """For activations (samples, positions, channels) of these samples (their indices in the order of training) at
        these positions, and the name of their place. Without samples nothing is dropped, as in evaluation."""
        if samples is None or self.share == 0.0:
            return drop_nothing
        return lambda x, place: self._drop(x, place, samples, positions)

    def _drop(self, x: Tensor, place: str, samples: range, positions: Tensor) -> Tensor:
        channels = x.shape[-1]
        sample = torch.arange(samples.start, samples.stop, device=x.device)[:, None, None] & _WORD
        element = positions[:, None] * channels + torch.arange(channels, device=x.device)
        drawn = philox(element.expand_as(x), sample.expand_as(x), _key(self.seed, place))[0]
        return x * ((drawn >= round(self.share * (_WORD + 1))).to(x.dtype) / (1.0 - self.share))


def philox(first: Tensor, second: Tensor, key: int) -> tuple[Tensor, Tensor]:
    """Philox2x32-10 (Salmon et al. 2011): two words of 32 bits for every counter of two, all as 64-bit integers."""
    for turn in range(10):
        product = first * _MULTIPLIER  # modulo 2⁶⁴, which leaves its bits as they are
        first, second = (product >> 32 & _WORD) ^ (key + turn * _WEYL & _WORD) ^ second, product & _WORD
    return first, second


def _key(seed: int, place: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/dropout/{place}".encode()).digest()[:4], "big")
