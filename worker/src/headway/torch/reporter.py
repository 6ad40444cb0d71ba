"""Headway for a training script of one's own: one call per step measures the noise, reports, and tells every rank the
same of what the scheduler asks.

    reporter = headway.torch.StepReporter(model, micro_batch=8, sequence_length=1024)   # wrapped or sharded already
    ...
        asked = reporter.end_step(loss, accumulation)       # after the last backward, before clipping
        optimizer.step()
        if asked.save and rank == 0:
            reporter.save(lambda directory: torch.save(state, directory / "state.pt"))
        if asked.stop:
            sys.exit(reporter.stopped())
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.distributed
from torch import Tensor, nn

import headway
from headway import sdk
from headway.checkpoint import Draft
from headway.message import Configuration, Configure, Layout
from headway.torch.meter import NoiseMeter
from headway.torch.ranks import Ranks
from headway.torch.squares import EVERY
from headway.window import StepSummary, StepWindow


@dataclass(frozen=True)
class Asked:
    """What the scheduler (or a SIGTERM) wants of all ranks after this step; the same on each."""

    save: bool = False
    stop: bool = False
    exit_code: int = 0
    configure: Configure | None = None
    """Only for scripts that said `batch="live"`: batch and learning-rate factor from the next step on."""


class StepReporter:
    """Make it on every rank, once the modules are wrapped. It counts steps and samples on from the checkpoint the job
    was resumed from."""

    def __init__(
        self,
        *modules: nn.Module,
        micro_batch: int,
        sequence_length: int,
        ranks: Ranks | None = None,
        every: int = EVERY,
        report_every_s: float = 1.0,
        batch: str = "restart",
        layout: str = "restart",
    ) -> None:
        """`micro_batch`: sequences per backward. `every`: the noise is measured at each so manieth step. `batch` and
        `layout` are what `headway.init` is told, where the script has not called it itself."""
        if headway.joined() is None:
            headway.init(batch=batch, layout=layout)
        self.meter = NoiseMeter(*modules, ranks=ranks, every=every)
        environment = headway.joined()
        self.step = environment.resume_step if environment else 0
        self.samples_seen = environment.samples_seen if environment else 0
        self._environment = environment
        self._micro_batch, self._sequence_length = micro_batch, sequence_length
        self._window = StepWindow(report_every_s)
        self._leads = not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
        # Each node's agent may be the one that asks, but only rank 0 takes configurations.
        self._hears = self._leads or os.environ.get("LOCAL_RANK") == "0"
        self._saved_at = self._ended_at = time.monotonic()
        self._asked = Asked()
        window, leads = self._window, self._leads  # and nothing more: a model may be gone before the process ends
        sdk.before_close(lambda: _report(window.flush(), leads))

    def end_step(
        self,
        loss: Tensor | float | None,
        accumulation: int = 1,
        gradient_scale: float | None = None,
        gradient_norm: float | None = None,
    ) -> Asked:
        """Ends the gradients of a step, on every rank: after the last backward, before unscaling, clipping and the
        optimizer.

        `loss`: this rank's mean loss, None where another pipeline stage knows it. `gradient_scale`: the factor on each
        micro-batch's mean loss, 1/accumulation unless given. `gradient_norm`: see `NoiseMeter.measure`.
        """
        scale = gradient_scale if gradient_scale is not None else 1.0 / accumulation
        known = [0.0, 0.0] if loss is None else [_number(loss), 1.0]
        measured = self.meter.measure(
            self._micro_batch, scale, accumulation, gradient_norm, extra=[*known, *self._hear()]
        )
        loss_sum, losses, *asked = measured.extra
        global_batch = self._micro_batch * accumulation * self.meter.ranks.replicas
        self.step += 1
        self.samples_seen += global_batch
        now = time.monotonic()
        summary = StepSummary(
            step=self.step,
            steps=1,
            samples_seen=self.samples_seen,
            tokens=global_batch * self._sequence_length,
            duration_s=now - self._ended_at,
            configuration=self._at(self._micro_batch, global_batch),
            loss=loss_sum / losses if losses else math.nan,
            noise=measured.noise,
        )
        self._ended_at = now
        _report(self._window.add(summary), self._leads)
        self._asked = self._understand(asked)
        if self._asked.configure is not None:
            self._micro_batch = self._asked.configure.configuration.micro_batch
        return self._asked

    def save(self, write: Callable[[Path], object]) -> bool:
        """Lets `write` fill an empty directory, and offers it as this step's checkpoint; whether there is one now. On
        one rank. A full disk ends no training: it is said, and the checkpoint before stands."""
        try:
            with headway.saving(step=self.step, samples_seen=self.samples_seen) as directory:
                write(directory)
        except (OSError, RuntimeError) as error:  # PyTorch reports a full disk as RuntimeError
            print(f"checkpoint at step {self.step} failed: {error}", file=sys.stderr, flush=True)
            return False
        return True

    def save_together(self, write: Callable[[Path], object]) -> None:
        """The same where every rank writes its part into one directory, which all must see. Call it on every rank. If
        one fails there is no checkpoint, and the one before stands."""
        environment = headway.joined()
        assert environment is not None and environment.checkpoint_dir is not None, "nobody else asks to save"
        if self._leads:
            self.save(lambda directory: self._write_part(write, directory))
        else:
            with contextlib.suppress(OSError):
                self._write_part(write, Draft(environment.checkpoint_dir, environment.generation, self.step).path)

    def _write_part(self, write: Callable[[Path], object], directory: Path) -> None:
        """Between two meetings of all ranks: the directory is there; every part is."""
        self.meter.sum_over_world([0.0])
        try:
            write(directory)
            failed = 0.0
        except (OSError, RuntimeError) as error:
            print(f"writing a part of {directory} failed: {error}", file=sys.stderr, flush=True)
            failed = 1.0
        (failures,) = self.meter.sum_over_world([failed])
        if failures:
            raise OSError(f"{failures:g} ranks could not write their part")

    def finished(self) -> None:
        """Reports the steps that are not reported yet. It happens by itself when the process ends or `headway.close` is
        called; call it where training is over and much else still follows."""
        _report(self._window.flush(), self._leads)

    def stopped(self) -> int:
        """Says that this job stops as asked, after its last checkpoint; exit with what this returns."""
        self.finished()
        if self._hears:
            headway.stopped(step=self.step, samples_seen=self.samples_seen)
            headway.close()
        return self._asked.exit_code

    def _hear(self) -> list[float]:
        """What was asked of this rank since the last step, so that the sums over ranks say it to all."""
        save, stop, ordered = self._due(), False, False
        configured = [0.0, 0.0, 0.0, 0.0]
        while self._hears and (directive := headway.poll()) is not None:
            match directive:
                case headway.Stop(checkpoint=saves, signalled=signalled):
                    save, stop, ordered = save or saves, True, ordered or not signalled
                case headway.Checkpoint():
                    save = True
                case headway.Configure(configuration=wanted) if self._leads:
                    batches = [float(wanted.micro_batch), float(wanted.global_batch)]
                    configured = [float(directive.revision + 1), *batches, directive.lr_scale]
        return [float(save), float(stop), float(ordered), *configured]

    def _due(self) -> bool:
        """Whether the job's own checkpoint interval has passed."""
        every = self._environment.checkpoint_every_s if self._environment else None
        if not self._leads or not every or time.monotonic() - self._saved_at < every:
            return False
        self._saved_at = time.monotonic()
        return True

    def _understand(self, summed: list[float]) -> Asked:
        save, stop, ordered, revision, micro_batch, global_batch, lr_scale = summed
        configure = None
        if revision:
            configure = Configure(int(revision) - 1, self._at(int(micro_batch), int(global_batch)), lr_scale)
        code = headway.Stop(save > 0.0, signalled=not ordered).exit_code if stop else 0
        saves = self._environment is not None and self._environment.checkpoint_dir is not None
        return Asked(save > 0.0 and saves, stop > 0.0, code, configure)

    def _at(self, micro_batch: int, global_batch: int) -> Configuration:
        """The layout and its execution stay what they were at the launch."""
        launched = self._environment.configuration if self._environment else None
        if launched is None:
            return Configuration(Layout(self.meter.ranks.replicas), micro_batch, global_batch)
        return replace(launched, micro_batch=micro_batch, global_batch=global_batch)


def _report(summaries: list[StepSummary], leads: bool) -> None:
    for summary in summaries if leads else []:
        headway.report_steps(summary)


def _number(loss: Tensor | float) -> float:
    return float(loss.detach()) if isinstance(loss, Tensor) else loss
