"""Which samples a replica trains on next, as `samples_seen` says, whatever batches and ranks came before."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch.utils.data import Sampler

from headway.environment import Environment
from headway.message import Configuration, Shares
from headway.torch.portion import Portion
from headway.torch.ranks import Ranks


class SampleBatches(Sampler[list[int]]):
    """Micro-batches of sample indices without end, for a `DataLoader`'s `batch_sampler`. Every sample comes once an
    epoch, and each epoch has an order of its own.

        loader = DataLoader(data, batch_sampler=SampleBatches(len(data), micro_batch=8, accumulation=4))

    A step's samples are shared out among replicas in stretches, as long as their shares. Launchers must not share them
    out again (`accelerator.prepare`, Lightning's `use_distributed_sampler`).
    """

    def __init__(
        self,
        size: int,
        micro_batch: int,
        accumulation: int = 1,
        *,
        first: int | None = None,
        ranks: Ranks | None = None,
        seed: int = 0,
        order: Callable[[int], Iterable[int]] | None = None,
        shares: Sequence[int] | None = None,
    ) -> None:
        """`size`: of the data set. `accumulation`: this replica's micro-batches of a step. `first`: samples seen
        before, the job's unless given. `order`: the indices of an epoch, the same on every rank; a random permutation
        by `seed` and epoch unless given. `shares`: each replica's weight, in the order of ranks; those that the job was
        launched with unless given, else equal ones.

        Iterating raises UnknownLayout where there is no share for each replica, and ValueError where `accumulation` is
        no multiple of this one's."""
        environment = Environment.read(os.environ)
        seen = environment.samples_seen if environment else 0
        launched = environment.configuration if environment else None
        self._shares = shares if shares is not None or launched is None else _uneven(launched)
        self._size, self._ranks = size, ranks
        self._order = order if order is not None else lambda epoch: _shuffled(size, seed, epoch)
        self._first = seen if first is None else first
        self._micro_batch, self._accumulation = micro_batch, accumulation
        self._epoch, self._indices = -1, array("q")

    def configure(self, configuration: Configuration) -> None:
        """Another batch from the next step on. Call it between steps; a loader with workers has read ahead by then, so
        iterate it anew with another `SampleBatches` there."""
        shares = _uneven(configuration)
        replica = (self._ranks or Ranks()).replica if shares else 0
        self._micro_batch, self._accumulation = configuration.micro_batch, configuration.micro_batches(replica)
        self._shares = shares

    def __iter__(self) -> Iterator[list[int]]:
        ranks = self._ranks or Ranks()
        while True:
            micro_batch, accumulation, first = self._micro_batch, self._accumulation, self._first
            portion = Portion.of(self._shares, ranks)
            cycles, over = divmod(accumulation, portion.weight)
            if over:
                raise ValueError(
                    f"an accumulation of {accumulation} is no multiple of {portion.weight}, which this replica weighs"
                    f" among {portion}"
                )
            before = cycles * sum(portion.weights[: ranks.replica])
            for index in range(accumulation):
                begin = first + (before + index) * micro_batch
                if index + 1 == accumulation:  # said before: nobody comes back here after the last of all
                    self._first = first + micro_batch * cycles * sum(portion.weights)
                yield [self._at(begin + i) for i in range(micro_batch)]

    def _at(self, position: int) -> int:
        epoch, place = divmod(position, self._size)
        if epoch != self._epoch:
            self._epoch, self._indices = epoch, array("q", self._order(epoch))
        return self._indices[place]


def _uneven(configuration: Configuration) -> tuple[int, ...] | None:
    return None if configuration.execution.shares == Shares() else configuration.shares()


def _shuffled(size: int, seed: int, epoch: int) -> Iterable[int]:
    generator = torch.Generator().manual_seed(seed + epoch)
    permutation: list[int] = torch.randperm(size, generator=generator).tolist()
    return permutation
