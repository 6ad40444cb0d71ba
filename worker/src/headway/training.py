"""One rank of the reference trainer: the data-parallel loop, what it reports and how it follows the scheduler.

All ranks act at the same step: what a rank was asked rides in the step's own small all-reduce, and takes effect after
it.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import math
import os
import sys
import time
from dataclasses import dataclass

import torch
import torch.distributed

import headway
from headway import checkpoint
from headway.data import Corpus
from headway.environment import Environment
from headway.launch import TERMINATED, Termination
from headway.message import Configuration, Layout
from headway.model import Decoder
from headway.noise import NoiseAverage
from headway.optimizer import FlatAdamW
from headway.pacing import Pacer
from headway.torch import GradientAccumulator, Reduced
from headway.window import StepSummary, StepWindow

REWARM_STEPS = 10
EVALUATED = 256
NOISE_HORIZON = 4096.0
CANNOT_RUN, DIVERGED = 2, 3


class CannotRun(Exception):
    """The job as configured makes no sense for this trainer."""


def read_corpus(options: argparse.Namespace) -> Corpus:
    """Before the fork, so that the ranks of a node share its pages."""
    return Corpus.read(options.corpus, options.seq_len)


def run(options: argparse.Namespace, corpus: Corpus, termination: Termination, import_s: float) -> int:
    """A rank's life, from rendezvous to exit code."""
    try:
        return _Training(options, corpus, termination, import_s).run()
    except (CannotRun, checkpoint.CheckpointError) as error:
        print(f"cannot train: {error}", file=sys.stderr, flush=True)
        return CANNOT_RUN
    finally:
        headway.close()


@dataclass
class _Asked:
    """What the scheduler (or a signal) asked this rank since the last step."""

    stop: bool = False
    stop_ordered: bool = False
    stop_saves: bool = False
    save: bool = False
    configure: headway.Configure | None = None

    def encode(self) -> list[float]:
        """Summed over ranks; only rank 0 fills in the configuration, so the sum is its value."""
        flags = [float(flag) for flag in (self.stop, self.stop_ordered, self.stop_saves, self.save)]
        if self.configure is None:
            return [*flags, 0.0, 0.0, 0.0]
        configuration = self.configure.configuration
        return [*flags, float(configuration.micro_batch), float(configuration.global_batch), self.configure.lr_scale]


class _LearningRate:
    """The base rate times the batch's factor, re-warmed over a few steps when that changes; warmed up at the start."""

    def __init__(self, base: float, warmup_steps: int, scale: float) -> None:
        self._base, self._warmup_steps = base, warmup_steps
        self._scale = self._target = scale
        self._left = 0

    def aim(self, scale: float) -> None:
        if scale != self._target:
            self._target, self._left = scale, REWARM_STEPS

    def next(self, step: int) -> float:
        """For the step after `step` finished ones."""
        if self._left:
            self._scale += (self._target - self._scale) / self._left
            self._left -= 1
        return self._base * self._scale * min(1.0, (step + 1) / max(1, self._warmup_steps))

    def state(self) -> dict[str, float]:
        return {"scale": self._scale, "target": self._target, "left": self._left}

    def load(self, state: dict[str, float]) -> None:
        self._scale, self._target, self._left = state["scale"], state["target"], int(state["left"])


