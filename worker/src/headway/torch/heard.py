"""What a meter hears in one step: the square of each micro-batch's gradient, this rank's share of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from headway.torch.ranks import Ranks
from headway.torch.squares import Norm, norms, sum_of_squares
from headway.torch.summed import Summed, copies_once_summed, whole

PENDING = 256


class Heard:
    """Each parameter's k-th gradient is of the k-th micro-batch."""

    def __init__(self, ranks: Ranks, summed: Sequence[Summed], device: torch.device) -> None:
        self._ranks, self._summed, self._device = ranks, summed, device
        self._terms: dict[int, list[Tensor]] = {id(each): [] for group in summed for each in group.parameters}
        self._norms: dict[tuple[int, int], list[Norm]] = defaultdict(list)
        self._pending = 0
        self._squares: dict[int, Tensor] = {}
        self._times: Counter[int] = Counter()
        self.fused = False
        """Whether a kernel of Megatron's has added a gradient to `main_grad` by itself: what came here is none."""

    def hear(self, parameter: nn.Parameter, key: int, piece: Tensor, copies: int) -> None:
        """Only the norm is kept: whoever held the gradient itself would make autograd copy it. Terms must be."""
        self.fused |= bool(getattr(parameter, "grad_added_to_main_grad", False))
        micro_batch = self._times[key]
        self._times[key] += 1
        if key in self._terms:
            self._terms[key].append(piece.to(torch.float32, copy=True))
            return
        self._norms[micro_batch, copies].extend(norms([piece]))
        self._pending += 1
        if self._pending >= PENDING:
            self._flush()

    @property
    def times(self) -> int:
        """How often the busiest parameter was heard."""
        return max(self._times.values(), default=0)

    def missed(self, micro_batches: int, every: bool) -> bool:
        """Whether the busiest parameter, or every one that was heard at all, was heard another number of times."""
        heard = set(self._times.values()) if every else {self.times} - {0}
        return bool(heard - {micro_batches})

    def take(self, scales: Sequence[float]) -> Tensor:
        """The squares of the micro-batches' gradients, which were scaled so, weighted by their scales; summed over the
        world that is Σ s_k|g_k|². Forgets all that was heard."""
        self._flush()
        for each in self._summed:
            self._sum_terms(each, len(scales))
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        for micro_batch, square in self._squares.items():
            if micro_batch < len(scales) and scales[micro_batch] > 0.0:  # else they are miscounted
                total += square / scales[micro_batch]
        self._squares.clear()
        self._times.clear()
        self.fused = False
        return total

    def _sum_terms(self, summed: Summed, count: int) -> None:
        """All ranks of the group say as much, whatever they have heard, or they would wait for each other for ever."""
        sizes = [parameter.numel() for parameter in summed.parameters]
        terms = torch.zeros(count, sum(sizes), device=self._device)
        for parameter, rows in zip(summed.parameters, torch.split(terms, sizes, dim=1), strict=True):
            for row, term in zip(rows, self._terms[id(parameter)], strict=False):
                row.copy_(term.reshape(-1))
            self._terms[id(parameter)].clear()
        sums = torch.split(whole(terms, summed.group), sizes, dim=1)
        for parameter, rows in zip(summed.parameters, sums, strict=True):
            copies = copies_once_summed(parameter, self._ranks, summed.group)
            for micro_batch, row in enumerate(rows):
                self._add(micro_batch, [row.norm()], copies)

    def _flush(self) -> None:
        for (micro_batch, copies), known in self._norms.items():
            self._add(micro_batch, known, copies)
        self._norms.clear()
        self._pending = 0

    def _add(self, micro_batch: int, known: Sequence[Norm], copies: int) -> None:
        square = sum_of_squares(known) / copies
        self._squares[micro_batch] = self._squares[micro_batch] + square if micro_batch in self._squares else square
