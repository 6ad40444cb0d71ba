"""Cross-entropy of logits that tensor parallelism has cut by vocabulary, without gathering them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from torch import Tensor

from headway.gang import Gang
from headway.model import cross_entropy

LossOfLogits = Callable[[Tensor, Tensor], Tensor]


def loss_of_logits(gang: Gang) -> LossOfLogits:
    """For this rank's logits and all targets."""
    if gang.layout.tp == 1:
        return cross_entropy
    from torch.distributed.tensor import DTensor, Shard

    mesh = gang.part("tp")

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        whole = DTensor.from_local(logits, mesh, [Shard(-1)], run_check=False)
        value = cross_entropy(whole, targets)
        return value.to_local() if isinstance(value, DTensor) else value

    return loss


def cut_by_vocabulary(gang: Gang) -> contextlib.AbstractContextManager[object]:
    """Forward and backward of such a loss run inside."""
    if gang.layout.tp == 1:
        return contextlib.nullcontext()
    from torch.distributed.tensor.parallel import loss_parallel

    return loss_parallel()
