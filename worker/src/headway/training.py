"""One rank of the reference trainer: the loop, what it reports and how it follows the scheduler.

All ranks act at the same step: what a rank was asked rides in the step's own small all-reduce, and takes effect after
it. A new batch is trained with at the next step; a new layout on the same ranks is taken in memory, between two steps.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from dataclasses import asdict

import torch

import headway
from headway import resume
from headway.batches import Batches
from headway.checkpoint import CheckpointError
from headway.data import Corpus
from headway.environment import Environment
from headway.gang import Gangs, control_group, device_of, join
from headway.launch import TERMINATED, Termination
from headway.learning_rate import LearningRate
from headway.message import Configuration
from headway.noise import NoiseAverage
from headway.options import first_configuration
from headway.orders import Orders
from headway.pacing import Pacer
from headway.parallel import Parallel, Recipe
from headway.parts import CannotRun, check, import_for
from headway.reshard import exchange
from headway.saver import Saver
from headway.stepping import mean_gradient
from headway.tiles import staged
from headway.torch import Reduced
from headway.window import StepSummary, StepWindow

EVALUATED = 256
NOISE_HORIZON = 4096.0
CANNOT_RUN, DIVERGED = 2, 3


def preload(options: argparse.Namespace) -> None:
    """Imports what the first configuration needs beyond plain data parallelism, before the ranks are forked."""
    import_for([first_configuration(options, Environment.read(os.environ), int(os.environ.get("WORLD_SIZE", "1")))])


def run(options: argparse.Namespace, corpus: Corpus, termination: Termination, import_s: float) -> int:
    """A rank's life, from rendezvous to exit code."""
    try:
        return _Training(options, corpus, termination, import_s).run()
    except (CannotRun, CheckpointError) as error:
        print(f"cannot train: {error}", file=sys.stderr, flush=True)
        return CANNOT_RUN
    finally:
        headway.close()


def recipe_of(options: argparse.Namespace) -> Recipe:
    return Recipe(
        options.shape,
        options.seed,
        options.weight_decay,
        options.clip,
        options.precision == "bf16",
        options.noise,
        options.noise_every,
    )


