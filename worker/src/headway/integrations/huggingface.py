"""Hugging Face Transformers: a `Trainer` that reports its steps with their gradient noise, saves and stops as asked.

    trainer = Trainer(...)
    resume = headway.integrations.huggingface.follow(trainer, sequence_length=1024)
    trainer.train(resume_from_checkpoint=resume)

It listens to `training_step`, after whose last micro-batch the gradients are whole and not yet clipped, and through a
callback. Micro-batches whose losses are of differing numbers of labels are weighted by them. The Trainer's batch sizes
are its own arguments: give it the launch's. Models that Transformers shards at load time are measured under tensor
parallelism and FSDP2; experts, stages and sequences over ranks are refused.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

import headway
from headway import sdk
from headway.checkpoint import Draft
from headway.environment import Environment
from headway.integrations.huggingface_live import Live, LiveStep
from headway.integrations.refused import refuse_shares
from headway.torch import Asked, Ranks, ScaledLearningRate, StepReporter, UnknownLayout
from headway.torch.sizes import IGNORED

STATE = "trainer_state.json"


def follow(
    trainer: Trainer,
    sequence_length: int,
    every: int = 4,
    handle_sigterm: bool = True,
    batch: str = "restart",
    scale_learning_rate: bool = True,
) -> str | None:
    """Attaches Headway to a Trainer; returns the checkpoint to resume from. A no-op outside a Headway job.

    The Trainer's checkpoints become the job's; what the script itself writes (`save_model()`, metrics) stays in
    `output_dir`. `handle_sigterm`: see `headway.init`, which a script that has called it itself need not have repeated.

    `batch="live"`: micro-batch and accumulation follow the scheduler between steps, and the data follow `samples_seen`,
    over restarts too. Steps are then the Trainer's only measure, so it needs `max_steps`; ValueError names what else it
    cannot do. `scale_learning_rate`: each step is taken with the learning rate times the scheduler's factor; say False
    if the script multiplies by HEADWAY_LR_SCALE itself.

    Raises RuntimeError where it is attached to this Trainer already.
    """
    if any(isinstance(callback, _Callback) for callback in trainer.callback_handler.callbacks):
        raise RuntimeError("headway follows this Trainer already: each step would be counted twice")
    environment = headway.joined() or headway.init(batch=batch, layout="restart", handle_sigterm=handle_sigterm)
    if environment is None:
        return None
    refuse_shares("Trainer", environment)
    if sdk.promised_live_batch() and batch != "live":
        raise ValueError('headway.init promised a live batch: give follow batch="live", or init batch="restart"')
    if environment.checkpoint_dir is not None:
        # This generation's own directory; the Trainer adds checkpoint-<step>.
        home = f"{environment.checkpoint_dir}/g{environment.generation}"
        trainer._get_output_dir = lambda trial: home
    live = Live(trainer) if batch == "live" else None
    trainer.add_callback(_Callback(trainer, environment, sequence_length, every, live, scale_learning_rate))
    return environment.resume_path


class _Callback(TrainerCallback):  # type: ignore[misc]
    """One step: on_step_begin, training_step for each micro-batch, clipping, the optimizer, on_step_end, on_save."""

    def __init__(
        self,
        trainer: Trainer,
        environment: Environment,
        sequence_length: int,
        every: int,
        live: Live | None,
        scale_learning_rate: bool,
    ) -> None:
        self._trainer, self._environment, self._live = trainer, environment, live
        self._sequence_length, self._every = sequence_length, every
        self._scale_learning_rate = scale_learning_rate
        self._rate: ScaledLearningRate | None = None
        self._reporter: StepReporter | None = None
        self._asked = Asked()
        self._best: str | None = None
        self._loss: Tensor | None = None
        self._sequences: list[int] = []
        self._labels: list[Tensor] = []
        self._divisor: Tensor | int | None = None

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        optimizer: Any = None,
        **_: Any,
    ) -> None:
        """The model is wrapped and sharded by now. A script that trains a second time goes on counting samples."""
        earlier = self._reporter
        self._reporter = StepReporter(
            model,
            micro_batch=args.per_device_train_batch_size,
            sequence_length=self._sequence_length,
            ranks=_ranks(self._trainer),
            every=self._every,
        )
        self._reporter.step = state.global_step
        if earlier is None:
            self._trainer.training_step = self._listening(self._trainer.training_step)
        else:
            earlier.meter.close()
            self._reporter.samples_seen = earlier.samples_seen
        if self._live is not None:
            self._live.begin(self._reporter)
        elif earlier is None and state.global_step * _global_batch(self._trainer) != self._reporter.samples_seen:
            self._warn(
                f"{self._reporter.samples_seen} samples were seen before step {state.global_step}, and the Trainer"
                f" skips {state.global_step} steps of {_global_batch(self._trainer)}: its data go on elsewhere. Under"
                ' follow(batch="live") they follow the samples'
            )
        if self._rate is not None:
            self._rate.close()
        if self._scale_learning_rate:
            self._rate = ScaledLearningRate(_innermost(optimizer))

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._loss = self._divisor = None
        self._sequences.clear()
        self._labels.clear()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Every rank was told the same, so all save, stop and take another batch together."""
        if self._asked.configure is not None and self._live is not None:
            self._live.take(self._asked.configure.configuration)
            if self._rate is not None:
                self._rate.aim(self._asked.configure.lr_scale)
        control.should_save = control.should_save or self._asked.save
        control.should_training_stop = control.should_training_stop or self._asked.stop
        return control

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """The Trainer's directory becomes a checkpoint of the job, once every rank has written its part. The best
        model's directory is called otherwise from then on."""
        reporter = self._reporter
        if self._environment.checkpoint_dir is None or reporter is None:
            return
        draft = Draft(self._environment.checkpoint_dir, self._environment.generation, state.global_step)
        written = draft.final.parent / f"checkpoint-{state.global_step}"
        reporter.meter.sum_over_world([0.0])
        leads = state.is_world_process_zero
        stands = leads and reporter.save(lambda directory: _move(written, directory, draft.final))
        (saved,) = reporter.meter.sum_over_world([float(stands)])
        if state.best_model_checkpoint == str(written):
            state.best_model_checkpoint = str(draft.final) if saved else self._best
        self._best = state.best_model_checkpoint

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """A run that was told to stop ends here, before whatever the script does with a finished model."""
        if self._reporter is None:
            return
        self._reporter.finished()
        if self._asked.stop:
            sys.exit(self._reporter.stopped())

    def _listening(self, training_step: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Each micro-batch's share of the step's mean loss, its sequences, and how many labels its loss is of; the
        step's end after the last."""

        def one(model: Any, inputs: Any, items: Any = None) -> Tensor:
            self._note(inputs, items)
            loss = training_step(model, inputs, items)
            self._loss = loss if self._loss is None else self._loss + loss
            return loss

        def listening(model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
            if isinstance(inputs, LiveStep) and self._live is not None:
                loss = self._live.micro_batches(one, model, inputs, num_items_in_batch)
            else:
                loss = one(model, inputs, num_items_in_batch)
            if self._trainer.accelerator.sync_gradients:
                self._end_step()
            return loss

        return listening

    def _note(self, inputs: Any, items: Tensor | int | None) -> None:
        labels = inputs.get("shift_labels", inputs.get("labels")) if isinstance(inputs, Mapping) else None
        if isinstance(labels, Tensor):
            shifts = "shift_labels" not in inputs and getattr(self._trainer, "_loss_shifts_labels", True)
            self._sequences.append(len(labels))
            self._labels.append(((labels[..., 1:] if shifts else labels) != IGNORED).sum())
        self._divisor = items

    def _end_step(self) -> None:
        assert self._reporter is not None, "training has begun"
        trainer = self._trainer
        accumulation = trainer.current_gradient_accumulation_steps
        scaler = getattr(trainer.accelerator, "scaler", None)
        scale = scaler.get_scale() if scaler is not None else 1.0
        norm = None
        if trainer.is_deepspeed_enabled:  # it has clipped and stepped by now, and tells the norm before clipping
            told = trainer.model_wrapped.get_global_grad_norm()
            norm = 0.0 if told is None else float(told)
        sequences, tokens = None, None
        scales: float | list[float] = scale / accumulation
        if len(self._sequences) == accumulation:
            sequences = self._sequences
            if self._reporter.meter.measuring:
                tokens = torch.stack(self._labels).tolist()
                scales = self._scales(tokens, scale)
        self._asked = self._reporter.end_step(self._loss, accumulation, scales, norm, sequences, tokens)

    def _scales(self, tokens: list[int], scale: float) -> float | list[float]:
        """The factor on each micro-batch's mean loss: the Trainer sums losses and divides by all labels of the step
        where the model lets it, and means by the accumulation elsewhere."""
        divisor = 0.0 if self._divisor is None else float(self._divisor)
        if divisor == 0.0:
            return scale / len(tokens)
        trainer = self._trainer
        replicas = trainer.accelerator.num_processes // trainer.get_tp_size()
        factor = replicas if trainer.args.average_tokens_across_devices else 1
        return [scale * factor * each / divisor for each in tokens]

    def _warn(self, what: str) -> None:
        if self._trainer.is_world_process_zero():
            print(f"headway: {what}", file=sys.stderr, flush=True)


def _global_batch(trainer: Trainer) -> int:
    return int(trainer.get_total_train_batch_size(trainer.args))


def _innermost(optimizer: Any) -> Any:
    """The one whose steps PyTorch tells of, below the wrappers of Accelerate and DeepSpeed."""
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


def _ranks(trainer: Trainer) -> Ranks | None:
    """The groups of a model that Transformers has sharded at load time; None where all ranks are data-parallel."""
    layout = getattr(getattr(trainer.model, "config", None), "distributed_config", None)
    for name, wanted in {"ep_size": "expert", "pp_size": "pipeline"}.items():
        if (getattr(layout, name, None) or 1) > 1:
            raise UnknownLayout(f"the noise under {wanted} parallelism of Transformers ({name}) cannot be measured")
    # Transformers 4 knows neither.
    shared = (getattr(trainer, name, None) for name in ("get_cp_size", "get_sp_size"))
    if any(size is not None and size() > 1 for size in shared):
        raise UnknownLayout("the noise where ranks share a sequence (cp_size, sp_size) cannot be measured")
    return Ranks.of(trainer.accelerator.torch_device_mesh) if trainer.get_tp_size() > 1 else None


def _move(source: Path, target: Path, final: Path) -> None:
    """Within one file system, so that it costs nothing. The state names the best model by where it will lie."""
    for each in source.iterdir():
        each.rename(target / each.name)
    source.rmdir()
    state = json.loads((target / STATE).read_text())
    if state.get("best_model_checkpoint") == str(source):
        (target / STATE).write_text(json.dumps({**state, "best_model_checkpoint": str(final)}, indent=2) + "\n")
