"""Which samples a replica trains on next, as `samples_seen` says, whatever batches and ranks came before."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator

import torch
from torch.utils.data import Sampler

from headway.environment import Environment
from headway.message import Configuration
from headway.torch.ranks import Ranks


class SampleBatches(Sampler[list[int]]):
    """Micro-batches of sample indices without end, for a `DataLoader`'s `batch_sampler`. Every sample comes once an
    epoch, and each epoch has an order of its own.

        loader = DataLoader(data, batch_sampler=SampleBatches(len(data), micro_batch=8, accumulation=4))

    A step's samples are shared out among replicas in equal stretches. Launchers must not share them out again
    (`accelerator.prepare`, Lightning's `use_distributed_sampler`).
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
    ) -> None:
        """`size`: of the data set. `first`: samples seen before, the job's unless given. `order`: the indices of an
        epoch, the same on every rank; a random permutation by `seed` and epoch unless given."""
        environment = Environment.read(os.environ)
        seen = environment.samples_seen if environment else 0
        self._size, self._ranks = size, ranks
        self._order = order if order is not None else lambda epoch: _shuffled(size, seed, epoch)
        self._first = seen if first is None else first
        self._micro_batch, self._accumulation = micro_batch, accumulation
        self._epoch, self._indices = -1, array("q")

    def configure(self, configuration: Configuration) -> None:
        """Another batch from the next step on. Call it between steps; a loader with workers has read ahead by then, so
        iterate it anew with another `SampleBatches` there."""
        accumulation = configuration.accumulation()
        if accumulation is None:
            raise ValueError(f"{configuration} does not divide into micro-batches")
        self._micro_batch, self._accumulation = configuration.micro_batch, accumulation

    def __iter__(self) -> Iterator[list[int]]:
        data = (self._ranks or Ranks()).data_ranks()
        replica = sorted(data).index(torch.distributed.get_rank()) if len(data) > 1 else 0
        while True:
            micro_batch, accumulation, first = self._micro_batch, self._accumulation, self._first
            for index in range(accumulation):
                begin = first + (replica * accumulation + index) * micro_batch
                if index + 1 == accumulation:  # said before: nobody comes back here after the last of all
                    self._first = first + micro_batch * accumulation * len(data)
                yield [self._at(begin + i) for i in range(micro_batch)]

    def _at(self, position: int) -> int:
        epoch, place = divmod(position, self._size)
        if epoch != self._epoch:
            self._epoch, self._indices = epoch, array("q", self._order(epoch))
        return self._indices[place]


def _shuffled(size: int, seed: int, epoch: int) -> Iterable[int]:
    generator = torch.Generator().manual_seed(seed + epoch)
    permutation: list[int] = torch.randperm(size, generator=generator).tolist()
    return permutation
