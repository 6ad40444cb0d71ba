"""Sums of squares of gradients, raw and preconditioned, and what becomes of them once summed over the world."""

from __future__ import annotations

import enum
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from headway.noise import NoiseSample

RAW, PRECONDITIONED = 0, 1
# Noise is measured at each so manieth step: the estimate loses little, and a measured step reads every gradient again.
EVERY = 4
PIECE = 1 << 16
Norm: TypeAlias = Tensor | float
"""A number where it is known at once, on a CPU."""


class Unmeasured(enum.Enum):
    """Why a step has no noise sample."""

    NOT_DUE = "not due at this cadence"
    ONE_SMALL_BATCH = "one small batch: data-parallel degree times accumulation is 1"
    NOT_FINITE = "a gradient is not finite"
    CONTRADICTORY = "the mean gradient is not the mean of the micro-batches' gradients that were heard"
    MISCOUNTED = "gradients came more or less often than there were micro-batches"
    NO_COPIES = "ranks that are said to hold copies of parameters do not"
    UNEQUAL = "micro-batches are of unequal sizes, and nobody told which"
    FUSED = "gradients are added up by fused kernels, where nobody hears them"
    NOT_AVERAGED = "ranks that should hold copies of one mean gradient do not"
    NO_MEAN = "nobody told the mean gradient: it is not in p.grad, and no norm of it was given"


ONE_SMALL_BATCH = (
    "a step is one micro-batch of one replica, and noise is what several differ by. Accumulate two at least, or train"
    " on several replicas"
)


@dataclass(frozen=True)
class Piece:
    """A tensor whose square is shared with the other ranks that hold a copy."""

    values: Tensor
    copies: int
    # What the optimizer divides this gradient by, where that is known.
    scale: Tensor | None = None


class Squares:
    """Two sums in double precision on the device: of raw squares, and of preconditioned ones. Never waits for it."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(2, dtype=torch.float64, device=device)

    @torch.no_grad()
    def add(self, pieces: Iterable[Piece]) -> None:
        for which, scaled in ((RAW, False), (PRECONDITIONED, True)):
            by_copies: dict[int, list[Tensor]] = defaultdict(list)
            for piece in pieces:
                if not scaled:
                    by_copies[piece.copies].append(piece.values)
                elif piece.scale is not None:
                    by_copies[piece.copies].append(piece.values / piece.scale)
            for copies, tensors in by_copies.items():
                self.sums[which] += sum_of_squares(norms(tensors)) / copies

    def clear(self) -> None:
        self.sums.zero_()


def norms(tensors: list[Tensor]) -> Sequence[Norm]:
    """Whose squares add up to the tensors'. Each is summed in single precision, as a GPU's kernel does by itself, on a
    CPU of a piece: as good as double precision of the whole to 10⁻⁶, and several times as fast there."""
    # Never narrower than what is summed.
    dtype = torch.float64 if any(tensor.dtype == torch.float64 for tensor in tensors) else torch.float32
    if tensors[0].device.type != "cpu":
        return torch._foreach_norm(tensors, 2.0, dtype)
    found = _norms_of_pieces(tensors, dtype)
    # The squares of a loss scaled beyond reason.
    return found if all(map(math.isfinite, found)) else _norms_of_pieces(tensors, torch.float64)


def _norms_of_pieces(tensors: list[Tensor], dtype: torch.dtype) -> list[float]:
    """With as few calls as can be: a hook runs each of them where nothing of it is in the processor's caches."""
    found: list[float] = []
    for tensor in tensors:
        whole = tensor.numel() // PIECE * PIECE
        flat = tensor.reshape(-1)
        if whole:
            found += torch.linalg.vector_norm(flat[:whole].view(-1, PIECE), dim=1, dtype=dtype).tolist()
            flat = flat[whole:]
        if whole < tensor.numel():
            found.append(torch.linalg.vector_norm(flat, dtype=dtype).item())
    return found


