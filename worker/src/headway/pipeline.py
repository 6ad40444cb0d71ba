"""One step's micro-batches through this rank's stages, by a schedule of torch.distributed.pipelining. Rebuilt whenever
the micro-batch or their number changes, which costs no step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleLoopedBFS,
)
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, PipelineScheduleSingle
from torch.distributed.pipelining.stage import _PipelineStageBase

from headway.gang import Gang
from headway.message import Configuration
from headway.model import Decoder
from headway.vocabulary import LossOfLogits


class Pipeline:
    """Schedules `count` micro-batches of `micro_batch` sequences."""

    def __init__(
        self,
        parts: dict[int, Decoder],
        configuration: Configuration,
        gang: Gang,
        loss: LossOfLogits,
        stream: torch.dtype,
        micro_batch: int,
        count: int,
    ) -> None:
        execution = configuration.execution
        self._micro_batch, self._count = micro_batch, count
        self._first = any(part.embeds for part in parts.values())
        self._last = any(part.projects for part in parts.values())
        stages: list[_PipelineStageBase] = [
            PipelineStage(
                part,
                stage,
                configuration.layout.pp * execution.vpp,
                gang.device,
                input_args=self._sample(part, configuration, stream, entering=True),
                output_args=self._sample(part, configuration, stream, entering=False),
                group=gang.group("pp"),
            )
            for stage, part in sorted(parts.items())
        ]
        arguments: dict[str, Any] = {"n_microbatches": count, "loss_fn": loss, "scale_grads": False}
        self._schedule: PipelineScheduleSingle | PipelineScheduleMulti
        if execution.vpp > 1:
            several = {"breadth_first": ScheduleLoopedBFS, "1f1b": ScheduleInterleaved1F1B}[execution.schedule]
            self._schedule = several(stages, **arguments)
        elif execution.schedule == "1f1b" and count >= configuration.layout.pp:
            self._schedule = Schedule1F1B(stages[0], **arguments)
        else:
            # With one chunk breadth first is GPipe, and so is 1F1B with fewer micro-batches than stages: all are in
            # flight.
            self._schedule = ScheduleGPipe(stages[0], **arguments)

    def train(self, inputs: Tensor, targets: Tensor, first: int) -> list[Tensor]:
        """Forward and backward of the samples from `first` on; the micro-batches' losses where this rank has the last
        stage, else nothing."""
        starts = range(first, first + len(inputs), self._micro_batch)
        samples = [{"samples": range(start, start + self._micro_batch)} for start in starts]
        return self._run(partial(self._schedule.step, kwarg_mbs=samples), inputs, targets)

    def evaluate(self, inputs: Tensor, targets: Tensor) -> list[Tensor]:
        """Forward only."""
        return self._run(self._schedule.eval, inputs, targets)

    def _run(self, step: Callable[..., object], inputs: Tensor, targets: Tensor) -> list[Tensor]:
        losses: list[Tensor] = []
        step(
            arg_mbs=[(each,) for each in torch.split(inputs, self._micro_batch)] if self._first else None,
            target_mbs=list(torch.split(targets, self._micro_batch)) if self._last else None,
            losses=losses if self._last else None,
            return_outputs=False,
        )
        return [loss.detach() for loss in losses]

    def _sample(self, part: Decoder, configuration: Configuration, stream: torch.dtype, entering: bool) -> Tensor:
        """The shape and type of what enters or leaves a stage on this rank, without memory."""
        shape, tp, length = part.shape, configuration.layout.tp, len(part.positions)
        if entering and part.embeds:
            return torch.empty(self._micro_batch, length, dtype=torch.long, device="meta")
        if not entering and part.projects:
            product = torch.float32 if stream == torch.float32 else torch.bfloat16
            size = (self._micro_batch, length, shape.vocab // tp)
            return torch.empty(size, dtype=product, device="meta", requires_grad=True)
        if configuration.execution.sequence_parallel:
            length //= tp
        size = (self._micro_batch, length, shape.hidden)
        return torch.empty(size, dtype=stream, device="meta", requires_grad=True)
