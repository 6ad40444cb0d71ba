"""Measuring the noise scale where somebody else owns the gradients: a plain loop, DistributedDataParallel, FSDP2, or a
framework that only tells the norm of the mean gradient.

It never touches a gradient. A hook on each parameter squares what one micro-batch adds, before it is accumulated or
reduced, so the small batch is the micro-batch in every layout.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.distributed
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headway import said
from headway.noise import NoiseSample
from headway.torch.agreement import Agreement
from headway.torch.heard import Heard
from headway.torch.ranks import Ranks, UnknownLayout, local, named, placed_like
from headway.torch.sizes import Inputs, Sizes, Together, unequal
from headway.torch.squares import (
    EVERY,
    ONE_SMALL_BATCH,
    RAW,
    Contradiction,
    Piece,
    Squares,
    Unmeasured,
    sample_of,
)
from headway.torch.summed import Summed, all_summed, mean_square
from headway.torch.unsharded import sharded_parameters, watch

log = logging.getLogger("headway")

COMPLAINTS = {
    Unmeasured.MISCOUNTED: "gradients came {seen} times in a step of {count} micro-batches. Call measure at every step,"
    " and give micro_batches as often as backward runs, each for as many sequences",
    Unmeasured.CONTRADICTORY: "the mean gradient is not the mean of the micro-batches' gradients. Measure before"
    " clipping and unscaling, and give gradient_scale as the factor on each micro-batch's mean loss; a pipeline's"
    " schedule that divides by the micro-batches itself (scale_grads=True) must not",
    Unmeasured.UNEQUAL: "micro-batches are of unequal sizes. Tell the sequences of each, and the tokens where losses"
    " are means over differing numbers of them; and the factor on each one's mean loss, where it is not the same",
    Unmeasured.ONE_SMALL_BATCH: ONE_SMALL_BATCH,
    Unmeasured.NO_MEAN: "the mean gradient is gone when the step is measured. Measure it (end_step) after the last"
    " backward, before the optimizer and zero_grad, or tell its norm (gradient_norm); an optimizer within backward"
    " leaves none to measure",
    Unmeasured.FUSED: "kernels add gradients to main_grad by themselves: turn gradient_accumulation_fusion off",
    Unmeasured.NO_COPIES: "{amiss}. Give the groups as ranks=Ranks(data, tensor, pipeline), and mark plain shards with"
    " parameter.tensor_model_parallel = True",
    Unmeasured.NOT_AVERAGED: "{amiss}. Measure once gradients are averaged over replicas; where a gradient is a term of"
    " a sum, mark it with parameter.sequence_parallel = True or give summed=",
}


Hear: TypeAlias = Callable[[nn.Parameter, int, Tensor, int], None]
"""Of a parameter, under its key, a micro-batch's gradient here, and how many ranks of the replica hold a copy."""


@dataclass(frozen=True)
class Measured:
    """One step's noise sample for `headway.report`, the same on all ranks, or why there is none."""

    noise: NoiseSample | None = None
    unmeasured: Unmeasured | None = None
    # The sums over ranks of the extra values given to `measure`.
    extra: tuple[float, ...] = ()


