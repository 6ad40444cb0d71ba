"""torchtitan: its trainer reports its steps with their gradient noise, saves and stops as asked, and its data go on.

    python -m headway.integrations.torchtitan --module llama3 --config llama3_8b ...      # -m torchtitan.train before

or, in a script of one's own, before the configuration is built:

    headway.integrations.torchtitan.follow()

Its loaders split a data set by the number of replicas, so their place means nothing to another number: here they are
read as streams (`torchtitan_streams`), the same in every layout. The end of a step is heard at the last
`forward_backward_step`, where the gradients are whole and not yet clipped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed
import torchtitan
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.tensor import DTensor
from torchtitan.components.checkpointer import DATALOADER, AsyncMode, CheckpointManager
from torchtitan.components.dataloader import DataloaderExhaustedError
from torchtitan.components.loss import IGNORE_INDEX, ChunkedLossWrapper
from torchtitan.trainer import Trainer

import headway
from headway import sdk
from headway.environment import Environment
from headway.integrations.refused import refuse, refuse_degrees, refuse_shares
from headway.integrations.torchtitan_gradients import Gradients, gradient_norm
from headway.integrations.torchtitan_streams import Streams
from headway.torch import Asked, Ranks, ScaledLearningRate, StepReporter

KNOWN = "0.3.0"
STREAMS = 64


def main() -> None:
    """torchtitan's own, followed."""
    from torchtitan.train import main as train

    parser = argparse.ArgumentParser(prog="headway.integrations.torchtitan", add_help=False, allow_abbrev=False)
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--noise-every", type=int, default=4)
    parser.add_argument("--batch", choices=["live", "restart"], default="restart")
    options, sys.argv[1:] = parser.parse_known_args()
    follow(streams=options.streams, every=options.noise_every, batch=options.batch)
    train()


def follow(
    streams: int = STREAMS,
    every: int = 4,
    batch: str = "restart",
    handle_sigterm: bool = True,
    scale_learning_rate: bool = True,
) -> None:
    """Attaches Headway to the next `Trainer` that is built. A no-op outside a Headway job.

    `streams`: in how many the data set is split at the job's first start; a multiple of every number of replicas costs
    nothing, others have documents tokenized more than once. `every`: the noise is measured at each so manieth step.
    `batch="live"`: micro-batch and accumulation follow the scheduler between steps, without pipeline parallelism.
    `scale_learning_rate`: each step is taken with the learning rate times the scheduler's factor.

    Raises RuntimeError for another torchtitan than is known here, or where one is followed already.
    """
    if torchtitan.__version__ != KNOWN:
        raise RuntimeError(
            f"headway follows torchtitan {KNOWN}, and this is {torchtitan.__version__}: install that one, or run it"
            " untouched by headway.watch (docs/adapters/torchtitan.md)"
        )
    if hasattr(Trainer.__init__, "headway"):
        raise RuntimeError("headway follows torchtitan already: each step would be counted twice")
    environment = headway.joined() or headway.init(batch=batch, layout="restart", handle_sigterm=handle_sigterm)
    if environment is None:
        return
    refuse_shares("torchtitan", environment)
    if sdk.promised_live_batch() and batch != "live":
        raise ValueError('headway.init promised a live batch: give follow batch="live", or init batch="restart"')
    build = Trainer.__init__

    def built(trainer: Trainer, config: Any) -> None:
        Trainer.__init__ = build
        following = _Following(trainer, environment, every, batch == "live", scale_learning_rate)
        following.look_at(config)
        config.dataloader = _Loader(config.dataloader, streams)
        build(trainer, config)
        following.attach()

    built.headway = True  # type: ignore[attr-defined]
    Trainer.__init__ = built


