"""The order of a run's sequences, which no layout changes."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from gang import gang

from headway.integrations.torchtitan_streams import Gather, Sequence, Streams


class Counted:
    """A stream whose k-th sequence is told by its number."""

    def __init__(self, stream: int, length: int | None = None) -> None:
        self.stream, self.length, self.at = stream, length, 0

    def __iter__(self) -> Iterator[Sequence]:
        while self.length is None or self.at < self.length:
            self.at += 1
            told = torch.tensor([[self.stream, self.at - 1]])
            yield {"input": told}, told

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


class Run:
    """Replicas that meet at their saves, as ranks do."""

    def __init__(self, replicas: int, micro_batch: int, streams: int = 4, length: int | None = None) -> None:
        self.opened: set[tuple[int, int]] = set()
        self.given: list[dict[int, bytes]] = [{} for _ in range(replicas)]
        self.met = threading.Barrier(replicas)
        self.streams = [self.one(i, replicas, micro_batch, streams, length) for i in range(replicas)]
        self.batches = [iter(each) for each in self.streams]

    def one(self, replica: int, replicas: int, micro_batch: int, streams: int, length: int | None) -> Streams:
        def open_stream(stream: int, of: int) -> Counted:
            self.opened.add((replica, stream))
            return Counted(stream, length)

        def gather(own: dict[int, bytes]) -> list[dict[int, bytes]]:
            self.given[replica] = own
            self.met.wait(timeout=10)
            return self.given

        given: Gather = gather
        return Streams(open_stream, streams, micro_batch=micro_batch, replica=replica, replicas=replicas, gather=given)

    def train(self, micro_batches: int) -> list[int]:
        """The numbers of the sequences that were trained on, in order."""
        seen = []
        for _ in range(micro_batches):
            for batches in self.batches:
                inputs, labels = next(batches)
                assert torch.equal(inputs["input"], labels)
                seen += [count * self.streams[0].streams + stream for stream, count in labels.tolist()]
        return sorted(seen)

    def save(self) -> dict[str, Any]:
        states: list[dict[str, Any]] = []
        ranks = [threading.Thread(target=lambda each=each: states.append(each.state_dict())) for each in self.streams]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        assert len(states) == len(self.streams) and all(state == states[0] for state in states)
        return states[0]

    def load(self, state: dict[str, Any]) -> Run:
        for each in self.streams:
            each.load_state_dict(state)
        return self


LAYOUTS = [(2, 3, 5), (1, 4, 1), (3, 1, 4), (4, 2, 3), (1, 7, 1), (8, 1, 2), (2, 2, 1)]


def test_every_sequence_comes_once_and_in_order_over_changes_of_replicas_and_batches() -> None:
    begun, state = 0, None
    for replicas, micro_batch, micro_batches in LAYOUTS:
        run = Run(replicas, micro_batch)
        if state is not None:
            run.load(state)
        samples = replicas * micro_batch * micro_batches
        assert run.train(micro_batches) == list(range(begun, begun + samples))
        begun += samples
        state = run.save()
        assert state["samples_seen"] == begun
        assert run.train(1) == list(range(begun, begun + replicas * micro_batch)), "a save moves nothing"


def test_a_replica_opens_only_the_streams_that_it_reads_from() -> None:
    run = Run(2, 3, streams=8)
    run.train(8)
    assert run.opened == {(stream % 2, stream) for stream in range(8)}
    later = Run(4, 1, streams=8).load(run.save())
    later.train(4)
    assert len(later.opened) == 8


def test_another_micro_batch_from_one_step_to_the_next_leaves_nothing_out() -> None:
    run = Run(2, 3)
    seen = run.train(2)
    for each in run.streams:
        each.micro_batch = 1
    assert sorted(seen + run.train(3)) == list(range(18))


def test_the_number_of_streams_is_the_checkpoints() -> None:
    first = Run(2, 1, streams=4)
    first.train(5)
    resumed = Run(1, 2, streams=16).load(first.save())
    assert resumed.streams[0].streams == 4
    assert resumed.train(2) == [10, 11, 12, 13]


def test_data_end_where_a_stream_does() -> None:
    run = Run(1, 2, streams=2, length=2)
    assert run.train(2) == [0, 1, 2, 3]
    with pytest.raises(StopIteration):
        next(run.batches[0])


def two_replicas_whose_data_end() -> tuple[list[int], list[int], int, bytes]:
    """Stream 1, which the second reads, ends in the middle of a step of two micro-batches."""
    rank = torch.distributed.get_rank()

    def any_replica(over: bool) -> bool:
        told = torch.tensor([float(over)])
        torch.distributed.all_reduce(told)
        return bool(told > 0.0)

    def gather(own: dict[int, bytes]) -> list[dict[int, bytes]]:
        given: list[Any] = [None, None]
        torch.distributed.all_gather_object(given, own)
        return given

    def open_stream(stream: int, of: int) -> Counted:
        return Counted(stream, 5 if stream == 1 else 9)

    data = Streams(open_stream, 2, micro_batch=1, replica=rank, replicas=2, gather=gather)
    steps, places, batches = 0, [], iter(data)
    with pytest.raises(StopIteration):
        while True:
            drawn = data.draw(batches, 2, any_replica)
            assert [labels.tolist() for _, labels in drawn] == [[[rank, 2 * steps + each]] for each in range(2)]
            steps += 1
            places.append(data.samples_seen)
    state = data.state_dict()
    return places, list(pickle.loads(state["states"])), data.samples_seen, pickle.dumps(state)


def test_replicas_whose_data_end_stop_at_the_same_step(tmp_path: Path) -> None:
    for places, streams, samples, state in gang(tmp_path, 2, two_replicas_whose_data_end):
        assert places == [4, 8] and samples == 8
        assert sorted(streams) == [0, 1]
        with pytest.raises(ValueError, match="elsewhere than its samples"):
            Run(1, 1, streams=2).load(pickle.loads(state))


def test_a_state_that_contradicts_its_samples_is_refused() -> None:
    first = Run(1, 3)
    first.train(2)
    with pytest.raises(ValueError, match="elsewhere than its samples"):
        Run(1, 3).load({**first.save(), "samples_seen": 99})


def test_a_state_comes_before_the_data() -> None:
    run = Run(1, 1)
    state = run.save()
    run.train(1)
    with pytest.raises(RuntimeError, match="before the first step"):
        run.load(state)


@pytest.mark.parametrize(("streams", "micro_batch"), [(0, 1), (1, 0)])
def test_nothing_less_than_one(streams: int, micro_batch: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Streams(lambda stream, of: Counted(stream), streams, micro_batch=micro_batch)
