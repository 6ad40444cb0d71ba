"""Adam's second moment as measuring the preconditioned noise wants it: whole on every replica at the steps that are
measured, also where the optimizer shares it out. That takes the memory and the traffic of one more copy of this rank's
parameters, in single precision, at those steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headway.torch import Preconditioner, views
from headway.torch.ranks import local
from headway.torch.unsharded import Rows

if TYPE_CHECKING:
    from headway.optimizer import AdamW


class AdamPreconditioner(Preconditioner):
    """Of the reference trainer's optimizer, once it is told which (`follow`)."""

    gathers = True

    def __init__(self) -> None:
        super().__init__(lambda parameter: self._whole.get(id(parameter)))
        self._optimizer: AdamW | None = None
        self._whole: dict[int, Tensor] = {}

    def follow(self, optimizer: AdamW) -> None:
        self._optimizer = optimizer

    @torch.no_grad()
    def begin(self) -> None:
        optimizer = self._optimizer
        if optimizer is None:
            return
        gradients = optimizer.gradients
        for span, own in optimizer.second_by_span():
            pieces = [local(parameter) for parameter in span.parameters]
            for parameter, whole in zip(span.parameters, views(span.gather(own), pieces), strict=True):
                self._whole[id(parameter)] = whole
        for parameter, own in optimizer.second_of_shards():
            self._whole[id(parameter)] = Rows.of(parameter, gradients.ranks.data_ranks()).gather(own)

    def end(self) -> None:
        self._whole.clear()
