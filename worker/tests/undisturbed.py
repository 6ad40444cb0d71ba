"""The run that no one disturbed: one rank trains the same steps, with the same batches and learning rates, in one go.
What a job that was moved about and killed has arrived at is compared with it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from lifetime import OPTIONS, Lifetime, scale_of
from record import Offer, Step

from headway import sharded
from headway.data import Corpus
from headway.gang import Gangs
from headway.learning_rate import LearningRate
from headway.message import Configuration, Layout
from headway.parallel import Parallel
from headway.training import EVALUATED, recipe_of


@dataclass(frozen=True)
class Arrival:
    """Where a run has come to, and by which losses."""

    losses: list[float]
    state: dict[str, torch.Tensor]
    """Parameters and both moments of Adam, whole."""
    evaluation: float


@dataclass(frozen=True)
class Difference:
    """The largest of each kind between two runs."""

    loss: float
    parameter: float
    moment: float
    """Relative to the largest value among the first or the second moments."""
    evaluation: float


class _Alone:
    """A rank alone."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        configuration = Configuration(Layout(1), 1, 1)
        self._parallel = Parallel(recipe_of(OPTIONS), configuration, Gangs(torch.device("cpu")).of(configuration))
        self._parallel.initialise()

    def train(self, batches: list[int], micro_batch: int) -> list[float]:
        rate = LearningRate(OPTIONS.rate, scale_of(batches[0]))
        losses, seen = [], 0
        for batch in batches:
            rate.aim(scale_of(batch))
            self._parallel.configure(Configuration(Layout(1), micro_batch, batch))
            self._parallel.train(_tokens([self._corpus.sample(index) for index in range(seen, seen + batch)]), seen)
            reduced = self._parallel.reduce([])
            seen += batch
            self._parallel.update(reduced, rate.next(seen))
            losses.append(reduced.loss)
        return losses

    def load(self, path: str) -> None:
        sharded.read(path, self._parallel.tiles(), None)

    def state(self) -> dict[str, torch.Tensor]:
        return {tile.name: tile.tensor.clone() for tile in self._parallel.tiles()}

    def evaluate(self) -> float:
        def held_out(samples: range) -> torch.Tensor:
            return _tokens([self._corpus.held_out_sample(index) for index in samples])

        return self._parallel.evaluate(held_out, EVALUATED)


def arrived(life: Lifetime, last: Offer) -> Arrival:
    """At its last checkpoint, as its trainers told and saved it."""
    alone = _Alone(_corpus(life))
    alone.load(last.path)
    told = re.search(r"complete: evaluation loss ([0-9.]+)", life.log())
    assert told is not None, life.log()[-3000:]
    return Arrival([step.loss for step in life.record.history(last)], alone.state(), float(told[1]))


def undisturbed(life: Lifetime, steps: list[Step], micro_batch: int = 4) -> Arrival:
    """The same steps by one rank. Another micro-batch sums in another order: that is all the noise there is."""
    alone = _Alone(_corpus(life))
    losses = alone.train([len(step.samples) for step in steps], micro_batch)
    return Arrival(losses, alone.state(), alone.evaluate())


def difference(one: Arrival, other: Arrival) -> Difference:
    assert one.state.keys() == other.state.keys()

    def furthest(kind: str) -> tuple[float, float]:
        """The largest difference, and the largest value."""
        pairs = [(value, other.state[name]) for name, value in one.state.items() if name.startswith(kind)]
        apart = max(float((ours - theirs).abs().max()) for ours, theirs in pairs)
        return apart, max(float(theirs.abs().max()) for _, theirs in pairs)

    moments = [furthest(kind) for kind in ("first.", "second.")]
    return Difference(
        loss=max(abs(ours - theirs) for ours, theirs in zip(one.losses, other.losses, strict=True)),
        parameter=furthest("model.")[0],
        moment=max(apart / largest for apart, largest in moments),
        evaluation=abs(one.evaluation - other.evaluation),
    )


def _corpus(life: Lifetime) -> Corpus:
    return Corpus.read(str(life.corpus), OPTIONS.seq_len)


def _tokens(samples: list[bytes]) -> torch.Tensor:
    return torch.frombuffer(bytearray(b"".join(samples)), dtype=torch.uint8).view(len(samples), -1).long()
