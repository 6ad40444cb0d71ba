"""Micro-batches of unequal sizes: their weights in a step, and what shows them where nobody told.

Of K micro-batches of b_k samples each, weighted v_k in the mean gradient (Σ v_k = 1), E|g_k|² = |G|² + tr Σ/b_k. So
small = Σ v_k|g_k|² is |G|² + tr Σ/b with 1/b = Σ v_k/b_k, and big = |Σ v_k g_k|² is |G|² + tr Σ/B with
1/B = Σ v_k²/b_k: the estimators of McCandlish et al. 2018, appendix A.1, hold with these two batches, unbiased. b is
the harmonic mean of the sizes where all count alike, and B/K where each counts by its size; b ≤ B, since v_k² ≤ v_k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

# Of the squared relative spread of sizes: below it they count as equal, and tr Σ is off by no more. Labels masked at
# random, 15 % of 2,048 tokens, spread by 0.003.
EQUAL = 1e-2
IGNORED = -100


@dataclass(frozen=True)
class Sizes:
    """This rank's micro-batches of a step, in the order of their backward passes."""

    sequences: tuple[float, ...]
    scales: tuple[float, ...]
    """The factor on each one's mean loss."""
    samples: tuple[float, ...]
    """What each is a mean over, in any unit: sequences, or tokens."""

    @staticmethod
    def of(
        count: int,
        sequences: float | Sequence[float],
        scales: float | Sequence[float],
        tokens: Sequence[float] | None,
    ) -> Sizes:
        """Raises ValueError unless what is told of each micro-batch is told of all."""
        each = _spread(sequences, count)
        sizes = Sizes(each, _spread(scales, count), each if tokens is None else tuple(map(float, tokens)))
        for told in (sizes.sequences, sizes.scales, sizes.samples):
            if len(told) != count:
                raise ValueError(f"one number is wanted for each of {count} micro-batches, not {told}")
        return sizes

    @property
    def differ(self) -> bool:
        """Whether it matters which micro-batch a gradient is of."""
        return len(set(self.scales)) > 1 or len(set(self.samples)) > 1

    def sums(self) -> list[float]:
        """What of it must be summed over the replicas. Without samples, say of ignored labels only, it is none."""
        known = [
            (sequences, scale, samples)
            for sequences, scale, samples in zip(self.sequences, self.scales, self.samples, strict=True)
            if scale > 0.0 and samples > 0.0
        ]
        return [
            float(len(known)),
            sum(sequences for sequences, _, _ in known),
            sum(samples for _, _, samples in known),
            sum(scale for _, scale, _ in known),
            sum(scale / samples for _, scale, samples in known),
            sum(scale**2 / samples for _, scale, samples in known),
        ]


@dataclass(frozen=True)
class Together:
    """The same sums over all replicas."""

    count: float
    sequences: float
    samples: float
    scales: float
    scales_by_size: float
    scales_sqr_by_size: float

    def batches(self) -> tuple[float, float]:
        """The small and the big batch that the two squares are of, in sequences of the step's mean number of samples.
        To nine digits, so that rounding makes no two of what is one."""
        unit = self.sequences / self.samples
        small = self.scales / self.scales_by_size * unit
        big = self.scales**2 / self.scales_sqr_by_size * unit
        return float(f"{small:.9g}"), float(f"{big:.9g}")


def _spread(told: float | Sequence[float], count: int) -> tuple[float, ...]:
    return tuple(map(float, told)) if isinstance(told, Sequence) else (float(told),) * count


class Inputs:
    """Listens to what a module is given by each forward pass that will be trained on: how many elements, and of how
    many labels (the keyword of Hugging Face's models) the loss is."""

    def __init__(self, module: nn.Module, wanted: Callable[[], bool]) -> None:
        self._elements: list[int] = []
        self._labels: list[Tensor] = []
        self._wanted = wanted
        self.handle: RemovableHandle = module.register_forward_pre_hook(Hook(self._hear), with_kwargs=True)

    def _hear(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if torch.compiler.is_compiling() or not torch.is_grad_enabled() or not self._wanted():
            return
        given: Iterable[Any] = [*arguments, *keywords.values()]
        self._elements.append(next((each.numel() for each in given if isinstance(each, Tensor)), 0))
        labels = keywords.get("labels")
        if isinstance(labels, Tensor) and not labels.is_floating_point():
            self._labels.append((labels != IGNORED).sum())

    def take(self, micro_batches: int) -> list[float]:
        """How many sizes are known, their sum and that of their squares: of labels where there are any; zeros where the
        forward passes were no micro-batches, so that nothing is known. Forgets them."""
        labels: list[int] = torch.stack(self._labels).tolist() if self._labels else []
        sizes = labels or self._elements
        known = sizes if len(sizes) == micro_batches else []
        sums = [float(len(known)), float(sum(known)), float(sum(size**2 for size in known))]
        self._elements.clear()
        self._labels.clear()
        return sums


class Hook:
    """Listens to a module. A module that is saved whole takes one along that hears nothing."""

    def __init__(self, hear: Callable[[tuple[Any, ...], dict[str, Any]], None]) -> None:
        self._hear = hear

    def __call__(self, _: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self._hear(arguments, keywords)

    def __reduce__(self) -> tuple[Any, ...]:
        return Hook, (_hear_nothing,)


def _hear_nothing(_: tuple[Any, ...], __: dict[str, Any]) -> None:
    pass


def unequal(sums: Sequence[float]) -> bool:
    """Whether such sums are of sizes that differ."""
    count, total, squares = sums
    return count * squares > (1.0 + EQUAL) * total**2
