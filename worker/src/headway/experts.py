"""A feed-forward of experts (Shazeer et al. 2017): a router gives every token to the few that it scores highest, with
weights that add up to 1 (Mixtral, Jiang et al. 2024, section 2.1). No token is dropped and no loss balances them, so
that what is trained is the same however experts are spread.

With expert parallelism a rank holds some of the experts, and tokens go to where theirs are and back (GShard, Lepikhin
et al. 2021), between ranks with different samples or with different parts of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from headway.flops import ModelShape

Expert = Callable[[Tensor], Tensor]
Hear = Callable[[nn.Parameter], Tensor]
"""A parameter as one micro-batch sees it, so that its gradient can be told from others'."""


@dataclass(frozen=True)
class Spread:
    """The ranks over which experts are spread, and how many of these, next to each other, share every sequence."""

    group: dist.ProcessGroup
    sharing: int


class Experts(nn.Module):
    """`expert` makes one; they are called by their number in the whole model."""

    def __init__(self, shape: ModelShape, expert: Callable[[], nn.Module], spread: Spread | None, device: Any) -> None:
        super().__init__()
        self._count, self._active, self.spread = shape.experts, shape.active_experts, spread
        self._size = 1 if spread is None else dist.get_world_size(spread.group)
        each = shape.experts // self._size
        first = 0 if spread is None else dist.get_rank(spread.group) * each
        self.hear: Hear | None = None
        self.router = nn.Linear(shape.hidden, shape.experts, bias=False, device=device)
        self.experts = nn.ModuleDict({str(number): expert() for number in range(first, first + each)})

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, -2)
        with torch.autocast(x.device.type, enabled=False):  # scores near each other choose: in fp32 whatever x is
            scores, chosen = self.router(tokens.float()).topk(self._active)
        weights = functional.softmax(scores, dim=-1).to(x.dtype)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=self._count)
        passed = self._through(tokens[order // self._active], counts)[order.argsort()]
        return (passed.view(-1, self._active, x.shape[-1]) * weights[..., None]).sum(1).to(x.dtype).view(x.shape)

    def _through(self, tokens: Tensor, counts: Tensor) -> Tensor:
        """Through their experts and back; `tokens` are in the experts' order, so many for each."""
        if self.spread is None:
            return torch.cat(_each(self.experts.values(), torch.split(tokens, counts.tolist())))
        arriving, group = torch.empty_like(counts), self.spread.group
        dist.all_to_all_single(arriving, counts, group=group)
        # By rank of origin and, within, by expert here.
        sizes = arriving.view(self._size, -1).tolist()
        sent = counts.view(self._size, -1).sum(1).tolist()
        received = [sum(each) for each in sizes]
        here = _AllToAll.apply(tokens, sent, received, group)
        passed: list[Tensor] = []
        for number, of_one in enumerate(torch.split(here, received)):
            if number % self.spread.sharing == 0:
                experts = self._heard()
            passed += _each(experts, torch.split(of_one, sizes[number]))
        back: Tensor = _AllToAll.apply(torch.cat(passed), received, sent, group)
        return back

    def _heard(self) -> list[Expert]:
        """The experts here as one micro-batch sees them."""
        if self.hear is None or not torch.is_grad_enabled():
            return list(self.experts.values())
        heard: list[Expert] = []
        for expert in self.experts.values():
            parameters = {name: self.hear(parameter) for name, parameter in expert.named_parameters()}
            heard.append(partial(torch.func.functional_call, expert, parameters))
        return heard


def _each(experts: Iterable[Expert], shares: Iterable[Tensor]) -> list[Tensor]:
    """Every expert's tokens through it. Those without a token run too: ranks that wait for each other's gradients must
    have the same ones."""
    return [expert(share) for expert, share in zip(experts, shares, strict=True)]


class _AllToAll(torch.autograd.Function):
    """Rows to ranks, so many to each and from each."""

    @staticmethod
    def forward(context: Any, rows: Tensor, sent: list[int], received: list[int], group: dist.ProcessGroup) -> Tensor:
        context.turned = received, sent, group
        return _exchanged(rows, sent, received, group)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return _exchanged(gradients[0], *context.turned), None, None, None


def _exchanged(rows: Tensor, sent: list[int], received: list[int], group: dist.ProcessGroup) -> Tensor:
    arrived = rows.new_empty(sum(received), *rows.shape[1:])
    dist.all_to_all_single(arrived, rows.contiguous(), received, sent, group=group)
    return arrived
