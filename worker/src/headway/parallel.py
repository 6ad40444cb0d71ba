"""One rank's share of a model in training under one configuration: groups, parts, gradients, optimizer, schedule.

It is built from nothing, filled from first values, a checkpoint or its predecessor's tiles, and closed as a whole; so
a running process can take another layout. A change of batch or micro-batch alone only rebuilds the schedule.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed
from torch import Tensor

from headway.dropout import Dropout
from headway.flops import ModelShape
from headway.gang import DATA, Gang
from headway.message import Configuration
from headway.model import initial
from headway.moments import AdamPreconditioner
from headway.optimizer import AdamW
from headway.parts import build, check, flatten, fully_sharded, spread_experts
from headway.tiles import Tile, tile_of
from headway.torch import GradientAccumulator, Ranks, Reduced, Summed
from headway.torch.squares import EVERY
from headway.vocabulary import cut_by_vocabulary, loss_of_logits

if TYPE_CHECKING:
    from headway.pipeline import Pipeline

EVALUATED_AT_ONCE = 4


@dataclass(frozen=True)
class Recipe:
    """What is trained, whatever the layout."""

    shape: ModelShape
    seed: int = 0
    weight_decay: float = 0.1
    clip: float = 1.0
    bf16: bool = False
    dropout: float = 0.0
    noise: str = "raw"
    """Which noise is measured: raw, or adam's too."""
    noise_every: int = EVERY


