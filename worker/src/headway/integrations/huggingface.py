"""Hugging Face Transformers: a `Trainer` that reports its steps with their gradient noise, saves and stops as asked.

    trainer = Trainer(...)
    resume = headway.integrations.huggingface.follow(trainer, sequence_length=1024)
    trainer.train(resume_from_checkpoint=resume)

It listens through Accelerate's gradient clipping, which the Trainer calls at each step while the gradients are still
whole, and through a callback. Gradients over several device meshes (tensor parallelism) are clipped elsewhere; such a
step is reported without its noise. Micro-batches whose losses are of differing numbers of labels are weighted by them.
The Trainer's batch sizes are its own arguments: give it the launch's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

import headway
from headway.torch import Asked, StepReporter
from headway.torch.sizes import IGNORED


def follow(trainer: Trainer, sequence_length: int, every: int = 4, handle_sigterm: bool = True) -> str | None:
    """Attaches Headway to a Trainer; returns the checkpoint to resume from. A no-op outside a Headway job.

    `handle_sigterm`: see `headway.init`, which a script that has called it itself need not have repeated.

    Raises RuntimeError where it is attached to this Trainer already.
    """
    if any(isinstance(callback, _Callback) for callback in trainer.callback_handler.callbacks):
        raise RuntimeError("headway follows this Trainer already: each step would be counted twice")
    environment = headway.joined() or headway.init(batch="restart", layout="restart", handle_sigterm=handle_sigterm)
    if environment is None:
        return None
    if environment.checkpoint_dir is not None:
        # This generation's own directory; the Trainer adds checkpoint-<step>.
        trainer.args.output_dir = f"{environment.checkpoint_dir}/g{environment.generation}"
    trainer.add_callback(_Callback(trainer, sequence_length, every))
    return environment.resume_path


class _Callback(TrainerCallback):  # type: ignore[misc]
    """One step: training_step for each micro-batch, clipping, the optimizer, on_step_end, on_save."""

    def __init__(self, trainer: Trainer, sequence_length: int, every: int) -> None:
        self._trainer = trainer
        self._sequence_length, self._every = sequence_length, every
        self._reporter: StepReporter | None = None
        self._asked = Asked()
        self._loss: Tensor | None = None
        self._sequences: list[int] = []
        self._labels: list[Tensor] = []
        self._divisor: Tensor | int | None = None
        self._measured = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        """The model is wrapped and sharded by now."""
        self._reporter = StepReporter(
            model,
            micro_batch=args.per_device_train_batch_size,
            sequence_length=self._sequence_length,
            every=self._every,
        )
        self._reporter.step = state.global_step
        self._trainer.training_step = self._noting_each(self._trainer.training_step)  # type: ignore[method-assign]
        accelerator = self._trainer.accelerator
        accelerator.clip_grad_norm_ = self._measuring_first(accelerator.clip_grad_norm_)

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._loss, self._divisor, self._measured = None, None, False
        self._sequences.clear()
        self._labels.clear()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if not self._measured:
            self._end_step(gradient_norm=0.0)  # clipped already, so there is nothing to measure

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Every rank was told the same, so all save and stop together."""
        control.should_save = control.should_save or self._asked.save
        control.should_training_stop = control.should_training_stop or self._asked.stop
        return control

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """The Trainer's directory becomes a checkpoint of the job, once every rank has written its part."""
        environment, reporter = headway.joined(), self._reporter
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
        if environment is None or environment.checkpoint_dir is None or reporter is None:
            return
        if not state.is_world_process_zero:
            return
        written = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        reporter.save(lambda directory: _move(written, directory))

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """A run that was told to stop ends here, before whatever the script does with a finished model."""
        if self._reporter is None:
            return
        self._reporter.finished()
        if self._asked.stop:
            sys.exit(self._reporter.stopped())

    def _noting_each(self, training_step: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Each micro-batch's share of the step's mean loss, its sequences, and how many labels its loss is of."""

        def noting(model: Any, inputs: Any, divisor: Tensor | int | None = None, *more: Any) -> Tensor:
            labels = inputs.get("shift_labels", inputs.get("labels"))
            if isinstance(labels, Tensor):
                shifts = "shift_labels" not in inputs and getattr(self._trainer, "_loss_shifts_labels", True)
                self._sequences.append(len(labels))
                self._labels.append(((labels[..., 1:] if shifts else labels) != IGNORED).sum())
            self._divisor = divisor
            loss = training_step(model, inputs, divisor, *more)
            self._loss = loss if self._loss is None else self._loss + loss
            return loss

        return noting

    def _measuring_first(self, clip: Callable[..., Any]) -> Callable[..., Any]:
        """Before the gradients are unscaled and clipped. The Trainer may clip without limit to learn the norm."""

        def measuring(*arguments: Any, **keywords: Any) -> Any:
            if self._measured:
                return clip(*arguments, **keywords)
            if self._trainer.is_deepspeed_enabled:
                norm = clip(*arguments, **keywords)
                self._end_step(gradient_norm=float(norm))
                return norm
            self._end_step()
            return clip(*arguments, **keywords)

        return measuring

    def _end_step(self, gradient_norm: float | None = None) -> None:
        assert self._reporter is not None, "training has begun"
        accumulation = self._trainer.current_gradient_accumulation_steps
        scaler = getattr(self._trainer.accelerator, "scaler", None)
        scale = scaler.get_scale() if scaler is not None else 1.0
        sequences, tokens = None, None
        scales: float | list[float] = scale / accumulation
        if len(self._sequences) == accumulation:
            sequences = self._sequences
            if self._reporter.meter.measuring:
                tokens = torch.stack(self._labels).tolist()
                scales = self._scales(tokens, scale)
        self._asked = self._reporter.end_step(self._loss, accumulation, scales, gradient_norm, sequences, tokens)
        self._measured = True

    def _scales(self, tokens: list[int], scale: float) -> float | list[float]:
        """The factor on each micro-batch's mean loss: the Trainer sums losses and divides by all labels of the step
        where the model lets it, and means by the accumulation elsewhere."""
        if self._divisor is None:
            return scale / len(tokens)
        arguments = self._trainer.args
        processes = self._trainer.accelerator.num_processes if arguments.average_tokens_across_devices else 1
        return [scale * processes * each / float(self._divisor) for each in tokens]


def _move(source: Path, target: Path) -> None:
    """Within one file system, so that it costs nothing."""
    for each in source.iterdir():
        each.rename(target / each.name)
    source.rmdir()
