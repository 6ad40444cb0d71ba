"""One rank of the κ probe: reads a checkpoint, stages the state in memory once, and trains a branch per batch from it.

Only reads from the job's checkpoint directory. All ranks do the same at the same step; rank 0 tells the outcome.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from dataclasses import dataclass, replace

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
from headway.pacing import Pacer
from headway.parallel import Parallel
from headway.parts import CannotRun, check
from headway.probe.critical import (
    LEAST_STEPS,
    Branch,
    Noise,
    factors,
    judge,
    learning_rate_factor,
    table,
    to_json,
    usable_noise,
)
from headway.probe.told import write_json
from headway.stepping import mean_gradient
from headway.tiles import restore, staged
from headway.training import CANNOT_RUN, EVALUATED, recipe_of


def run(options: argparse.Namespace, corpus: Corpus, termination: Termination) -> int:
    """A rank's life, from rendezvous to exit code."""
    try:
        return _Probe(options, corpus, termination).run()
    except (CannotRun, CheckpointError) as error:
        print(f"cannot probe: {error}", file=sys.stderr, flush=True)
        return CANNOT_RUN


@dataclass(frozen=True)
class _Start:
    """Where every branch begins."""

    samples_seen: int
    step: int
    scale: float
    """What the job's learning rate was multiplied with, for its batch."""


class _Terminated(Exception):
    pass


class _Probe:
    def __init__(self, options: argparse.Namespace, corpus: Corpus, termination: Termination) -> None:
        self._options, self._termination = options, termination
        self._rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        environment = Environment.read(os.environ)
        self._baseline = first_configuration(options, environment, world)
        self._factors = factors(options.limit)
        for k in self._factors:
            check(options.shape, self._branched(k), world)
        self._samples = self._budget()
        device = device_of(options.device, environment is not None and environment.device_flops is not None)
        join(device)
        control = control_group(device)
        self._batches = Batches(corpus, device)
        # Emulated time would only be waited for: κ does not depend on it.
        self._pacer = Pacer(options.shape, self._baseline, None, None)
        # A branch has few steps: each is measured.
        recipe = replace(recipe_of(options), noise_every=1)
        self._parallel = Parallel(recipe, self._baseline, Gangs(device).of(self._baseline.layout))
        manifest = resume.verified(options.checkpoint, control)
        state = resume.fill(options.checkpoint, self._parallel, options.shape, control)
        self._start = _Start(manifest.samples_seen, manifest.step, float(state["learning_rate"]["target"]))
        self._held = staged(self._parallel.tiles())
        self._optimizer_steps = self._parallel.optimizer_steps

    def run(self) -> int:
        seq_len = self._options.seq_len
        self._say(
            f"branching at step {self._start.step}, {self._start.samples_seen} samples: {len(self._factors)} branches "
            f"of {self._samples} samples, {self._samples * seq_len} tokens each"
        )
        branches, noise = [], Noise(None, None)
        try:
            for k in self._factors:
                branch, measured = self._branch(k)
                branches.append(branch)
                if k == 1:
                    noise = measured
                    if math.isinf(branch.loss):
                        raise CannotRun("the baseline itself diverges")
        except _Terminated:
            return TERMINATED
        held_out = self._options.judge_by == "held-out"
        judgement = judge(branches, noise, self._options.tolerance, seq_len, held_out)
        if self._rank == 0:
            print(table(branches, judgement))
            print(f"accepted up to a loss ({self._options.judge_by}) of {judgement.bar:.4f}")
            if noise.tokens is not None:
                print(f"φ = {noise.tokens:.4g} ± {noise.standard_error:.2g} tokens along the baseline")
            for each in judgement.warnings:
                print(f"warning: {each}")
            print(judgement.line(), flush=True)
            write_json(self._options.json, to_json(branches, noise, judgement))
        return 0

    def _branch(self, k: int) -> tuple[Branch, Noise]:
        """Trains one branch from the start; also the noise scale measured along it."""
        restore(self._held, self._parallel.tiles())
        self._parallel.optimizer_steps = self._optimizer_steps
        configuration = self._branched(k)
        self._parallel.configure(configuration)
        factor = learning_rate_factor(self._options.lr_scaling, k)
        schedule = LearningRate(self._options.lr, self._options.warmup_steps, self._start.scale * factor)
        average, measured = NoiseAverage(float(self._samples)), 0
        losses: list[float] = []
        rate = 0.0
        for done in range(0, self._samples, configuration.global_batch):
            reduced = mean_gradient(
                self._parallel, self._batches, self._start.samples_seen + done, self._pacer, self._ask
            )
            if reduced is None:
                self._parallel.gradients.clear()
                losses.append(math.inf)
                break
            if reduced.extra[0] > 0.0:
                raise _Terminated
            # By samples, not by its own steps: a warm-up that goes on is as far in every branch.
            rate = schedule.next(self._start.step + done // self._baseline.global_batch)
            self._parallel.update(reduced, rate)
            losses.append(reduced.loss)
            sample = reduced.noise if self._options.noise == "raw" else reduced.preconditioned
            if sample is not None and sample.is_finite():
                average.add(sample)
                measured += 1
            else:
                average.skip(configuration.global_batch)
        diverged = math.isinf(losses[-1])
        evaluation = None if diverged else self._parallel.evaluate(self._batches.held_out, EVALUATED)
        branch = Branch.of(k, configuration.global_batch, rate, losses, evaluation)
        self._say(f"k = {k}: loss {branch.loss:.4f} after {branch.steps} steps")
        estimate = average.estimate()
        sequences, error = (estimate.sequences, estimate.standard_error) if estimate else (None, None)
        return branch, usable_noise(sequences, error, measured, self._options.seq_len)

    def _ask(self, _: float) -> list[float]:
        return [float(self._termination.requested)]

    def _branched(self, k: int) -> Configuration:
        base = self._baseline
        return Configuration(base.layout, base.micro_batch, k * base.global_batch, base.execution)

    def _budget(self) -> int:
        """Samples of a branch: whole steps of the largest batch, so that all branches see the same."""
        largest = self._factors[-1] * self._baseline.global_batch
        steps = int(self._options.tokens / self._options.seq_len) // largest
        if steps < LEAST_STEPS:
            needed = LEAST_STEPS * largest * self._options.seq_len
            raise CannotRun(
                f"{steps} steps of {largest} sequences say nothing: --tokens must be at least {needed}, "
                "or --limit lower"
            )
        return steps * largest

    def _say(self, line: str) -> None:
        if self._rank == 0:
            print(line, flush=True)