class _Training:
    def __init__(self, options: argparse.Namespace, corpus: Corpus, termination: Termination, import_s: float) -> None:
        began = time.monotonic()
        self._options, self._corpus, self._termination = options, corpus, termination
        self._rank, self._world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self._environment = Environment.read(os.environ)
        self._configuration = self._first_configuration()
        # Every rank tells how long it works. Each node's first rank also hears what the agent asks; only rank 0 reports
        # and takes configurations.
        self._connected = os.environ.get("LOCAL_RANK", "0") == "0"
        headway.init(batch="live", layout="restart", handle_sigterm=False)
        if self._connected:
            headway.poll()
        emulated = self._environment is not None and self._environment.device_flops is not None
        self._device = _device(options.device, emulated)
        _rendezvous(self._rank, self._world, self._device)
        joined = time.monotonic()

        model = Decoder(options.shape, options.seed).to(self._device)
        names = [name for name, _ in model.named_parameters()]
        self._model = model
        self._gradients = GradientAccumulator(model.parameters())
        self._optimizer = FlatAdamW(names, self._gradients, weight_decay=options.weight_decay)
        scale = self._environment.lr_scale if self._environment else 1.0
        self._learning_rate = _LearningRate(options.lr, options.warmup_steps, scale)
        self._step, self._samples_seen = 0, 0
        self._resume()
        self._learning_rate.aim(scale)
        self._pacer = Pacer(
            options.shape,
            self._world,
            self._environment.device_flops if self._environment else None,
            self._environment.link_bytes_per_second if self._environment else None,
        )
        self._window = StepWindow(options.report_every)
        self._noise = NoiseAverage(NOISE_HORIZON)
        self._saved_at = time.monotonic()
        self._phases = {"import": import_s, "rendezvous": joined - began, "load": self._saved_at - joined}

    def run(self) -> int:
        """Steps until the samples are used up, someone asks to stop, or the loss breaks."""
        self._say(f"model of {self._options.shape.parameters()} parameters, {self._configuration}")
        first = time.monotonic()
        while self._samples_seen < self._options.max_samples:
            reduced = self._train_step()
            if reduced is None:
                self._report(self._window.flush())
                print(f"training has diverged after step {self._step}", file=sys.stderr, flush=True)
                return DIVERGED
            if "first_step" not in self._phases:
                self._phases["first_step"] = time.monotonic() - first
                self._tell_phases()
            stop, ordered, stop_saves, save, micro_batch, global_batch, lr_scale = reduced.extra
            if stop:
                return self._stop(ordered=ordered > 0, saving=stop_saves > 0)
            if save:
                self._save()
            if global_batch:
                self._configuration = Configuration(Layout(self._world), int(micro_batch), int(global_batch))
                self._learning_rate.aim(lr_scale)
                self._say(f"now {self._configuration}, learning rate x {lr_scale:g}")
        self._report(self._window.flush())
        if not self._save():
            return 1
        if self._rank == 0:
            self._say(f"complete: evaluation loss {self._evaluate():.4f} after {self._samples_seen} samples")
        return 0

    def _train_step(self) -> Reduced | None:
        """One optimizer step; None, with nothing changed, if loss or gradient is no finite number on any rank."""
        started = time.monotonic()
        configuration = self._configuration
        self._micro_batches(configuration)
        reducing = time.monotonic()
        headway.busy(reducing - started)
        reduced = self._gradients.reduce(configuration.micro_batch, self._poll().encode())
        self._pacer.after_reduce(reducing)
        if not (math.isfinite(reduced.loss) and math.isfinite(reduced.gradient_sqr)):
            return None
        self._gradients.clip(reduced, self._options.clip)
        self._optimizer.step(self._learning_rate.next(self._step))
        self._gradients.clear()
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
        )
        self._report(self._window.add(summary))
        return reduced

    def _micro_batches(self, configuration: Configuration) -> None:
        """This rank's share of the step's samples: consecutive micro-batches of the global order."""
        micro_batch, accumulation = configuration.micro_batch, configuration.accumulation()
        assert accumulation is not None, "checked when the configuration was taken"
        first = self._samples_seen + self._rank * accumulation * micro_batch
        for start in range(first, first + accumulation * micro_batch, micro_batch):
            began = time.monotonic()
            tokens = self._tokens([self._corpus.sample(index) for index in range(start, start + micro_batch)])
            with self._precision():
                loss = self._model.loss(tokens)
            loss.backward()  # type: ignore[no-untyped-call]
            self._gradients.end_micro_batch(loss)
            self._pacer.after_micro_batch(began, micro_batch)

    def _poll(self) -> _Asked:
        """Everything asked of this rank since the last step."""
        asked = _Asked()
        if self._termination.requested:
            asked.stop = asked.stop_saves = True
        if not self._connected:
            return asked
        while (directive := headway.poll()) is not None:
            match directive:
                case headway.Stop(checkpoint=saves):
                    asked.stop = asked.stop_ordered = True
                    asked.stop_saves = asked.stop_saves or saves
                case headway.Checkpoint():
                    asked.save = True
                case headway.Configure() if self._rank == 0 and self._can_follow(directive.configuration):
                    asked.configure = directive
        every = self._environment.checkpoint_every_s if self._environment else None
        if self._rank == 0 and every and time.monotonic() - self._saved_at >= every:
            asked.save = True
        return asked

    def _can_follow(self, configuration: Configuration) -> bool:
        """A layout change comes as a new generation; a batch that does not divide is a mistake of the sender."""
        good = configuration.layout == Layout(self._world) and configuration.accumulation() is not None
        if not good:
            print(f"ignored an impossible {configuration}", file=sys.stderr, flush=True)
        return good

    def _first_configuration(self) -> Configuration:
        launched = self._environment.configuration if self._environment else None
        options = self._options
        configuration = launched or Configuration(Layout(self._world), options.micro_batch, options.global_batch)
        if configuration.layout != Layout(self._world):
            raise CannotRun(f"{configuration.layout} on {self._world} ranks: this trainer is data-parallel only")
        if configuration.accumulation() is None:
            raise CannotRun(f"{configuration} does not divide")
        return configuration

    def _resume(self) -> None:
        environment = self._environment
        if environment is None or environment.resume_path is None:
            return
        loaded = checkpoint.load(environment.resume_path)
        if loaded.samples_seen != environment.samples_seen:
            raise checkpoint.CheckpointError(
                f"{environment.resume_path} holds {loaded.samples_seen} samples, not {environment.samples_seen}"
            )
        self._model.load_state_dict(loaded.states["model"])
        self._optimizer.load(loaded.states["optimizer"])
        self._learning_rate.load(loaded.states["learning_rate"])
        self._step, self._samples_seen = loaded.step, loaded.samples_seen
        self._say(f"resumed step {loaded.step}, {loaded.samples_seen} samples, from {environment.resume_path}")

    def _save(self) -> bool:
        """On rank 0 only; the others meet it in the next all-reduce. False if it failed, which ends no training."""
        environment = self._environment
        if self._rank != 0 or environment is None or environment.checkpoint_dir is None:
            return True
        began = time.monotonic()
        states = {
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state(),
            "learning_rate": self._learning_rate.state(),
        }
        try:
            saved = checkpoint.save(
                environment.checkpoint_dir,
                environment.job_id,
                environment.generation,
                self._step,
                self._samples_seen,
                states,
            )
        except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
            print(f"checkpoint at step {self._step} failed: {error}", file=sys.stderr, flush=True)
            return False
        finally:
            self._saved_at = time.monotonic()
        headway.checkpoint_done(
            step=self._step,
            samples_seen=self._samples_seen,
            path=saved.path,
            manifest_sha256=saved.manifest_sha256,
            duration_s=self._saved_at - began,
        )
        self._say(f"checkpoint {saved.path} in {self._saved_at - began:.2f} s")
        return True

    def _stop(self, ordered: bool, saving: bool) -> int:
        """The exit code says whether the scheduler ordered this; if only a signal did, the work is wanted still."""
        self._report(self._window.flush())
        if saving:
            self._save()
        if self._connected:
            headway.stopped(step=self._step, samples_seen=self._samples_seen)
        self._say(f"stopped at step {self._step}, {self._samples_seen} samples")
        return 0 if ordered else TERMINATED

    @torch.no_grad()
    def _evaluate(self) -> float:
        """Mean loss on held-out text."""
        losses = []
        for start in range(0, EVALUATED, 32):
            tokens = self._tokens([self._corpus.held_out_sample(index) for index in range(start, start + 32)])
            with self._precision():
                losses.append(self._model.loss(tokens).item())
        return sum(losses) / len(losses)

    def _tokens(self, samples: list[bytes]) -> torch.Tensor:
        flat = torch.frombuffer(bytearray(b"".join(samples)), dtype=torch.uint8)
        return flat.view(len(samples), -1).to(self._device, torch.long)

    def _precision(self) -> contextlib.AbstractContextManager[object]:
        if self._options.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, dtype=torch.bfloat16)

    def _report(self, summaries: list[StepSummary]) -> None:
        if self._rank != 0:
            return
        for one in summaries:
            headway.report(
                step=one.step,
                steps=one.steps,
                samples_seen=one.samples_seen,
                tokens=one.tokens,
                duration_s=one.duration_s,
                configuration=one.configuration,
                loss=one.loss,
                noise=one.noise,
            )
            if one.noise is not None:
                self._noise.add(one.noise, one.steps)
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


def _device(wanted: str, emulated: bool) -> torch.device:
    """An emulated device is a CPU slot even where GPUs exist."""
    if wanted == "cpu" or emulated or (wanted == "auto" and not torch.cuda.is_available()):
        torch.set_num_threads(1)
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def _rendezvous(rank: int, world: int, device: torch.device) -> None:
    """Joins the gang; alone there is nobody to meet."""
    if world == 1:
        return
    if os.environ.setdefault("MASTER_ADDR", "127.0.0.1") in ("127.0.0.1", "localhost"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("MASTER_PORT", "29500")
    torch.distributed.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        rank=rank,
        world_size=world,
        timeout=datetime.timedelta(seconds=120),
    )
