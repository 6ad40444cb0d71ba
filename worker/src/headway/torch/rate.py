"""The learning rate for the batch that the scheduler chose (`training.lr_scaling`, docs/goodput.md)."""

from __future__ import annotations

import os
from typing import Any

from torch.optim import Optimizer

from headway.environment import Environment
from headway.learning_rate import LearningRate, RateSchedule


class ScaledLearningRate:
    """Each step of the optimizer is taken with its learning rate times the scheduler's factor, 1 outside Headway.

    Between steps the optimizer has the recipe's own rate, so schedules, logs and checkpoints know that alone, and a
    checkpoint of another batch brings no factor with it. Make one for each optimizer. What multiplies the learning rate
    in it, such as AdamW's weight decay, is scaled too.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        environment = Environment.read(os.environ)
        self._rate = LearningRate(RateSchedule(1.0), environment.lr_scale if environment else 1.0)
        self._own: list[Any] = []
        self._hooks = [
            optimizer.register_step_pre_hook(lambda *_: self._scale(optimizer)),
            optimizer.register_step_post_hook(lambda *_: self._restore(optimizer)),
        ]

    def aim(self, lr_scale: float) -> None:
        """Approaches another factor over the next ten steps: `asked.configure.lr_scale`."""
        self._rate.aim(lr_scale)

    def close(self) -> None:
        """Leaves the optimizer alone."""
        while self._hooks:
            self._hooks.pop().remove()

    def _scale(self, optimizer: Optimizer) -> None:
        factor = self._rate.next(0)  # of a schedule that is 1 everywhere: the recipe's own is the script's
        self._own = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * factor

    def _restore(self, optimizer: Optimizer) -> None:
        for group, own in zip(optimizer.param_groups, self._own, strict=True):
            group["lr"] = own
