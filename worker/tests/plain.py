"""The little language model under Megatron's tensor parallelism (Shoeybi et al. 2019, Korthikanti et al. 2022): plain
parameters that are shards, and hand-written communication. Marks are Megatron's own."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed
from tiny import BLOCKS, VOCAB, WIDTH, Tiny
from torch import Tensor, nn
from torch.distributed import ProcessGroup


class _Copied(torch.autograd.Function):
    """Whole on each rank, which each use a shard of the weights on."""

    @staticmethod
    def forward(context: Any, whole: Tensor, group: ProcessGroup) -> Tensor:
        context.group = group
        return whole.view_as(whole)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _summed(gradient, context.group), None


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, term: Tensor, group: ProcessGroup) -> Tensor:
        return _summed(term, group)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _Gathered(torch.autograd.Function):
    """Along a dimension; backward sums the ranks' gradients and cuts. Where `terms` is false all ranks have the same
    gradient."""

    @staticmethod
    def forward(context: Any, share: Tensor, group: ProcessGroup, dim: int, terms: bool) -> Tensor:
        context.group, context.dim, context.terms = group, dim, terms
        shares = [torch.empty_like(share) for _ in range(group.size())]
        torch.distributed.all_gather(shares, share.contiguous(), group=group)
        return torch.cat(shares, dim)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        whole = _summed(gradient, context.group) if context.terms else gradient
        return _own(whole, context.group, context.dim), None, None, None


class _Scattered(torch.autograd.Function):
    """The sum, cut along the sequence."""

    @staticmethod
    def forward(context: Any, term: Tensor, group: ProcessGroup) -> Tensor:
        context.group = group
        return _own(_summed(term, group), group, 1)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _Gathered.apply(gradient, context.group, 1, False), None


def _summed(term: Tensor, group: ProcessGroup) -> Tensor:
    total = term.contiguous().clone()
    torch.distributed.all_reduce(total, group=group)
    return total


def _own(whole: Tensor, group: ProcessGroup, dim: int) -> Tensor:
    return whole.chunk(group.size(), dim)[group.rank()].contiguous()


def _shard(whole: Tensor, group: ProcessGroup, dim: int, mark: bool) -> nn.Parameter:
    shard = nn.Parameter(_own(whole.detach(), group, dim))
    if mark:
        shard.tensor_model_parallel, shard.partition_dim = True, dim
    return shard


class PlainBlock(nn.Module):
    def __init__(self, block: nn.Module, group: ProcessGroup, sequence: bool, mark: bool) -> None:
        super().__init__()
        self.group, self.sequence = group, sequence
        self.norm = block.norm
        self.up = _shard(block.mlp[0].weight, group, 0, mark)
        self.down = _shard(block.mlp[2].weight, group, 1, mark)
        self.bias = block.mlp[2].bias
        for each in (self.norm.weight, self.bias):
            each.sequence_parallel = sequence and mark

    def forward(self, hidden: Tensor) -> Tensor:
        normed = self.norm(hidden)
        entered = _Gathered.apply(normed, self.group, 1, True) if self.sequence else _Copied.apply(normed, self.group)
        term = nn.functional.gelu(entered @ self.up.T) @ self.down.T
        left = _Scattered.apply(term, self.group) if self.sequence else _Summed.apply(term, self.group)
        return hidden + left + self.bias


class Plain(nn.Module):
    """The same weights as `Tiny`'s."""

    def __init__(self, group: ProcessGroup, sequence: bool = False, tied: bool = False, mark: bool = True) -> None:
        super().__init__()
        whole = Tiny(tied)
        self.group, self.sequence = group, sequence
        self.embedding = _shard(whole.embedding.weight, group, 0, mark)
        self.blocks = nn.ModuleList([PlainBlock(whole.blocks[str(i)], group, sequence, mark) for i in range(BLOCKS)])
        self.norm = whole.norm
        self.norm.weight.sequence_parallel = sequence and mark
        self.head = self.embedding if tied else _shard(whole.head.weight, group, 0, mark)

    def forward(self, tokens: Tensor) -> Tensor:
        rows = VOCAB // self.group.size()
        own = tokens - rows * self.group.rank()
        mine = (own >= 0) & (own < rows)
        term = nn.functional.embedding(own.where(mine, 0), self.embedding) * mine.unsqueeze(-1)
        hidden = _Scattered.apply(term, self.group) if self.sequence else _Summed.apply(term, self.group)
        for block in self.blocks:
            hidden = block(hidden)
        normed = self.norm(hidden)
        entered = _Gathered.apply(normed, self.group, 1, True) if self.sequence else _Copied.apply(normed, self.group)
        return _Gathered.apply(entered @ self.head.T, self.group, 2, False)

    def terms(self) -> list[nn.Parameter]:
        """Whose gradients are of this rank's part of the sequences."""
        return [each for each in self.parameters() if each.shape == (WIDTH,)] if self.sequence else []
