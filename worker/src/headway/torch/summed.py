"""Gradients of which each rank of a group holds one term of a sum, and which parameters' those are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed
from torch import Tensor, nn

from headway.torch.ranks import Ranks, UnknownLayout, as_dtensor

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# Of the squares: ranks that differ by less hold copies of one sum, apart from rounding; terms differ by their noise.
SAME = 1e-6


@dataclass(frozen=True)
class Summed:
    """Parameters whose gradient on this rank is only one term of a sum over a group: tied embeddings on the first and
    the last pipeline stage, or norms of plain tensors under sequence parallelism. The sum of each micro-batch is
    squared; for that its terms are kept until the step's end."""

    parameters: Sequence[nn.Parameter]
    group: ProcessGroup


def all_summed(parameters: Iterable[nn.Parameter], ranks: Ranks, given: Sequence[Summed]) -> list[Summed]:
    """Those given, and what Megatron marks: `sequence_parallel` where a plain parameter sees a part of each sequence.

    Raises UnknownLayout where a mark says what only the script knows the group of, or what is not covered."""
    parameters = list(parameters)
    told = {id(parameter) for each in given for parameter in each.parameters}
    for parameter in parameters:
        if getattr(parameter, "allreduce", True) is False:
            raise UnknownLayout("expert parallelism is not covered: its parameters have other replicas than the rest")
        if getattr(parameter, "shared_embedding", False) and ranks.stages > 1 and id(parameter) not in told:
            raise UnknownLayout(
                "an embedding is tied over pipeline stages: give summed=[Summed([weight], group)] with the group of the"
                " first and the last stage, on both"
            )
    marked = [
        each
        for each in parameters
        if getattr(each, "sequence_parallel", False) and as_dtensor(each) is None and id(each) not in told
    ]
    if marked and ranks.tensor is not None:
        return [*given, Summed(marked, ranks.tensor)]
    return list(given)


def copies_once_summed(parameter: nn.Parameter, ranks: Ranks, group: ProcessGroup) -> int:
    """On how many ranks of one replica the sum of the parameter's terms lies."""
    copies = ranks.copies_in_replica(parameter)
    members = torch.distributed.get_process_group_ranks(group)
    tensor = [] if ranks.tensor is None else torch.distributed.get_process_group_ranks(ranks.tensor)
    # A tensor-parallel group is counted already.
    return copies if members == tensor else copies * len(members)


def whole(parts: Tensor, group: ProcessGroup) -> Tensor:
    """The sum over the group, of its ranks' terms; where all hold the same, somebody has summed them before: that."""
    total = parts.clone()
    torch.distributed.all_reduce(total, group=group)
    mean = total / torch.distributed.get_world_size(group)
    apart = torch.stack([(parts - mean).double().square().sum(), parts.double().square().sum()])
    torch.distributed.all_reduce(apart, group=group)
    return torch.where(apart[0] <= SAME * apart[1], mean, total)


def mean_square(summed: Summed, ranks: Ranks, device: torch.device) -> Tensor:
    """This rank's share of the square of their mean gradients in `p.grad`, whether the terms are summed yet or not."""
    given = [each.grad if each.grad is not None else torch.zeros_like(each) for each in summed.parameters]
    flat = torch.cat([gradient.reshape(-1).float() for gradient in given])
    total = torch.zeros((), dtype=torch.float64, device=device)
    pieces = torch.split(whole(flat, summed.group), [gradient.numel() for gradient in given])
    for parameter, piece in zip(summed.parameters, pieces, strict=True):
        copies = copies_once_summed(parameter, ranks, summed.group) * len(ranks.data_ranks())
        total += piece.double().square().sum() / copies
    return total
