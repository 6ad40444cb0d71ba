"""Measuring the noise scale where somebody else owns the gradients: a plain loop, DistributedDataParallel, FSDP2, or a
framework that only tells the norm of the mean gradient.

It never touches a gradient. A hook on each parameter squares what one micro-batch adds, before it is accumulated or
reduced, so the small batch is the micro-batch in every layout.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headway.noise import NoiseSample
from headway.torch.ranks import Ranks, local, placed_like, unique
from headway.torch.squares import EVERY, RAW, Contradiction, Piece, Squares, StepSquares, Unmeasured, norms
from headway.torch.unsharded import sharded_parameters, watch

log = logging.getLogger("headway")

PENDING = 256


@dataclass(frozen=True)
class Measured:
    """One step's noise sample for `headway.report`, the same on all ranks, or why there is none."""

    noise: NoiseSample | None = None
    unmeasured: Unmeasured | None = None
    # The sums over ranks of the extra values given to `measure`.
    extra: tuple[float, ...] = ()


class NoiseMeter:
    """Listens to the gradients of `modules`; make it once they are wrapped, sharded and parallelised.

    `ranks` need be given only where the world is not all data-parallel. Noise is measured at each `every`th step; in
    between the hooks return at once and `measure` does not communicate.
    """

    def __init__(self, *modules: nn.Module, ranks: Ranks | None = None, every: int = EVERY) -> None:
        self.ranks = ranks if ranks is not None else Ranks()
        self.ranks.check()
        self._every = every
        self._parameters = unique(parameter for module in modules for parameter in module.parameters())
        self._squares = Squares(local(self._parameters[0]).device)
        self._norms: dict[int, list[Tensor]] = {}
        self._pending = 0
        self._seen: Counter[int] = Counter()
        self._steps = 0
        self._complained: set[str] = set()
        self._contradiction = Contradiction()
        self.not_finite = 0
        gathered_by_fsdp = sharded_parameters(modules)
        self._hooks = [self._listen(each) for each in self._parameters if id(each) not in gathered_by_fsdp]
        self._hooks += watch(modules, lambda gathered, _: self._listen(gathered))

    def close(self) -> None:
        """Stops listening."""
        while self._hooks:
            self._hooks.pop().remove()

    @property
    def measuring(self) -> bool:
        """Whether this step's noise is measured."""
        return self._steps % self._every == 0

    @torch.no_grad()
    def measure(
        self,
        micro_batch: float,
        gradient_scale: float = 1.0,
        micro_batches: int | None = None,
        gradient_norm: float | None = None,
        extra: Sequence[float] = (),
    ) -> Measured:
        """Ends a step. Call it on every rank after the last backward, before unscaling, clipping and the optimizer.

        Without a sample, which is said once, where parameters were heard more or less often than there were
        `micro_batches` (after a step without `measure`, or of several backward passes for a micro-batch), and where the
        mean gradient cannot be the mean of what was heard.

        `micro_batch`: sequences per micro-batch. `gradient_scale`: the factor on each micro-batch's mean loss, such as
        1/accumulation, times the scale of half precision. `micro_batches`: per replica; by default, how often the
        busiest parameter was heard. `gradient_norm`: norm of the mean gradient over the whole model, unscaled, from a
        framework that keeps gradients elsewhere than in `p.grad`. `extra` rides along in the one small all-reduce,
        which then happens at every step; all ranks must give equally many.
        """
        if not self.measuring:
            self._steps += 1
            return Measured(unmeasured=Unmeasured.NOT_DUE, extra=self.sum_over_world(extra))
        seen = max(self._seen.values(), default=0)
        heard = micro_batches if micro_batches is not None else seen
        self._flush()
        small = self._squares.sums[RAW] / gradient_scale**2
        big = torch.zeros_like(small) if gradient_norm is not None else self._mean_square(heard * gradient_scale)
        miscounted = small.new_tensor(float(0 < seen != heard))
        small_sum, big_sqr, miscounts, *extra_sums = self.sum_over_world(extra, [small, big, miscounted])
        self._squares.clear()
        self._seen.clear()
        self._steps += 1
        if gradient_norm is not None:
            big_sqr = float(gradient_norm) ** 2
        sample = StepSquares(small_sum, big_sqr).sample(micro_batch, self.ranks.replicas * heard)
        if miscounts:
            sample = Unmeasured.MISCOUNTED
            self._complain(
                f"gradients came {seen} times in a step of {heard} micro-batches. Call measure at every step, and give"
                " micro_batches as often as backward runs, each for as many sequences"
            )
        elif isinstance(sample, NoiseSample) and self._contradiction.found(sample):
            sample = Unmeasured.CONTRADICTORY
            self._complain(
                "the mean gradient is not the mean of the micro-batches' gradients. Measure before clipping and"
                " unscaling, and give gradient_scale as the factor on each micro-batch's mean loss; a pipeline's"
                " schedule that divides by the micro-batches itself (scale_grads=True) must not"
            )
        self.not_finite += sample is Unmeasured.NOT_FINITE
        if isinstance(sample, NoiseSample):
            return Measured(sample, extra=tuple(extra_sums))
        return Measured(unmeasured=sample, extra=tuple(extra_sums))

    def _complain(self, why: str) -> None:
        if why not in self._complained:
            self._complained.add(why)
            log.warning("no noise is measured (said once): %s", why)

    def sum_over_world(self, values: Sequence[float], squares: Sequence[Tensor] = ()) -> tuple[float, ...]:
        """Squares and then values, in one all-reduce; none where there is nothing to sum."""
        if not squares and not values:
            return ()
        more = torch.tensor(list(values), dtype=torch.float64).to(self._squares.sums.device)
        packed = torch.cat([torch.stack(list(squares)), more]) if squares else more
        if torch.distributed.is_initialized():
            torch.distributed.all_reduce(packed)
        return tuple(packed.tolist())

    def _listen(self, parameter: nn.Parameter) -> RemovableHandle:
        copies, key = self.ranks.copies_in_replica(parameter), id(parameter)

        def hook(gradient: Tensor) -> None:
            if self.measuring:
                self._seen[key] += 1
                self._hear(local(placed_like(gradient.detach(), parameter)), copies)

        handle: RemovableHandle = parameter.register_hook(hook)  # type: ignore[no-untyped-call]
        return handle

    def _hear(self, piece: Tensor, copies: int) -> None:
        """Only the norm is kept: whoever held the gradient itself would make autograd copy it."""
        self._norms.setdefault(copies, []).extend(norms([piece]))
        self._pending += 1
        if self._pending >= PENDING:
            self._flush()

    def _flush(self) -> None:
        for copies, known in self._norms.items():
            self._squares.add_norms(known, copies)
        self._norms.clear()
        self._pending = 0

    def _mean_square(self, scale: float) -> Tensor:
        """This rank's share of the mean gradient's square: `p.grad` is the mean over replicas of what accumulated."""
        squares = Squares(self._squares.sums.device)
        squares.add(self._pieces())
        return squares.sums[RAW] / scale**2 if scale else squares.sums[RAW]

    def _pieces(self) -> Iterable[Piece]:
        return [
            Piece(local(placed_like(parameter.grad, parameter)), self.ranks.copies_in_world(parameter))
            for parameter in self._parameters
            if parameter.grad is not None
        ]
