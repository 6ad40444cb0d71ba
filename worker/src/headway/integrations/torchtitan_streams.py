"""Sequences of a data set in one order, whatever batches and ranks read them, where the data set itself only knows how
to be split: torchtitan's loaders give each replica a part of the documents, packed into sequences of its own.

Here it is split into a number of streams that never changes. Sequence n of the run is the next of stream n mod streams;
of the sequences that follow `samples_seen`, replicas take turns. So a replica opens only the streams that it reads
from, as long as the number of replicas divides that of streams. Nothing here needs torchtitan.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

Sequence = tuple[dict[str, Tensor], Tensor]
Gather = Callable[[dict[int, bytes]], list[dict[int, bytes]]]


class Streams:
    """Micro-batches without end, and where they are: the same state from every layout, for every layout."""

    def __init__(
        self,
        open_stream: Callable[[int, int], Any],
        streams: int,
        *,
        micro_batch: int,
        replica: int = 0,
        replicas: int = 1,
        gather: Gather = lambda own: [own],
    ) -> None:
        """`open_stream(i, of)`: the loader of the i-th stream, of one sequence each, with `state_dict`.
        `gather`: what every replica gives, of all of them; `state_dict` calls it on each."""
        if streams < 1 or micro_batch < 1:
            raise ValueError(f"streams and micro_batch must be at least 1, not {streams} and {micro_batch}")
        self._open, self.streams, self.micro_batch = open_stream, streams, micro_batch
        self._replica, self._replicas, self._gather = replica, replicas, gather
        self._first, self._own = 0, 0
        self._loaders: dict[int, Any] = {}
        self._sequences: dict[int, Iterator[Sequence]] = {}
        self._drawn: dict[int, int] = {}
        self._saved: dict[int, bytes] = {}

    @property
    def samples_seen(self) -> int:
        """Sequences of all replicas, between steps."""
        return self._first + self._own * self._replicas

    def __iter__(self) -> Iterator[Sequence]:
        """Ends where a stream does."""
        while True:
            drawn = []
            for _ in range(self.micro_batch):
                try:
                    drawn.append(self._next())
                except StopIteration:
                    return
            yield _together(drawn)

    def draw(
        self,
        batches: Iterator[Sequence],
        count: int,
        any_replica: Callable[[bool], bool],
        ended: type[Exception] = StopIteration,
    ) -> list[Sequence]:
        """A step's `count` micro-batches, if every replica has as many: `any_replica` says whether what one gives holds
        of any, on each of them. Else raises `ended`, which `batches` do at their end, on all of them, and the place is
        where the step began."""
        before, over = self._own, False
        drawn: list[Sequence] = []
        try:
            for _ in range(count):
                drawn.append(next(batches))
        except ended:
            over = True
        if any_replica(over):
            self._own = before
            raise ended
        return drawn

    def state_dict(self) -> dict[str, Any]:
        """Between steps, on every replica."""
        own = {}
        for stream in self._read_here():
            count = self._count(stream, self.samples_seen)
            if stream in self._loaders or count > self._drawn.get(stream, 0):
                self._advance(stream, count)
                # At the end of the data it may be further: a step that not all could make was drawn.
                own[stream] = pickle.dumps((self._drawn[stream], self._loaders[stream].state_dict()))
            elif stream in self._saved:
                own[stream] = self._saved[stream]
        states = {stream: state for each in self._gather(own) for stream, state in each.items()}
        return {"samples_seen": self.samples_seen, "streams": self.streams, "states": pickle.dumps(states)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Before the first micro-batch. A run keeps the number of streams that it began with."""
        if self._loaders:
            raise RuntimeError("data are under way already: load their state before the first step")
        self._first, self._own, self.streams = int(state["samples_seen"]), 0, int(state["streams"])
        self._saved = pickle.loads(state["states"])
        self._drawn = {stream: pickle.loads(saved)[0] for stream, saved in self._saved.items()}
        counts = {each: self._count(each, self._first) for each in range(self.streams)}
        wrong = [each for each, count in counts.items() if self._drawn.get(each, 0) != count]
        if wrong:
            raise ValueError(f"data of this checkpoint cannot go on: streams {wrong} are elsewhere than its samples")

    def _read_here(self) -> list[int]:
        step = math.gcd(self._replicas, self.streams)
        return [each for each in range(self.streams) if (each - self._first - self._replica) % step == 0]

    def _count(self, stream: int, samples: int) -> int:
        """How many of the first so many sequences of the run are this stream's."""
        return (samples - stream + self.streams - 1) // self.streams

    def _next(self) -> Sequence:
        position = self._first + self._own * self._replicas + self._replica
        count, stream = divmod(position, self.streams)
        self._advance(stream, count)
        sequence = next(self._sequences[stream])
        self._drawn[stream] = count + 1
        self._own += 1
        return sequence

    def _advance(self, stream: int, count: int) -> None:
        """Past what other replicas train on."""
        if stream not in self._loaders:
            loader = self._loaders[stream] = self._open(stream, self.streams)
            if stream in self._saved:
                loader.load_state_dict(pickle.loads(self._saved.pop(stream))[1])
            self._sequences[stream] = iter(loader)
        for _ in range(count - self._drawn.get(stream, 0)):
            next(self._sequences[stream])
        self._drawn[stream] = max(count, self._drawn.get(stream, 0))


def _together(sequences: list[Sequence]) -> Sequence:
    inputs = {name: torch.cat([each[name] for each, _ in sequences]) for name in sequences[0][0]}
    return inputs, torch.cat([labels for _, labels in sequences])
