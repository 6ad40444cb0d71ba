"""What a meter hears of torchtitan's models, put together to gradients of micro-batches.

Its modules compute with plain tensors (its default `spmd_backend`): of a parameter that FSDP2 has gathered, only the
sharded one still says how it is cut over tensor-parallel ranks. What is not cut there gets one term of its gradient on
each of them, under sequence parallelism. And a loss that is taken in chunks of the sequence runs backward through the
head once for each, which cannot be told apart where the embedding has the same weight. Nothing here needs torchtitan.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headway.torch import NoiseMeter
from headway.torch.ranks import as_dtensor
from headway.torch.summed import whole
from headway.torch.unsharded import watch

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


TIED = (
    "the head shares its weight with another module (weight tying) under ChunkedLossWrapper, so that nobody can tell"
    " the gradients of its chunks from the other's. Train without weight tying, or with CrossEntropyLoss, to have it"
)


class Gradients:
    """Stands between the parameters and the meter. Make it before the meter, whose hooks must come after its own."""

    def __init__(
        self, modules: list[nn.Module], tensor: ProcessGroup | None, head: nn.Module | None = None, chunks: int = 1
    ) -> None:
        """`tensor`: the tensor-parallel ranks. `head`: what a loss in so many `chunks` goes through."""
        self._tensor = tensor
        self._ranks = set() if tensor is None else set(torch.distributed.get_process_group_ranks(tensor))
        self._head, self._chunks = head, chunks
        self._deaf = False
        self._cut: dict[int, bool] = {}
        # Of heads: how many chunks were heard of a micro-batch, their sum, and in how many ranks it is.
        self._sums: dict[int, tuple[nn.Parameter, int, Tensor, int]] = {}
        self._tied = head is not None and _shared(head, modules)
        self._terms: dict[int, tuple[nn.Parameter, list[Tensor]]] = {}
        if len(self._ranks) > 1:
            watch(modules, self._note)

    def attach(self, meter: NoiseMeter) -> None:
        """From now on the meter hears what is put together here. Of a tied head nothing, which is said once: no step is
        measured."""
        if self._tied:
            meter.give_up(TIED)
        self._hear = meter.hear_through(self._listen)

    def end_step(self, micro_batches: int) -> None:
        """Sums the terms, on every rank, before the meter measures."""
        sums, self._sums = self._sums, {}
        for key, (parameter, _, total, copies) in sums.items():
            # Other chunks than were said: it has to count them wrong, and take no sample.
            for _ in range(micro_batches + 1):
                self._hear(parameter, key, total, copies)
        terms, self._terms = self._terms, {}
        for key, (parameter, parts) in terms.items():
            assert self._tensor is not None, "terms come of tensor parallelism"
            for total in whole(torch.stack(parts), self._tensor):
                self._hear(parameter, key, total, len(self._ranks))

    def deaf_to(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, whose backward passes are of no micro-batch."""

        def unheard(*given: Any, **named: Any) -> Any:
            self._deaf = True
            try:
                return function(*given, **named)
            finally:
                self._deaf = False

        return unheard

    def _note(self, gathered: nn.Parameter, shard: nn.Parameter) -> RemovableHandle:
        placed = as_dtensor(shard)
        if placed is not None and as_dtensor(gathered) is None:
            mesh = placed.device_mesh
            groups = [set(torch.distributed.get_process_group_ranks(mesh.get_group(i))) for i in range(mesh.ndim)]
            over = [where for where, group in zip(placed.placements, groups, strict=True) if group == self._ranks]
            self._cut[id(gathered)] = any(not where.is_replicate() for where in over)
        return RemovableHandle(OrderedDict())

    def _listen(self, parameter: nn.Parameter, key: int, piece: Tensor, copies: int) -> None:
        if self._deaf:
            return
        if self._head is not None and any(parameter is each for each in self._head.parameters()):
            wide = torch.promote_types(piece.dtype, torch.float32)
            _, count, total, _ = self._sums.pop(key, (None, 0, torch.zeros_like(piece, dtype=wide), 0))
            piece = total.add_(piece)
            if count + 1 < self._chunks:
                self._sums[key] = (parameter, count + 1, piece, copies)
                return
        cut = self._cut.get(key)
        if cut is False:
            self._terms.setdefault(key, (parameter, []))[1].append(piece.to(torch.float32, copy=True))
        else:
            self._hear(parameter, key, piece, 1 if cut else copies)


def _shared(head: nn.Module, modules: list[nn.Module]) -> bool:
    """Whether a parameter of the head has another name besides."""
    times = Counter(id(each) for module in modules for _, each in module.named_parameters(remove_duplicate=False))
    return any(times[id(each)] > 1 for each in head.parameters())


def gradient_norm(meter: NoiseMeter) -> float:
    """Of what lies in `p.grad`, which is the step's mean gradient where the sum over replicas is."""
    (square,) = meter.sum_over_world([], [meter.mean_square()])
    return math.sqrt(square)