class _Training:
    def __init__(self, options: argparse.Namespace, corpus: Corpus, termination: Termination, import_s: float) -> None:
        began = time.monotonic()
        self._options, self._termination = options, termination
        self._rank, self._world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self._environment = Environment.read(os.environ)
        configuration = first_configuration(options, self._environment, self._world)
        check(options.shape, configuration, self._world)
        # Every rank tells how long it works. Each node's first rank also hears what the agent asks; only rank 0 reports
        # and takes configurations.
        self._connected = os.environ.get("LOCAL_RANK", "0") == "0"
        headway.init(batch="live", layout="live", handle_sigterm=False)
        if self._connected:
            headway.poll()
        emulated = self._environment is not None and self._environment.device_flops is not None
        self._device = device_of(options.device, emulated)
        self._batches = Batches(corpus, self._device)
        join(self._device)
        self._control = control_group(self._device)
        self._gangs = Gangs(self._device)
        joined = time.monotonic()

        self._recipe = recipe_of(options)
        self._parallel = Parallel(self._recipe, configuration, self._gangs.of(configuration.layout))
        scale = self._environment.lr_scale if self._environment else 1.0
        self._learning_rate = LearningRate(options.lr, options.warmup_steps, scale)
        self._step, self._samples_seen = 0, 0
        self._start()
        self._learning_rate.aim(scale)
        self._pacer = self._pace(configuration)
        self._window = StepWindow(options.report_every)
        self._noise = NoiseAverage(NOISE_HORIZON)
        self._saver = self._saving()
        self._save_wanted = False
        self._phases = {"import": import_s, "rendezvous": joined - began, "load": time.monotonic() - joined}

    def run(self) -> int:
        """Steps until the samples are used up, someone asks to stop, or the loss breaks."""
        self._say(f"model of {self._options.shape.parameters()} parameters, {self._parallel.configuration}")
        first = time.monotonic()
        while self._samples_seen < self._options.max_samples:
            reduced = self._train_step()
            if reduced is None:
                self._report(self._window.flush())
                self._finish_saving()
                if self._rank == 0:
                    headway.loss(self._step + 1, math.nan)
                print(f"training has diverged after step {self._step}", file=sys.stderr, flush=True)
                return DIVERGED
            if "first_step" not in self._phases:
                self._phases["first_step"] = time.monotonic() - first
                self._tell_phases()
            self._tell_saved()
            orders = Orders.decode(reduced.extra)
            if orders.stop:
                return self._stop(orders)
            if orders.save:
                self._save()
            if orders.configuration is not None:
                self._configure(orders.configuration, orders.lr_scale)
        self._report(self._window.flush())
        self._save()
        if not self._finish_saving():
            return 1
        loss = self._parallel.evaluate(self._batches.held_out, EVALUATED)
        self._say(f"complete: evaluation loss {loss:.4f} after {self._samples_seen} samples")
        return 0

    def _train_step(self) -> Reduced | None:
        """One optimizer step; None, with nothing changed, if loss or gradient is no finite number on any rank."""
        started = time.monotonic()
        configuration = self._parallel.configuration
        reduced = mean_gradient(self._parallel, self._batches, self._samples_seen, self._pacer, self._ask)
        if reduced is None:
            return None
        self._parallel.update(reduced, self._learning_rate.next(self._step))
        self._step += 1
        self._samples_seen += configuration.global_batch
        summary = StepSummary(
            step=self._step,
            steps=1,
            samples_seen=self._samples_seen,
            tokens=configuration.global_batch * self._options.seq_len,
            duration_s=time.monotonic() - started,
            configuration=configuration,
            loss=reduced.loss,
            noise=reduced.noise,
            preconditioned=reduced.preconditioned,
        )
        self._report(self._window.add(summary))
        return reduced

    def _ask(self, worked: float) -> list[float]:
        headway.busy(worked)
        return self._poll().encode()

    def _poll(self) -> Orders:
        """Everything asked of this rank since the last step."""
        orders = Orders()
        if self._termination.requested:
            orders.stop = orders.stop_saves = True
        if not self._connected:
            return orders
        while (directive := headway.poll()) is not None:
            match directive:
                case headway.Stop(checkpoint=saves):
                    orders.stop = orders.stop_ordered = True
                    orders.stop_saves = orders.stop_saves or saves
                case headway.Checkpoint():
                    self._save_wanted = True
                case headway.Configure() if self._rank == 0 and self._can_follow(directive.configuration):
                    orders.take(directive)
        every = self._environment.checkpoint_every_s if self._environment else None
        if self._rank == 0 and every and time.monotonic() - self._saver.began >= every:
            self._save_wanted = True
        # A save that is still being written is not waited for.
        if self._save_wanted and not self._saver.busy:
            orders.save, self._save_wanted = True, False
        return orders

    def _can_follow(self, configuration: Configuration) -> bool:
        """Other ranks come as a new generation; what cannot be trained is a mistake of the sender."""
        try:
            check(self._options.shape, configuration, self._world)
        except CannotRun as error:
            print(f"ignored an impossible {configuration}: {error}", file=sys.stderr, flush=True)
            return False
        return True

    def _configure(self, configuration: Configuration, lr_scale: float) -> None:
        """From the next step on."""
        old = self._parallel.configuration
        if configuration != old and self._device.type == "cuda":
            # The peak is that of the configuration it is reported with.
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        if (configuration.layout, configuration.execution) != (old.layout, old.execution):
            self._reshard(configuration)
        elif configuration != old:
            self._parallel.configure(configuration)
        self._pacer = self._pace(configuration)
        self._learning_rate.aim(lr_scale)
        self._say(f"now {configuration}, learning rate x {lr_scale:g}")

    def _reshard(self, configuration: Configuration) -> None:
        """Another layout of the same ranks, by way of CPU memory; no process restarts and no step is lost."""
        began = time.monotonic()
        held, steps = staged(self._parallel.tiles()), self._parallel.optimizer_steps
        self._parallel.close()
        del self._parallel
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        staging = time.monotonic()
        gang = self._gangs.of(configuration.layout)
        grouping = time.monotonic()
        self._parallel = Parallel(self._recipe, configuration, gang)
        building = time.monotonic()
        exchange(held, self._parallel.tiles(), self._control)
        self._parallel.optimizer_steps = steps
        done = time.monotonic()
        phases = {
            "staging": staging - began,
            "groups": grouping - staging,
            "build": building - grouping,
            "exchange": done - building,
        }
        if self._rank == 0:
            headway.resharded({name: round(seconds, 4) for name, seconds in phases.items()})
        told = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in phases.items())
        self._say(f"resharded in {done - began:.2f} s: {told}")

    def _start(self) -> None:
        """From a checkpoint if one is named, else from the beginning."""
        chosen = resume.choose(self._environment, self._control) if self._environment else None
        if chosen is None:
            self._parallel.initialise()
            return
        path, manifest = chosen
        state = resume.fill(path, self._parallel, self._options.shape, self._control)
        self._learning_rate.load(state["learning_rate"])
        self._step, self._samples_seen = manifest.step, manifest.samples_seen
        self._say(f"resumed step {manifest.step}, {manifest.samples_seen} samples, from {path}")

    def _saving(self) -> Saver:
        environment = self._environment
        if environment is None:
            return Saver(None, "", 0, self._rank, self._world)
        directory = environment.checkpoint_dir
        return Saver(directory, environment.job_id, environment.generation, self._rank, self._world)

    def _save(self) -> None:
        """Begins to save; on all ranks at the same step."""
        state = {
            "optimizer_steps": self._parallel.optimizer_steps,
            "learning_rate": self._learning_rate.state(),
            "model": asdict(self._options.shape),
        }
        self._saver.start(self._step, self._samples_seen, self._parallel.tiles, state)

    def _finish_saving(self) -> bool:
        good = self._saver.wait()
        self._tell_saved()
        return good

    def _tell_saved(self) -> None:
        for one in self._saver.take():
            headway.checkpoint_done(
                step=one.step,
                samples_seen=one.samples_seen,
                path=one.saved.path,
                manifest_sha256=one.saved.manifest_sha256,
                duration_s=one.duration_s,
            )
            self._say(f"checkpoint {one.saved.path} in {one.duration_s:.2f} s, {one.staging_s:.2f} s of it waiting")

    def _stop(self, orders: Orders) -> int:
        """The exit code says whether the scheduler ordered this; if only a signal did, the work is wanted still."""
        self._report(self._window.flush())
        if orders.stop_saves:
            self._save()
        self._finish_saving()
        if self._connected:
            headway.stopped(step=self._step, samples_seen=self._samples_seen)
        self._say(f"stopped at step {self._step}, {self._samples_seen} samples")
        return 0 if orders.stop_ordered else TERMINATED

    def _pace(self, configuration: Configuration) -> Pacer:
        environment = self._environment
        return Pacer(
            self._options.shape,
            configuration,
            environment.device_flops if environment else None,
            environment.link_bytes_per_second if environment else None,
        )

    def _report(self, summaries: list[StepSummary]) -> None:
        if self._rank != 0:
            return
        for one in summaries:
            peak = torch.cuda.max_memory_reserved() if self._device.type == "cuda" else None
            headway.report_steps(one, peak)
            noise = one.noise if self._options.noise == "raw" else one.preconditioned
            if noise is None:
                self._noise.skip(one.steps * one.configuration.global_batch)
            else:
                self._noise.add(noise, one.steps)
            scale = self._noise.scale()
            self._say(
                f"step {one.step} samples {one.samples_seen} loss {one.loss:.4f} batch {one.configuration.global_batch}"
                f" noise {'-' if scale is None else f'{scale:.1f}'} seq, {one.tokens / one.duration_s:.0f} tokens/s"
            )

    def _tell_phases(self) -> None:
        if self._rank == 0:
            headway.phases({name: round(seconds, 4) for name, seconds in self._phases.items()})
            self._say("started in " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in self._phases.items()))

    def _say(self, line: str) -> None:
        if self._rank == 0:
            print(line, flush=True)
