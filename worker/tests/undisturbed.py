"""The run that no one disturbed: one rank trains the same steps, with the same batches and learning rates, in one go.
What a job that was moved about and killed has arrived at is compared with it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from lifetime import OPTIONS, Lifetime, Offer, scale_of

from headway import sharded
from headway.data import Corpus
from headway.gang import Gangs
from headway.learning_rate import LearningRate
from headway.message import Configuration, Layout
from headway.parallel import Parallel, Recipe
from headway.training import EVALUATED


@dataclass(frozen=True)
class Difference:
    """The largest of each kind."""

    loss: float
    parameter: float
    moment: float
    """Relative to the largest value of either moment's kind."""
    evaluation: float


class Undisturbed:
    """One rank."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._parallel = Parallel(
            Recipe(OPTIONS.shape, OPTIONS.seed, OPTIONS.weight_decay, OPTIONS.clip),
            Configuration(Layout(1), 1, 1),
            Gangs(torch.device("cpu")).of(Layout(1)),
        )
        self._parallel.initialise()

    def train(self, batches: list[int]) -> list[float]:
        rate = LearningRate(OPTIONS.lr, OPTIONS.warmup_steps, scale_of(batches[0]))
        losses, seen = [], 0
        for step, batch in enumerate(batches):
            rate.aim(scale_of(batch))
            self._parallel.configure(Configuration(Layout(1), 4, batch))
            self._parallel.train(self._tokens([self._corpus.sample(index) for index in range(seen, seen + batch)]))
            reduced = self._parallel.reduce([])
            self._parallel.update(reduced, rate.next(step))
            losses.append(reduced.loss)
            seen += batch
        return losses

    def state(self) -> dict[str, torch.Tensor]:
        return {block.name: block.tensor.clone() for block in self._parallel.blocks()}

    def load(self, path: str) -> None:
        sharded.read(path, self._parallel.blocks(), None)

    def evaluate(self) -> float:
        return self._parallel.evaluate(
            lambda samples: self._tokens([self._corpus.held_out_sample(index) for index in samples]), EVALUATED
        )

    def _tokens(self, samples: list[bytes]) -> torch.Tensor:
        return torch.frombuffer(bytearray(b"".join(samples)), dtype=torch.uint8).view(len(samples), -1).long()


def difference(life: Lifetime, last: Offer) -> Difference:
    """Between a life up to its last checkpoint and the undisturbed run of the same steps."""
    history = life.history(last)
    alone = Undisturbed(Corpus.read(str(life.corpus), OPTIONS.seq_len))
    losses = alone.train([len(step.samples) for step in history])
    expected, evaluated = alone.state(), alone.evaluate()
    alone.load(last.path)
    found = alone.state()
    told = re.search(r"complete: evaluation loss ([0-9.]+)", life.log())
    assert told is not None, life.log()[-3000:]

    def furthest(kind: str) -> float:
        return max(
            float((found[name] - value).abs().max()) for name, value in expected.items() if name.startswith(kind)
        )

    def largest(kind: str) -> float:
        return max(float(value.abs().max()) for name, value in expected.items() if name.startswith(kind))

    return Difference(
        loss=max(abs(step.loss - loss) for step, loss in zip(history, losses, strict=True)),
        parameter=furthest("model."),
        moment=max(furthest(kind) / largest(kind) for kind in ("first.", "second.")),
        evaluation=abs(float(told[1]) - evaluated),
    )