def sum_of_squares(norms: Sequence[Norm]) -> Tensor:
    """On a device that any of the norms is on, rather than on the CPU. They are squared in double precision: the
    squares of a scaled loss overflow single."""
    by_device: dict[torch.device, list[Tensor]] = defaultdict(list)
    known = 0.0
    for norm in norms:
        if isinstance(norm, Tensor):
            by_device[norm.device].append(norm)
        else:
            known += float(norm) ** 2
    if not by_device:
        return torch.tensor(known, dtype=torch.float64, device="cpu")
    where = next((device for device in by_device if device.type != "cpu"), torch.device("cpu"))
    squares = [torch.stack(tensors).double().square().sum().to(where) for tensors in by_device.values()]
    return torch.stack(squares).sum() + known


def sample_of(small: float, big: float, batches: tuple[float, float], count: float) -> NoiseSample | Unmeasured:
    """One step's two squares over the world: the mean over its `count` small batches, and of the mean gradient."""
    if count < 2:
        return Unmeasured.ONE_SMALL_BATCH
    if big == 0.0 and small > 0.0:
        return Unmeasured.NO_MEAN
    sample = NoiseSample(small, big, *batches)
    return sample if sample.is_finite() else Unmeasured.NOT_FINITE


class Contradiction:
    """Whether a mean gradient can be that of the small batches that were heard. Times their number K, its square over
    the mean of theirs is K at most, and over many steps 1 at least: of K independent gradients noise alone leaves so
    much. Less means that it was scaled down before it was measured: by a pipeline's schedule that divides by the
    micro-batches itself, by clipping, by unscaling."""

    STEPS = 32
    LEAST = 0.4
    MOST = 1.01

    def __init__(self) -> None:
        self._steps, self._mean = 0, 0.0

    def found(self, sample: NoiseSample) -> bool:
        count = sample.big_batch / sample.small_batch
        share = count * sample.big_sqr / sample.small_sqr if sample.small_sqr > 0.0 else 1.0
        self._steps += 1
        self._mean += (share - self._mean) / min(self._steps, 2 * self.STEPS)
        return share > self.MOST * count or (self._steps >= self.STEPS and self._mean < self.LEAST)


SecondMoment = Callable[[torch.nn.Parameter], Tensor | None]
"""This rank's piece of Adam's second moment of a parameter, of the shape of a micro-batch's gradient; None before the
optimizer has one. A common factor, such as a correction of its bias, makes no difference."""


class Preconditioner:
    """Adam's own scaling of the gradient, damped: g / max(√v, damping · rms √v), the root mean square over the model.

    With Adam's tiny eps alone, rows of an embedding that are hardly ever used (v ≈ 0) outweigh the model, and the
    estimate is garbage. Small and big squares of a step see the same v, that of the step before.
    """

    gathers = False
    """Whether it has the moments whole on every replica although the optimizer shares them out."""

    def __init__(self, second_moment: SecondMoment, damping: float = 0.3) -> None:
        self._second_moment = second_moment
        self._damping = damping
        self._mean = math.nan

    def begin(self) -> None:
        """Before each measured step, once the optimizer has made the one before. On all ranks."""

    def end(self) -> None:
        """After it."""

    def total(self, parameters: Iterable[tuple[torch.nn.Parameter, int]], device: torch.device) -> Tensor:
        """This rank's share of the sum of v and of the number of elements it is over."""
        total = torch.zeros(2, dtype=torch.float64, device=device)
        for parameter, copies in parameters:
            moment = self._second_moment(parameter)
            if moment is not None:
                total[0] += moment.sum(dtype=torch.float64) / copies
                total[1] += moment.numel() / copies
        return total

    def learn(self, total: float, elements: float) -> None:
        """Takes the sums over the world, for the next step's damping."""
        self._mean = total / elements if elements else math.nan

    def scale(self, parameter: torch.nn.Parameter) -> Tensor | None:
        """What to divide the parameter's gradient by; None while the model's second moment is not known."""
        if not self._mean > 0.0:
            return None
        moment = self._second_moment(parameter)
        return None if moment is None else moment.sqrt().clamp_(min=self._damping * math.sqrt(self._mean))
