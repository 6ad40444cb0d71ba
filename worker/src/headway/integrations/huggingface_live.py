"""A Hugging Face Trainer whose batch changes between steps.

The Trainer counts micro-batches to find the end of a step, by an accumulation that it takes to be constant. So it is
given one batch for each step, and that batch's micro-batches are taken here. Their samples are those that follow
`samples_seen`, whatever batches and ranks came before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler
from transformers import Trainer

from headway.message import Configuration
from headway.torch import SampleBatches, StepReporter


class LiveStep(dict[str, Any]):
    """A step's micro-batches; to who takes it for a batch, the last of them."""

    def __init__(self, micro_batches: list[Any]) -> None:
        super().__init__(micro_batches[-1])
        self.micro_batches = micro_batches


class Live:
    """Micro-batch and accumulation of a Trainer, from its arguments at first. Make it before training begins."""

    def __init__(self, trainer: Trainer) -> None:
        """ValueError where the Trainer cannot follow."""
        args = trainer.args
        refused = {
            "an IterableDataset has no samples by number": isinstance(trainer.train_dataset, IterableDataset),
            "it needs max_steps: epochs are no number of steps": args.max_steps <= 0,
            "DeepSpeed's accumulation is fixed": trainer.is_deepspeed_enabled,
            "auto_find_batch_size chooses batches too": args.auto_find_batch_size,
            "include_num_input_tokens_seen counts one micro-batch": args.include_num_input_tokens_seen
            not in ("no", False),
            "Transformers defers FSDP2's reduction by its own count (fsdp_size)": _sharded_by_transformers(trainer),
        }
        for why, holds in refused.items():
            if holds:
                raise ValueError(f'follow(batch="live"): {why}')
        self._trainer = trainer
        self.micro_batch, self.accumulation = args.per_device_train_batch_size, args.gradient_accumulation_steps
        self._reporter: StepReporter | None = None
        self._changed = False
        args.gradient_accumulation_steps, args.ignore_data_skip = 1, True
        self._loader = trainer.get_train_dataloader
        trainer.get_train_dataloader = lambda: _Endless(self._samples)
        self._gather, trainer.get_batch_samples = trainer.get_batch_samples, self._step
        flops = trainer.floating_point_ops
        trainer.floating_point_ops = lambda inputs: sum(
            flops(each) for each in (inputs.micro_batches if isinstance(inputs, LiveStep) else [inputs])
        )

    def begin(self, reporter: StepReporter) -> None:
        """Says how many samples were seen, then and later."""
        self._reporter = reporter

    def take(self, configuration: Configuration) -> None:
        """From the next step on."""
        accumulation = configuration.accumulation()
        assert accumulation is not None, "the reporter ignores what does not divide"
        self.micro_batch, self.accumulation = configuration.micro_batch, accumulation
        self._changed = True

    def micro_batches(self, training_step: Callable[..., Tensor], model: Any, step: LiveStep, items: Any) -> Tensor:
        """Forward and backward of each; only the last is reduced over ranks. The sum of their losses."""
        self._trainer.current_gradient_accumulation_steps = len(step.micro_batches)
        *early, last = step.micro_batches
        losses = []
        for each in early:
            with self._trainer.accelerator.no_sync(model):
                losses.append(training_step(model, each, items))
        losses.append(training_step(model, last, items))
        return torch.stack(losses).sum()

    def _step(self, samples: Iterator[Any], num_batches: int, device: torch.device) -> tuple[list[LiveStep], Any]:
        micro_batches, items = self._gather(samples, self.accumulation, device)
        return [LiveStep(micro_batches)], items

    def _samples(self) -> Iterator[Any]:
        """Micro-batches without end. Another loader begins after each change, so that none read ahead is trained on."""
        reporter = self._reporter
        assert reporter is not None, "samples are drawn once training has begun"
        loader = self._loader()
        order = _order(loader)
        while True:
            self._changed = False
            for batch in DataLoader(
                loader.dataset,
                batch_sampler=SampleBatches(
                    len(loader.dataset),
                    self.micro_batch,
                    self.accumulation,
                    first=reporter.samples_seen,
                    ranks=reporter.meter.ranks,
                    order=order,
                ),
                collate_fn=loader.collate_fn,
                num_workers=loader.num_workers,
                pin_memory=loader.pin_memory,
                worker_init_fn=loader.worker_init_fn,
                multiprocessing_context=loader.multiprocessing_context,
            ):
                yield batch
                if self._changed:
                    break


class _Endless:
    """A loader without a length, so that the Trainer goes by its steps."""

    def __init__(self, samples: Callable[[], Iterator[Any]]) -> None:
        self._samples = samples

    def __iter__(self) -> Iterator[Any]:
        return self._samples()


def _order(loader: Any) -> Callable[[int], Iterable[int]]:
    """Of each epoch, as the Trainer's own sampler has it."""
    sampler = loader.get_sampler()
    if isinstance(sampler, RandomSampler) and not hasattr(sampler, "set_epoch"):
        raise ValueError('follow(batch="live"): a random order must be seeded (use_seedable_sampler)')

    def indices(epoch: int) -> Iterable[int]:
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        drawn: Iterable[int] = iter(sampler)
        return drawn

    return indices


def _sharded_by_transformers(trainer: Trainer) -> bool:
    layout = getattr(getattr(trainer.model, "config", None), "distributed_config", None)
    return layout is not None and layout.dp_size > 1
