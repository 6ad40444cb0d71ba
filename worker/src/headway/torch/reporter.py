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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.distributed
from torch import nn

import headway
from headway import said, sdk
from headway.checkpoint import Draft
from headway.group_end import end_groups_at_exit
from headway.message import Configuration, Configure, Layout
from headway.noise import NoiseSample
from headway.numbers import Number, count, real, reals
from headway.torch.heeded import Heeded
from headway.torch.meter import Measured, NoiseMeter
from headway.torch.portion import Portion, Reductions
from headway.torch.ranks import Ranks, UnknownLayout
from headway.torch.squares import EVERY
from headway.torch.summed import Summed
from headway.torch.together import meet
from headway.window import StepSummary, StepWindow

SILENCE = (
    "backward has not reached the parameters of the modules that StepReporter was given. Give the modules that train,"
    " once they are wrapped"
)


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
        summed: Sequence[Summed] = (),
    ) -> None:
        """`micro_batch`: sequences per backward. `every`: the noise is measured at each so manieth step. `batch` and
        `layout` are what `headway.init` is told, where the script has not called it itself. `summed`: see
        `NoiseMeter`.

        Raises ValueError where a size is less than 1, and UnknownLayout where the ranks are others than the job was
        launched with.
        """
        self._micro_batch = count("micro_batch", micro_batch, least=1)
        self._sequence_length = count("sequence_length", sequence_length, least=1)
        count("every", every, least=1)
        if headway.joined() is None:
            headway.init(batch=batch, layout=layout)
        self.meter = NoiseMeter(*modules, ranks=ranks, every=every, summed=summed)
        environment = headway.joined()
        self.step = environment.resume_step if environment else 0
        self.samples_seen = environment.samples_seen if environment else 0
        self._environment = environment
        self._check_launch()
        launched = environment.configuration if environment else None
        self._portion = Portion.of(launched.shares() if launched else None, self.meter.ranks)
        self._portion.check(modules)
        self._reductions = Reductions(modules, self._portion)
        self._window = StepWindow(report_every_s)
        self._leads = not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
        # Each node's agent may be the one that asks, but only rank 0 takes configurations.
        self._hears = self._leads or os.environ.get("LOCAL_RANK") == "0"
        self._saved_at = self._ended_at = time.monotonic()
        self._asked = Asked()
        self._world = _world()
        self._heeded = Heeded() if self._leads else None
        self._met = False
        window, leads = self._window, self._leads  # and nothing more: a model may be gone before the process ends
        sdk.before_close(lambda: _report(window.flush(), leads))
        end_groups_at_exit()

    def end_step(
        self,
        loss: Number | None,
        accumulation: int = 1,
        gradient_scale: float | Sequence[float] | None = None,
        gradient_norm: float | None = None,
        sequences: Sequence[float] | None = None,
        tokens: Sequence[float] | None = None,
    ) -> Asked:
        """Ends the gradients of a step, on every rank: after the last backward, before unscaling, clipping and the
        optimizer.

        `loss`: this rank's mean loss, None where another pipeline stage knows it. `accumulation`: this rank's
        micro-batches. `gradient_scale`: the factor on each one's mean loss, 1/accumulation unless given, or where the
        job was launched with uneven shares, `Configuration.gradient_scale()`. `gradient_norm`: see
        `NoiseMeter.measure`. Where they differ, `sequences` and `tokens` are those of each of this rank's
        micro-batches, and `gradient_scale` may be a number for each; without them such steps have no noise.

        Raises TypeError or ValueError where a number is none or cannot be, and RuntimeError at the first step where
        ranks stay away, and at any where replicas do not accumulate by the uneven shares that the job was launched
        with.
        """
        accumulation = count("accumulation", accumulation, least=1)
        scale = _scale(gradient_scale if gradient_scale is not None else self._portion.gradient_scale(accumulation))
        sequences = None if sequences is None else reals("sequences", sequences)
        tokens = None if tokens is None else reals("tokens", tokens)
        trained_on = self._micro_batch * accumulation if sequences is None else sum(sequences)
        weight = float(self._portion.weight)
        known = [0.0, 0.0] if loss is None else [real("loss", loss) * weight, weight]
        done = self._portion.sums(accumulation)
        if self._heeded is not None:
            self._heeded.begin_step()
        self._meet()
        measured = self.meter.measure(
            sequences if sequences is not None else self._micro_batch,
            scale,
            accumulation,
            gradient_norm,
            extra=[*known, *done, accumulation * self.meter.share, trained_on * self.meter.share, *self._hear()],
            tokens=tokens,
        )
        loss_sum, losses, done_by_all, squared, micro_batches, samples, *asked = measured.extra
        self._reductions.end_step()
        if self._portion.uneven and not self._portion.kept((done_by_all, squared), self._world):
            raise RuntimeError(
                f"the job was launched with shares {self._portion}, but its replicas do not accumulate by them:"
                f" {accumulation} micro-batches here. Do configuration.micro_batches(replica) of each, or leave"
                " layouts.uneven_shares out of the specification"
            )
        global_batch = round(self._micro_batch * micro_batches)
        self.step += 1
        self.samples_seen += round(samples)
        now = time.monotonic()
        summary = StepSummary(
            step=self.step,
            steps=1,
            samples_seen=self.samples_seen,
            tokens=round(samples) * self._sequence_length,
            duration_s=now - self._ended_at,
            configuration=self._at(self._micro_batch, global_batch),
            loss=loss_sum / losses if losses else math.nan,
            noise=self._noise(measured, told=gradient_norm is not None),
        )
        self._ended_at = now
        _report(self._window.add(summary), self._leads)
        self._asked = self._understand(asked)
        if self._heeded is not None:
            self._heeded.asked(self.step, self._asked.save, self._asked.stop)
        if self._asked.configure is not None:
            self._micro_batch = self._asked.configure.configuration.micro_batch
        return self._asked

    def save(self, write: Callable[[Path], object]) -> bool:
        """Lets `write` fill an empty directory, and offers it as this step's checkpoint; whether there is one now. On
        rank 0; raises RuntimeError on others, and NothingWritten where `write` has written elsewhere. A full disk ends
        no training: it is said, and the checkpoint before stands."""
        if self._heeded is None:
            raise RuntimeError("reporter.save is for rank 0 alone; save_together has every rank write its part")
        self._heeded.saves()
        try:
            with headway.saving(step=self.step, samples_seen=self.samples_seen) as directory:
                write(directory)
        except (OSError, RuntimeError) as error:  # PyTorch reports a full disk as RuntimeError
            print(f"checkpoint at step {self.step} failed: {error}", file=sys.stderr, flush=True)
            return False
        return True

    def save_together(self, write: Callable[[Path], object]) -> None:
        """The same where every rank writes its part into one directory, which all must see. Call it on every rank:
        where some stay away it raises RuntimeError that names them. If one fails there is no checkpoint, and the one
        before stands."""
        environment = headway.joined()
        assert environment is not None and environment.checkpoint_dir is not None, "nobody else asks to save"
        meet("save_together")
        if self._leads:
            begun: list[Path] = []

            def part(directory: Path) -> None:
                begun.append(directory)
                self._write_part(write, directory)

            if not self.save(part) and not begun:  # there is no directory, and the others wait twice to hear of it
                self.meter.sum_over_world([0.0])
                self.meter.sum_over_world([1.0])
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
        if self._heeded is not None:
            self._heeded.leaves()
        if self._hears:
            headway.stopped(step=self.step, samples_seen=self.samples_seen)
            headway.close()
        return self._asked.exit_code

    def _meet(self) -> None:
        """All ranks, and the same as ever."""
        if not self._met:
            meet("end_step")
            self._met = True
        if _world() != self._world:
            raise RuntimeError(
                f"the process group has {_world()} rank{'s' if _world() > 1 else ''} now, and had {self._world} when"
                " StepReporter was made: make it again"
            )

    def _check_launch(self) -> None:
        """Who trains on other ranks than it was launched with would count samples that nobody saw."""
        launched = self._environment.configuration if self._environment else None
        replicas = self.meter.ranks.replicas
        if launched is None or replicas == launched.layout.dp:
            return
        if launched.execution.cp > 1:
            raise UnknownLayout(
                f"the job was launched with cp {launched.execution.cp}: parts of sequences are no samples of their own;"
                " ranks that share sequences take headway.torch.GradientAccumulator with Ranks(context=...)"
            )
        raise UnknownLayout(
            f"the job was launched with dp {launched.layout.dp}, tp {launched.layout.tp}, pp {launched.layout.pp}, but"
            f" {replicas} ranks train as replicas of one another: start as many as the launch says, and declare the"
            " other kinds of ranks by ranks="
        )

    def _noise(self, measured: Measured, told: bool) -> NoiseSample | None:
        """None, which is said once, where no gradient was heard, nor is the norm of their mean `told`."""
        noise = measured.noise
        if noise is None or told or not noise.small_sqr == noise.big_sqr == 0.0:
            return noise
        if self._leads:
            said.once(SILENCE, f"no noise is measured: {SILENCE}")
        return None

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
            if configure.configuration.cycles() is None:  # a mistake of the sender, which nobody is to take
                if self._leads:
                    print(f"ignored an impossible {configure.configuration}", file=sys.stderr, flush=True)
                configure = None
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


def _world() -> int:
    return torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1


def _scale(told: Number | Sequence[Number]) -> float | list[float]:
    """One factor, or each micro-batch's: zero where none of its losses counts."""
    if isinstance(told, Sequence):
        return reals("gradient_scale", told)
    scale = real("gradient_scale", told)
    if not (math.isfinite(scale) and scale > 0.0):
        raise ValueError(f"gradient_scale must be finite and positive, not {scale}")
    return scale
