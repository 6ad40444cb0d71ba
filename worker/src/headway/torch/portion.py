"""What this replica does of a step beside the others, where those on faster nodes do more micro-batches than those on
slower ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from headway.torch.ranks import Ranks, UnknownLayout
from headway.torch.sizes import Hook
from headway.torch.unsharded import sharded_parameters


@dataclass(frozen=True)
class Portion:
    """Of one replica. All count micro-batches of one step."""

    weight: int
    """This replica's."""
    weights: tuple[int, ...]
    """Of all replicas, in their order."""

    @staticmethod
    def of(shares: Sequence[int] | None, ranks: Ranks) -> Portion:
        """`shares`: each replica's weight, in the order of ranks; None where all are alike. Raises UnknownLayout unless
        there is one for each."""
        if shares is not None and (len(shares) != ranks.replicas or min(shares) < 1):
            raise UnknownLayout(f"{list(shares)} are not the shares of {ranks.replicas} replicas, each 1 at least")
        if shares is None or len(set(shares)) == 1:
            return Portion(1, (1,) * ranks.replicas)
        return Portion(shares[ranks.replica], tuple(shares))

    @property
    def uneven(self) -> bool:
        return len(set(self.weights)) > 1

    def of_all(self, own: int) -> float:
        """What all replicas do, where this one does `own`."""
        return own * sum(self.weights) / self.weight

    def gradient_scale(self, own: int) -> float:
        """The factor on the mean loss of each of this many, where gradients are then averaged over replicas."""
        return len(self.weights) / self.of_all(own)

    def check(self, modules: Iterable[nn.Module]) -> None:
        """Raises UnknownLayout where ranks would wait in a micro-batch that others do not have."""
        if self.uneven and sharded_parameters(modules):
            raise UnknownLayout("ranks gather parameters together in every micro-batch: their shares must be even")

    def sums(self, own: int) -> tuple[float, float]:
        """What tells, summed over the world, whether all have done as much as they weigh."""
        done = own * math.lcm(*self.weights) // self.weight
        return float(done), float(done**2)

    def kept(self, sums: Sequence[float], world: int) -> bool:
        """Whether they have, by these sums over so many ranks."""
        done, squared = sums
        return world * squared == done**2

    def __str__(self) -> str:
        return ",".join(map(str, self.weights))


class Reductions:
    """Looks that DistributedDataParallel reduces with no micro-batch before this replica's last. Replicas with fewer
    are done by then: the others would wait for them for ever, or add what they reduce to something else."""

    def __init__(self, modules: Iterable[nn.Module], portion: Portion) -> None:
        self._first = True
        several = portion.uneven and portion.weight > 1
        for each in (child for module in modules for child in module.modules()) if several else ():
            if isinstance(each, DistributedDataParallel):
                each.register_forward_pre_hook(Hook(partial(self._begin, each)), with_kwargs=True)

    def end_step(self) -> None:
        self._first = True

    def _begin(self, model: DistributedDataParallel, *_: object) -> None:
        if torch.compiler.is_compiling() or not (torch.is_grad_enabled() and model.training):
            return
        if self._first and model.require_backward_grad_sync:
            raise RuntimeError(
                "DistributedDataParallel would reduce with a micro-batch that is not the last of this replica, when"
                " replicas that do fewer are done: run all but the last within model.no_sync()"
            )
        self._first = False