class NoiseMeter:
    """Listens to the gradients of `modules`; make it once they are wrapped, sharded and parallelised.

    `ranks` need be given only where the world is not all data-parallel. Under tensor parallelism a DTensor says itself
    what it is; a plain parameter counts as a copy unless it is marked, as Megatron's are, by an attribute that is true:
    `tensor_model_parallel` where it is a shard, `sequence_parallel` where its gradient on this rank is of a part of
    each sequence. Other terms of sums are told by `summed`. Noise is measured at each `every`th step; in between the
    hooks return at once and `measure` does not communicate.
    """

    def __init__(
        self,
        *modules: nn.Module,
        ranks: Ranks | None = None,
        every: int = EVERY,
        summed: Sequence[Summed] = (),
    ) -> None:
        self.ranks = ranks if ranks is not None else Ranks()
        self.ranks.check()
        if self.ranks.contexts > 1:
            raise UnknownLayout(
                "a micro-batch's gradient lies in parts on ranks that share its sequences: only the "
                "GradientAccumulator puts them together"
            )
        self._every = every
        trained = {name: parameter for name, parameter in named(modules).items() if parameter.requires_grad}
        self._parameters = list(trained.values())
        self._device = local(self._parameters[0]).device
        self._summed = all_summed(self._parameters, self.ranks, summed)
        self._terms = {id(parameter) for each in self._summed for parameter in each.parameters}
        self._heard = Heard(self.ranks, self._summed, self._device)
        self._hear: Hear = self._heard.hear
        self._agreement = Agreement(trained, self.ranks, self._device)
        # Its flat parameters are shards that nothing marks: such scripts train on without noise.
        self._flattened = any(type(each).__name__ == "FullyShardedDataParallel" for each in _within(modules))
        self._steps = 0
        self._given_up = False
        self._complained: set[Unmeasured] = set()
        self._contradiction = Contradiction()
        self.not_finite = 0
        gathered_by_fsdp = sharded_parameters(modules)
        self._inputs = Inputs(modules[0], lambda: self.measuring)
        self._hooks = [self._listen(each) for each in self._parameters if id(each) not in gathered_by_fsdp]
        self._hooks += watch(modules, lambda gathered, _: self._listen(gathered))
        self._hooks.append(self._inputs.handle)

    def close(self) -> None:
        """Stops listening."""
        while self._hooks:
            self._hooks.pop().remove()

    @property
    def measuring(self) -> bool:
        """Whether this step's noise is measured."""
        return not self._given_up and self._steps % self._every == 0

    def give_up(self, why: str) -> None:
        """Measures no step from now on, which is said once."""
        self._given_up = True
        said.once(why, f"no noise is measured: {why}")

    def hear_through(self, listener: Hear) -> Hear:
        """For frameworks whose gradients have to be put together first: `listener` gets what is heard from now on.
        Returns what it is to pass them on to."""
        heard, self._hear = self._hear, listener
        return heard

    @property
    def share(self) -> float:
        """Of what all ranks of a replica know alike, this rank's part in a sum over the world."""
        world = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        return self.ranks.replicas / world

    @torch.no_grad()
    def measure(
        self,
        micro_batch: float | Sequence[float],
        gradient_scale: float | Sequence[float] = 1.0,
        micro_batches: int | None = None,
        gradient_norm: float | None = None,
        extra: Sequence[float] = (),
        tokens: Sequence[float] | None = None,
    ) -> Measured:
        """Ends a step. Call it on every rank after the last backward, before unscaling, clipping and the optimizer.

        Without a sample, which is said once, where parameters were heard more or less often than there were
        `micro_batches` (after a step without `measure`, or of several backward passes for a micro-batch), where the
        mean gradient cannot be the mean of what was heard, and where micro-batches were given inputs or labels of
        unequal sizes that nobody told.

        `micro_batch`: sequences per micro-batch. `gradient_scale`: the factor on each micro-batch's mean loss, such as
        `Configuration.gradient_scale()`, times the scale of half precision. `tokens`: what each mean loss is over,
        where that differs. Where micro-batches differ, each of the three is one number for each of this rank's, in the
        order of their backward passes. `micro_batches`: of this replica; by default, how often the busiest parameter
        was heard. `gradient_norm`: norm of the mean gradient over the whole model, unscaled, from a framework that
        keeps gradients elsewhere than in `p.grad`. `extra` rides along in the one small all-reduce, which then happens
        at every step; all ranks must give equally many.

        Raises UnknownLayout at the first step where ranks that are said to hold copies of parameters do not (later such
        steps, and those under PyTorch's first FSDP, have no sample), and ValueError where what is told of micro-batches
        is not of each.
        """
        if not self.measuring:
            self._steps += 1
            return Measured(unmeasured=Unmeasured.NOT_DUE, extra=self.sum_over_world(extra))
        listed = next((each for each in (micro_batch, gradient_scale, tokens) if isinstance(each, Sequence)), None)
        count = micro_batches if micro_batches is not None else len(listed) if listed else self._heard.times
        sizes = Sizes.of(count, micro_batch, gradient_scale, tokens)
        told = isinstance(micro_batch, Sequence) or tokens is not None
        seen = self._inputs.take(count)
        amiss = self._agreement.look(self._mean_gradient if gradient_norm is None else lambda _: None)
        flags = {
            Unmeasured.NO_COPIES: bool(amiss.parameters),
            Unmeasured.NOT_AVERAGED: bool(amiss.gradients),
            Unmeasured.FUSED: self._heard.fused,
            Unmeasured.MISCOUNTED: self._heard.missed(count, every=sizes.differ),
            Unmeasured.UNEQUAL: not told and unequal(seen),
        }
        times = self._heard.times
        # Stages are given other inputs: only those of replicas may be compared.
        compared = [0.0, 0.0, 0.0] if told or self.ranks.stages > 1 else seen
        once = [value * self.share for value in sizes.sums()]
        small = self._heard.take(sizes.scales)
        big = torch.zeros_like(small) if gradient_norm is not None else self.mean_square()
        sums = iter(self.sum_over_world([*map(float, flags.values()), *compared, *once, *extra], [small, big]))
        small_sum, big_sum = next(sums), next(sums)
        wrong = [why for why in flags if next(sums)]
        if unequal([next(sums) for _ in compared]):
            wrong.append(Unmeasured.UNEQUAL)
        together = Together(*(next(sums) for _ in once))
        if Unmeasured.NO_COPIES in wrong and self._steps == 0 and not self._flattened:
            raise UnknownLayout(amiss.parameters or Unmeasured.NO_COPIES.value)
        self._steps += 1
        sample = self._sample(small_sum, big_sum, gradient_norm, together) if not wrong else wrong[0]
        self.not_finite += sample is Unmeasured.NOT_FINITE
        if isinstance(sample, NoiseSample):
            return Measured(sample, extra=tuple(sums))
        if sample in COMPLAINTS and sample not in self._complained:
            self._complained.add(sample)
            why = COMPLAINTS[sample].format(seen=times, count=count, amiss=amiss.parameters or amiss.gradients)
            log.warning("no noise is measured (said once): %s", why)
        return Measured(unmeasured=sample, extra=tuple(sums))

    def _sample(
        self, small_sum: float, big_sum: float, gradient_norm: float | None, together: Together
    ) -> NoiseSample | Unmeasured:
        if together.scales == 0.0:
            return Unmeasured.ONE_SMALL_BATCH
        # `p.grad` is the mean over replicas of what accumulated.
        big = big_sum * (self.ranks.replicas / together.scales) ** 2
        if gradient_norm is not None:
            big = float(gradient_norm) ** 2
        sample = sample_of(small_sum / together.scales, big, together.batches(), round(together.count))
        contradicted = isinstance(sample, NoiseSample) and self._contradiction.found(sample)
        return Unmeasured.CONTRADICTORY if contradicted else sample

    def sum_over_world(self, values: Sequence[float], squares: Sequence[Tensor] = ()) -> tuple[float, ...]:
        """Squares and then values, in one all-reduce; none where there is nothing to sum."""
        if not squares and not values:
            return ()
        more = torch.tensor(list(values), dtype=torch.float64).to(self._device)
        packed = torch.cat([torch.stack(list(squares)), more]) if squares else more
        if torch.distributed.is_initialized():
            torch.distributed.all_reduce(packed)
        return tuple(packed.tolist())

    def _listen(self, parameter: nn.Parameter) -> RemovableHandle:
        copies, key = self.ranks.copies_in_replica(parameter), id(parameter)

        def hook(gradient: Tensor) -> None:
            if self.measuring:
                self._hear(parameter, key, local(placed_like(gradient.detach(), parameter)), copies)

        handle: RemovableHandle = parameter.register_hook(hook)  # type: ignore[no-untyped-call]
        return handle

    def _mean_gradient(self, parameter: nn.Parameter) -> Tensor | None:
        """That each copy should have alike; of a term of a sum, it may still be the term."""
        gradient = parameter.grad
        if gradient is None or id(parameter) in self._terms:
            return None
        return placed_like(gradient, parameter)

    def mean_square(self) -> Tensor:
        """This rank's share of the square of `p.grad`."""
        squares = Squares(self._device)
        squares.add(
            [
                Piece(local(placed_like(each.grad, each)), self.ranks.copies_in_world(each))
                for each in self._parameters
                if each.grad is not None and id(each) not in self._terms
            ]
        )
        terms = [mean_square(each, self.ranks, self._device) for each in self._summed]
        return torch.stack([squares.sums[RAW], *terms]).sum()


def _within(modules: Iterable[nn.Module]) -> Iterable[nn.Module]:
    return (each for module in modules for each in module.modules())