class _Following:
    """One trainer. A step is train_step (its data; forward_backward_step for each micro-batch, or for a pipeline's;
    clipping, the optimizer), its own checkpoint, validation, should_continue_training."""

    def __init__(
        self, trainer: Any, environment: Environment, every: int, live: bool, scale_learning_rate: bool
    ) -> None:
        self._trainer, self._environment, self._every = trainer, environment, every
        self._live, self._scale_learning_rate = live, scale_learning_rate
        self._reporter: StepReporter | None = None
        self._gradients: Gradients | None = None
        self._rates: list[ScaledLearningRate] = []
        self._asked = Asked()
        self._losses: list[Tensor] = []
        self._labels: list[Tensor] = []
        self._own_interval, self._interval = False, sys.maxsize
        self._finite, self._out_of_data = False, False

    def look_at(self, config: Any) -> None:
        """ValueError names what cannot be followed, before anything is built."""
        parallel, checkpoint = config.parallelism, config.checkpoint
        refused = {
            "a CUDA graph hides its gradients: give --training.disable_cuda_graphs": not (
                config.training.disable_cuda_graphs
            ),
            "only its own checkpoints in DCP's format can be the job's: give CheckpointManager.Config": not isinstance(
                checkpoint, CheckpointManager.Config
            ),
            "nothing could be saved: leave out --checkpoint.load_only": checkpoint.load_only,
            "a seed checkpoint is made without Headway": checkpoint.create_seed_checkpoint,
            "a live batch needs pipeline_parallel_degree 1: its schedule is built for one number of micro-batches": (
                self._live and parallel.pipeline_parallel_degree > 1
            ),
        }
        refuse("torchtitan", refused)
        refuse_degrees("torchtitan", parallel, "context_parallel_degree", "expert_parallel_degree")
        self._finite = not getattr(config.dataloader, "infinite", False)
        if self._environment.checkpoint_dir is not None or self._environment.resume_path is not None:
            # Its own interval counts only where its author wanted one.
            self._own_interval, checkpoint.enable = checkpoint.enable, True

    def attach(self) -> None:
        """The model is parallelised, and no checkpoint is loaded yet."""
        trainer = self._trainer
        for name in ("forward_backward_step", "train_step", "should_continue_training", "train"):
            setattr(trainer, name, getattr(self, f"_{name}")(getattr(trainer, name)))
        if trainer.config.validator.enable:
            due = trainer.validator.should_validate
            trainer.validator.should_validate = lambda step: due(step) and not self._asked.stop
        checkpointer = trainer.checkpointer
        if self._environment.checkpoint_dir is not None:
            # What it saves between become the job's checkpoints, and only the last stays its own.
            self._interval = checkpointer.interval if self._own_interval else sys.maxsize
            checkpointer.interval = sys.maxsize
        if self._environment.resume_path is not None:
            self._resume(checkpointer, Path(self._environment.resume_path))

    def _resume(self, checkpointer: Any, saved: Path) -> None:
        """From the job's checkpoint, wherever its own folder is."""
        load, folder = checkpointer.load, checkpointer.folder
        checkpointer.exclude_from_loading = []  # said for the run's beginning
        steps = list(saved.glob("step-*"))
        if not steps or f"{DATALOADER}.states" not in FileSystemReader(steps[0]).read_metadata().state_dict_metadata:
            raise RuntimeError(f"{saved} has no place of the data as headway.integrations.torchtitan saves it")

        def loading(*_: Any, **__: Any) -> bool:
            checkpointer.folder = str(saved)
            found = load()
            checkpointer.folder = folder
            if not found:
                raise RuntimeError(f"torchtitan finds no checkpoint in {saved}, which the job is to go on from")
            return True

        checkpointer.load = loading

    def _begin(self) -> StepReporter:
        """At the first step: the checkpoint is loaded."""
        trainer = self._trainer
        data: Streams = trainer.dataloader
        ranks, loss = _ranks(trainer.parallel_dims), trainer.loss_fn
        chunked = isinstance(loss, ChunkedLossWrapper)
        head, chunks = (loss.lm_head, loss.num_chunks) if chunked else (None, 1)
        self._gradients = Gradients(trainer.model_parts, ranks.tensor, head, chunks)
        reporter = StepReporter(
            *trainer.model_parts,
            micro_batch=data.micro_batch,
            sequence_length=trainer.config.training.seq_len,
            ranks=ranks,
            every=self._every,
        )
        if self._environment.resume_path is not None and trainer.step != self._environment.resume_step:
            raise RuntimeError(f"torchtitan is at step {trainer.step}, and the job at {self._environment.resume_step}")
        reporter.step, reporter.samples_seen = trainer.step, data.samples_seen
        self._gradients.attach(reporter.meter)
        if trainer.parallel_dims.pp_enabled:
            # Before the first step PyTorch runs a micro-batch to learn the shapes, backward through the loss included.
            prepare = trainer.pp_schedule._initialize_pp_stages
            trainer.pp_schedule._initialize_pp_stages = self._gradients.deaf_to(prepare)
        if self._scale_learning_rate:
            self._rates = [ScaledLearningRate(each) for each in trainer.optimizers.optimizers]
        return reporter

    def _train_step(self, train_step: Callable[[Any], None]) -> Callable[[Any], None]:
        """Replicas whose data end do so together, and what is asked is saved before a validation, which may be long.
        Every rank was told the same, so all save."""

        def stepping(batches: Any) -> None:
            trainer, reporter = self._trainer, self._reporter
            assert reporter is not None, "training has begun"
            train_step(iter(self._draw(batches, reporter)) if self._finite else batches)
            if reporter.step != trainer.step:
                raise RuntimeError(f"torchtitan is at step {trainer.step} after {reporter.step} steps were heard")
            goes_on = trainer.step < trainer.config.training.steps and not self._asked.stop
            if self._asked.save or (goes_on and trainer.step % self._interval == 0):
                reporter.save_together(self._write)

        return stepping

    def _draw(self, batches: Any, reporter: StepReporter) -> list[Any]:
        trainer = self._trainer
        count = trainer.gradient_accumulation_steps * trainer.num_pipeline_parallel_microbatches
        try:
            drawn: list[Any] = trainer.dataloader.draw(
                batches,
                count,
                lambda over: reporter.meter.sum_over_world([float(over)])[0] > 0.0,
                DataloaderExhaustedError,
            )
        except DataloaderExhaustedError:
            self._out_of_data = True
            raise
        return drawn

    def _should_continue_training(self, should_continue: Callable[[], bool]) -> Callable[[], bool]:
        """Between steps. Every rank was told the same, so all stop and take another batch together."""

        def between() -> bool:
            if self._reporter is None:
                self._reporter = self._begin()
            elif self._asked.configure is not None and self._live:
                self._take(self._asked.configure)
            return should_continue() and not self._asked.stop

        return between

    def _take(self, asked: headway.Configure) -> None:
        """Another batch from the next step on."""
        accumulation = asked.configuration.accumulation()
        assert accumulation is not None, "the reporter passes on what divides"
        self._trainer.dataloader.micro_batch = asked.configuration.micro_batch
        self._trainer.gradient_accumulation_steps = accumulation
        for rate in self._rates:
            rate.aim(asked.lr_scale)

    def _train(self, train: Callable[[], None]) -> Callable[[], None]:
        """A run that was told to stop ends here, by SystemExit, before what the script does with a finished model."""

        def training() -> None:
            train()
            if self._reporter is None:
                return
            if self._out_of_data:  # torchtitan saves its last step only where training.steps are reached
                self._trainer.step = self._reporter.step  # one was begun
                self._trainer.checkpointer.save(self._trainer.step, last_step=True)
            self._reporter.finished()
            if self._asked.stop:
                code = self._reporter.stopped()
                self._trainer.close()
                torch.distributed.destroy_process_group()
                sys.exit(code)

        return training

    def _forward_backward_step(self, step: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def listening(*, input_dict: Any, labels: Any, global_valid_tokens: Tensor) -> Tensor:
            self._labels += labels if isinstance(labels, list) else [labels]
            loss = step(input_dict=input_dict, labels=labels, global_valid_tokens=global_valid_tokens)
            self._losses.append(loss.detach())
            if len(self._losses) == self._trainer.gradient_accumulation_steps:
                self._end_step(global_valid_tokens)
                self._losses.clear()
                self._labels.clear()
            return loss

        return listening

    def _end_step(self, of_all: Tensor) -> None:
        """Each loss is a sum over tokens divided by the step's, of all replicas; so are the gradients, which are summed
        over replicas and not averaged."""
        trainer, reporter, gradients = self._trainer, self._reporter, self._gradients
        assert reporter is not None and gradients is not None, "training has begun"
        loss = None
        if not trainer.parallel_dims.pp_enabled or trainer.pp_has_last_stage:
            loss = float(torch.stack([_whole(each) for each in self._losses]).sum()) * reporter.meter.ranks.replicas
        tokens, norm = None, None
        scales: float | list[float] = 1.0
        if reporter.meter.measuring:
            tokens = torch.stack([(each != IGNORE_INDEX).sum() for each in self._labels]).tolist()
            scales = [each / float(of_all) for each in tokens]
            norm = gradient_norm(reporter.meter)
            gradients.end_step(len(self._labels))
        self._asked = reporter.end_step(loss, len(self._labels), scales, norm, tokens=tokens)
        if reporter.samples_seen != trainer.dataloader.samples_seen:
            raise RuntimeError(
                f"{trainer.dataloader.samples_seen} samples were read, and {reporter.samples_seen} told, by step"
                f" {reporter.step}: another batch was trained on than the scheduler knows of"
            )

    def _write(self, directory: Path) -> None:
        """This rank's part of a checkpoint, as torchtitan writes it."""
        trainer, checkpointer = self._trainer, self._trainer.checkpointer
        checkpointer.maybe_wait_for_saving()
        try:
            checkpointer.dcp_save(
                checkpointer._flattened_model_states_sd(),
                checkpoint_id=str(directory / f"step-{trainer.step}"),
                async_mode=AsyncMode.DISABLED,
                enable_garbage_collection=True,
            )
        except CheckpointException as error:  # no Exception
            raise RuntimeError(str(error)) from error


class _Loader:
    """In place of a loader's configuration: what it builds is read in streams."""

    def __init__(self, config: Any, streams: int) -> None:
        self._config, self._streams = config, streams
        if getattr(config, "num_workers", 0) and streams > 1:
            raise ValueError(f"{streams} streams cannot each have workers: give --dataloader.num_workers 0")

    def to_dict(self) -> dict[str, Any]:
        """For torchtitan's print of its configuration."""
        told: dict[str, Any] = self._config.to_dict()
        return told

    def build(self, *, dp_world_size: int, dp_rank: int, local_batch_size: int, **more: Any) -> Streams:
        more.pop("snapshot_every_n_steps", None)

        def open_stream(stream: int, streams: int) -> Any:
            return _one(self._config.build(dp_world_size=streams, dp_rank=stream, local_batch_size=1, **more))

        def gather(own: dict[int, bytes]) -> list[dict[int, bytes]]:
            if not torch.distributed.is_initialized():
                return [own]
            given: list[Any] = [None] * torch.distributed.get_world_size()
            torch.distributed.all_gather_object(given, own)
            return given

        return Streams(
            open_stream,
            self._streams,
            micro_batch=local_batch_size,
            replica=dp_rank,
            replicas=dp_world_size,
            gather=gather,
        )


def _one(loader: Any) -> Any:
    """ParallelAwareDataloader keeps its state under its rank's name, and reads it there."""
    documents = getattr(getattr(loader, "dataset", None), "_original_data", None)
    if documents is not None and hasattr(documents, "__len__") and len(documents) == 0:
        raise ValueError("the data set has fewer documents than streams: give fewer --streams")
    return loader


def _ranks(dimensions: Any) -> Ranks:
    meshes = [dimensions.get_optional_mesh(name) for name in ("batch", "tp", "pp")]
    return Ranks(*(None if mesh is None else mesh.get_group() for mesh in meshes))


def _whole(value: Tensor) -> Tensor:
    return value.full_tensor() if isinstance(value, DTensor) else value


if __name__ == "__main__":
    main()