class Parallel:
    """Call in this order: `initialise` or fill `tiles`; per step `train`, `reduce`, `update`; `close` at the end."""

    def __init__(self, recipe: Recipe, configuration: Configuration, gang: Gang) -> None:
        check(recipe.shape, configuration, gang.size)
        self.configuration, self.gang, self.device = configuration, gang, gang.device
        self._recipe = recipe
        self._stream = torch.bfloat16 if recipe.bf16 else torch.float32
        self._parts = build(recipe.shape, configuration, self.gang, recipe.bf16, Dropout(recipe.dropout, recipe.seed))
        self._fsdp = fully_sharded(configuration)
        parts, execution = list(self._parts.values()), configuration.execution
        replicas = configuration.layout.dp * gang.cp
        shares = [replicas, max(1, replicas * configuration.layout.tp // execution.ep)]
        shares = shares if execution.sharding == "optimizer" else [1, 1]
        flats = [] if self._fsdp else flatten(parts, *shares)
        ranks = Ranks(
            gang.group(DATA),
            gang.group("tp"),
            gang.group("pp"),
            gang.group("cp"),
            gang.same_experts,
            gang.same_experts_and_samples,
        )
        spread = spread_experts(parts)
        preconditioner = AdamPreconditioner() if recipe.noise == "adam" else None
        self.gradients = GradientAccumulator(
            parts,
            ranks,
            shard=max(shares) > 1,
            every=recipe.noise_every,
            summed=self._tied_over_stages(),
            preconditioner=preconditioner,
            experts=[parameter for each in spread for parameter in each.experts.parameters()],
            shares=configuration.shares(),
        )
        for each in spread:
            each.hear = self.gradients.apart
        self._named = self._name_parameters()
        offload = execution.offload == "host"
        self._optimizer = AdamW(self._named, self.gradients, flats, weight_decay=recipe.weight_decay, offload=offload)
        if preconditioner is not None:
            preconditioner.follow(self._optimizer)
        self._loss = loss_of_logits(self.gang)
        self._pipeline = self._schedule(configuration.micro_batch, configuration.accumulation() or 0)

    @property
    def replica(self) -> int:
        """Which share of a step's samples this rank trains on."""
        return self.gang.coordinate("dp")

    @property
    def optimizer_steps(self) -> int:
        return self._optimizer.steps

    @optimizer_steps.setter
    def optimizer_steps(self, steps: int) -> None:
        self._optimizer.steps = steps

    @torch.no_grad()
    def initialise(self) -> None:
        """First values, the same in every layout."""
        shape, seed = self._recipe.shape, self._recipe.seed
        for tile in self._parameters():
            whole = initial(shape, seed, tile.name, torch.Size(tile.shape), self.device)
            tile.tensor.copy_(whole[tile.slices])

    def tiles(self) -> list[Tile]:
        """The whole state of model and optimizer that this rank holds; writing to them sets it."""
        model = [each.renamed(f"model.{each.name}", each.tensor) for each in self._parameters()]
        return model + self._optimizer.tiles()

    def train(self, tokens: Tensor, first: int, pace: Callable[[float, int], None] = lambda *_: None) -> None:
        """Forward and backward of this replica's share of a step, (samples, seq_len + 1) tokens of the samples from
        `first` on. `pace` is told when each micro-batch began, where they run one by one."""
        inputs, targets = self._share(tokens)
        with cut_by_vocabulary(self.gang), self._precision():
            if self._pipeline is not None:
                count = self.configuration.accumulation() or 0
                losses: list[Tensor | None] = list(self._pipeline.train(inputs, targets, first))
                for each in losses or [None] * count:
                    self.gradients.end_micro_batch(each)
                return
            (part,) = self._parts.values()
            size = self.configuration.micro_batch
            for at in range(0, len(tokens), size):
                began = time.monotonic()
                if self._fsdp and self.configuration.execution.sharding == "gradients":
                    part.set_reshard_after_backward(at + size == len(tokens))  # type: ignore[operator]
                samples = range(first + at, first + at + size)
                loss = self._loss(part(inputs[at : at + size], samples), targets[at : at + size])
                loss.backward()  # type: ignore[no-untyped-call]
                self.gradients.end_micro_batch(loss)
                pace(began, size)

    def reduce(self, extra: list[float]) -> Reduced:
        """The step's mean gradient, loss and noise, the same on all ranks; `extra` is summed over them."""
        return self.gradients.reduce(self.configuration.micro_batch, extra)

    def update(self, reduced: Reduced, learning_rate: float) -> None:
        self.gradients.clip(reduced, self._recipe.clip)
        self._optimizer.step(learning_rate)
        self.gradients.clear()

    def configure(self, configuration: Configuration) -> None:
        """Takes another batch or micro-batch; nothing is lost."""
        old = self.configuration
        assert (configuration.layout, configuration.execution) == (old.layout, old.execution), "needs another Parallel"
        self.configuration = configuration
        self._pipeline = self._schedule(configuration.micro_batch, configuration.accumulation() or 0)

    @torch.no_grad()
    def evaluate(self, read: Callable[[range], Tensor], samples: int) -> float:
        """Mean loss over the samples, each counted once; the same on all ranks."""
        micro_batches = samples // EVALUATED_AT_ONCE
        layout = self.configuration.layout
        share = -(-micro_batches // layout.dp)
        share = -(-share // layout.pp) * layout.pp  # the schedules want a multiple of the stages
        own = range(self.replica * share, (self.replica + 1) * share)
        first, last = own.start * EVALUATED_AT_ONCE, own.stop * EVALUATED_AT_ONCE
        inputs, targets = self._share(read(range(first, last)))
        with cut_by_vocabulary(self.gang), self._precision():
            if self._pipeline is not None:
                schedule = self._schedule(EVALUATED_AT_ONCE, share)
                assert schedule is not None
                losses = schedule.evaluate(inputs, targets)
            else:
                (part,) = self._parts.values()
                both = (torch.split(each, EVALUATED_AT_ONCE) for each in (inputs, targets))
                losses = [self._loss(part(entering), wanted) for entering, wanted in zip(*both, strict=True)]
        counted = [loss.double() for number, loss in zip(own, losses, strict=False) if number < micro_batches]
        total = torch.stack(counted).sum() if counted else torch.zeros((), dtype=torch.float64)
        total = total.to(self.device) / (layout.tp * self.gang.cp)
        if self.gang.mesh is not None:
            torch.distributed.all_reduce(total)
        return float(total) / micro_batches

    def close(self) -> None:
        """Lets go of parameters and hooks. Only copies of its tiles may be used afterwards."""
        self.gradients.close()
        self._pipeline = None
        self._parts, self._named = {}, {}

    def _share(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """This rank's positions of (samples, seq_len + 1) tokens, and what is to be foretold at each."""
        if self.gang.cp == 1:
            return tokens[:, :-1], tokens[:, 1:]
        positions = next(iter(self._parts.values())).positions.to(tokens.device)
        return tokens[:, positions], tokens[:, positions + 1]

    def _parameters(self) -> list[Tile]:
        return [tile_of(name, parameter) for name, parameter in self._named.items()]

    def _name_parameters(self) -> dict[str, torch.nn.Parameter]:
        """By the names of the whole model; a tied projection alone on the last stage goes by the embedding's."""
        named = {}
        for part in self._parts.values():
            for name, parameter in part.named_parameters():
                tied = self._recipe.shape.tied and name == "head.weight"
                named["embedding.weight" if tied else name] = parameter
        return named

    def _tied_over_stages(self) -> list[Summed]:
        """First and last stage each hold a copy of the tied embedding, and a term of its gradient."""
        if not self._recipe.shape.tied or self.gang.ends is None:
            return []
        names = ("embedding.weight", "head.weight")
        weights = [weight for part in self._parts.values() for name, weight in part.named_parameters() if name in names]
        return [Summed(weights, self.gang.ends)]

    def _schedule(self, micro_batch: int, count: int) -> Pipeline | None:
        if self.configuration.layout.pp == 1:
            return None
        from headway.pipeline import Pipeline  # imports much that only pipelines need

        return Pipeline(self._parts, self.configuration, self.gang, self._loss, self._stream, micro_batch, count)

    def _precision(self) -> contextlib.AbstractContextManager[object]:
        if not self._recipe.bf16:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)
