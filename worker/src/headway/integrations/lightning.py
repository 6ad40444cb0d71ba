"""Lightning: a callback that reports a `Trainer`'s steps with their gradient noise, saves and stops as asked.

    follow = headway.integrations.lightning.Follow(micro_batch=8, sequence_length=1024)
    trainer = L.Trainer(callbacks=[follow], use_distributed_sampler=False, ...)
    trainer.fit(model, loader, ckpt_path=follow.resume_path)

It needs automatic optimization with one optimizer. Lightning does not bring a loader back to where it was within an
epoch: let it draw by `headway.torch.SampleBatches`, which goes by the samples seen. The batch is the Trainer's own
arguments: give it the launch's.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

import headway
from headway import sdk
from headway.integrations.refused import refuse_shares
from headway.torch import Asked, Ranks, ScaledLearningRate, StepReporter

CHECKPOINT = "lightning.ckpt"


class Follow(Callback):  # type: ignore[misc]
    """Make it before the Trainer. A no-op outside a Headway job."""

    def __init__(
        self,
        micro_batch: int,
        sequence_length: int,
        every: int = 4,
        handle_sigterm: bool = True,
        scale_learning_rate: bool = True,
        ranks: Ranks | None = None,
    ) -> None:
        """`handle_sigterm`: see `headway.init`; Lightning's own handler ends training before it has saved.
        `scale_learning_rate`: each step is taken with the learning rate times the scheduler's factor; say False if the
        script multiplies by HEADWAY_LR_SCALE itself. `ranks`: see `StepReporter`."""
        self._environment = headway.joined() or headway.init(
            batch="restart", layout="restart", handle_sigterm=handle_sigterm
        )
        refuse_shares("Lightning", self._environment)
        if sdk.promised_live_batch():
            raise ValueError('headway.init promised a live batch, which Lightning cannot follow: say batch="restart"')
        self._on_sigterm = signal.getsignal(signal.SIGTERM) if self._environment and handle_sigterm else None
        self._micro_batch, self._sequence_length, self._every = micro_batch, sequence_length, every
        self._scale_learning_rate, self._ranks = scale_learning_rate, ranks
        self._reporter: StepReporter | None = None
        self._rate: ScaledLearningRate | None = None
        self._asked = Asked()
        self._losses: list[Tensor] = []
        self._aligned = True  # until a training begins

    @property
    def resume_path(self) -> str | None:
        """The checkpoint to go on from, for `ckpt_path`."""
        path = self._environment.resume_path if self._environment else None
        return f"{path}/{CHECKPOINT}" if path else None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The model is wrapped by now, and its checkpoint is loaded."""
        if self._environment is None:
            return
        if not pl_module.automatic_optimization or len(trainer.optimizers) != 1:
            raise ValueError("headway.integrations.lightning needs automatic optimization with one optimizer")
        earlier = self._reporter
        self._reporter = StepReporter(
            trainer.strategy.model,
            micro_batch=self._micro_batch,
            sequence_length=self._sequence_length,
            ranks=self._ranks,
            every=self._every,
        )
        self._reporter.step = trainer.global_step
        if earlier is not None:  # a second `fit` goes on counting
            earlier.meter.close()
            self._reporter.samples_seen = earlier.samples_seen
        if self._rate is not None:
            self._rate.close()
        if self._on_sigterm is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)
        if self._scale_learning_rate:
            self._rate = ScaledLearningRate(trainer.optimizers[0])
        self._aligned = False

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Lightning ends a step where the micro-batches since the epoch's beginning are a multiple of the accumulation,
        which may be another than before. Of a loader without end they are counted anew."""
        if self._aligned or trainer.num_training_batches != math.inf:
            return
        progress = trainer.fit_loop.epoch_loop.batch_progress.current
        begun = trainer.global_step * trainer.accumulate_grad_batches
        progress.ready, progress.started, progress.processed, progress.completed = begun + 1, begun, begun, begun
        self._aligned = True

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Of a micro-batch: its share of the step's mean loss."""
        if self._reporter is not None:
            self._losses.append(loss.detach())

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        """The gradients are whole and not yet clipped. Those of half precision are unscaled already, so they cannot be
        held against the micro-batches'."""
        if self._reporter is None:
            return
        accumulation, count = trainer.accumulate_grad_batches, len(self._losses)
        loss = sum(float(each) for each in self._losses) * accumulation / count
        self._losses.clear()
        scaled = getattr(trainer.precision_plugin, "scaler", None) is not None
        self._asked = self._reporter.end_step(loss, count, 1.0 / accumulation, gradient_norm=0.0 if scaled else None)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Every rank was told the same, so all save and stop together."""
        if self._reporter is None or self._losses:
            return
        asked, self._asked = self._asked, Asked()
        if asked.save:
            self._reporter.save_together(lambda directory: _save(trainer, directory))
        if asked.stop:
            sys.exit(self._reporter.stopped())

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Whatever else follows, the last steps are told."""
        if self._reporter is not None:
            self._reporter.finished()


def _save(trainer: Trainer, directory: Path) -> None:
    trainer.save_checkpoint(directory / CHECKPOINT)
