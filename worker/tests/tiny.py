"""A little language model and its layouts, as small as the pitfalls of measuring noise allow: a sharded vocabulary,
norms between sharded matrices, stages, a head that may share the embedding."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

VOCAB, WIDTH, LENGTH, BLOCKS = 32, 8, 6, 2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.mlp(self.norm(hidden))


class Tiny(nn.Module):
    """All of the model, or one of two pipeline stages of it; the same weights whichever."""

    def __init__(self, tied: bool = False, stage: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.embedding: nn.Module | None = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleDict({str(i): Block() for i in range(BLOCKS)})
        self.norm: nn.Module | None = nn.RMSNorm(WIDTH)
        self.head: nn.Module | None = nn.Linear(WIDTH, VOCAB, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        if stage == 0:
            self.norm = self.head = None
            del self.blocks["1"]
        if stage == 1:
            self.embedding = None
            del self.blocks["0"]

    def forward(self, hidden: Tensor) -> Tensor:
        if self.embedding is not None:
            hidden = self.embedding(hidden)
        for block in self.blocks.values():
            hidden = block(hidden)
        return hidden if self.head is None or self.norm is None else self.head(self.norm(hidden))

    def shared_weight(self) -> nn.Parameter:
        """This stage's copy of a tied weight."""
        end = self.embedding if self.embedding is not None else self.head
        assert end is not None
        return end.weight


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def batch(first: int, count: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of the samples with these indices, whichever rank asks. Tokens are skewed, so that some rows
    of the embedding are rare."""
    rows = [
        torch.rand(LENGTH + 1, generator=torch.Generator().manual_seed(index)) ** 3 * VOCAB
        for index in range(first, first + count)
    ]
    tokens = torch.stack(rows).long()
    return tokens[:, :-1], tokens[:, 1:]


def tensor_parallel(model: Tiny, mesh: DeviceMesh, sequence_parallel: bool) -> None:
    """Whole matrices by column and row; with sequence parallelism the norms see a share of each sequence."""
    spread = Shard(1) if sequence_parallel else Replicate()
    plan: dict[str, object] = {}
    if model.embedding is not None:
        plan["embedding"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=spread)
    for name in model.blocks:
        plan[f"blocks.{name}.mlp.0"] = ColwiseParallel(input_layouts=Replicate())
        plan[f"blocks.{name}.mlp.2"] = RowwiseParallel(output_layouts=spread)
        if sequence_parallel:
            plan[f"blocks.{name}.norm"] = SequenceParallel()
            plan[f"blocks.{name}.mlp"] = PrepareModuleInput(
                input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
            )
    if model.head is not None:
        plan["head"] = ColwiseParallel(input_layouts=spread, output_layouts=Replicate())
        if sequence_parallel:
            plan["norm"] = SequenceParallel()
    parallelize_module(model, mesh, plan)
