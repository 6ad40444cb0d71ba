"""Megatron-LM: its training loop reports its steps with their gradient noise, saves and stops as asked.

    python -m headway.integrations.megatron pretrain_gpt.py --tensor-model-parallel-size 2 ...

or, in a pretraining script of one's own, before `pretrain(...)`:

    headway.integrations.megatron.follow()

The end of a step is heard where its optimizer takes the norm of the gradients, which are whole by then and not yet
clipped. That norm is the big square; the small ones are heard on the parameters, shards by Megatron's own marks.
"""

from __future__ import annotations

import argparse
import math
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch.distributed.checkpoint.api import CheckpointException

import headway
from headway import sdk
from headway.environment import Environment
from headway.integrations.refused import refuse, refuse_degrees, refuse_shares
from headway.torch import Asked, Ranks, ScaledLearningRate, StepReporter, Summed

KNOWN = "0.16.1"
TRACKER = "latest_checkpointed_iteration.txt"
# Said for what a job begins from, not for its own checkpoints.
BEGINNING = {
    "--exit-on-missing-checkpoint",
    "--finetune",
    "--load-main-params-from-ckpt",
    "--moe-use-upcycling",
    "--no-load-optim",
    "--no-load-rng",
}
BEGINNING_AT = {"--ckpt-step", "--load", "--pretrained-checkpoint"}  # with a word behind


REPLACED = (
    "setup_model_and_optimizer",
    "get_train_valid_test_num_samples",
    "train_step",
    "evaluate_and_print_results",
    "checkpoint_and_decide_exit",
)


class FailedAlone(Exception):
    """A rank could not save where others wait for it inside of Megatron: the process must end, and torchrun with it."""


def main() -> None:
    """A pretraining script as Python itself would run it, followed."""
    parser = argparse.ArgumentParser(prog="headway.integrations.megatron", allow_abbrev=False)
    parser.add_argument("--noise-every", type=int, default=4, help="steps from one measurement to the next")
    parser.add_argument("script", help="such as pretrain_gpt.py")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    sys.argv = [options.script, *options.arguments]
    sys.path.insert(0, str(Path(options.script).resolve().parent))
    follow(every=options.noise_every)
    runpy.run_path(options.script, run_name="__main__")


def follow(every: int = 4, handle_sigterm: bool = True, scale_learning_rate: bool = True) -> None:
    """Attaches Headway to Megatron's training loop and has it load the job's checkpoint. A no-op outside a Headway job.

    `every`: the noise is measured at each so manieth step. `scale_learning_rate`: each step is taken with the learning
    rate times the scheduler's factor.

    Raises RuntimeError for another Megatron than is known here, or where it is followed already.
    """
    import megatron.core
    from megatron.training import training

    if megatron.core.__version__ != KNOWN:
        raise RuntimeError(
            f"headway follows Megatron-LM {KNOWN}, and this is {megatron.core.__version__}: check out core_v{KNOWN}, or"
            " run it untouched by headway.watch (docs/adapters/megatron-lm.md)"
        )
    if hasattr(training.train_step, "headway"):
        raise RuntimeError("headway follows Megatron already: each step would be counted twice")
    environment = headway.joined() or headway.init(batch="restart", layout="restart", handle_sigterm=handle_sigterm)
    if environment is None:
        return
    refuse_shares("Megatron", environment)
    if sdk.promised_live_batch():
        raise ValueError('headway.init promised a live batch, which Megatron cannot follow: say batch="restart"')
    if environment.resume_path is not None:
        if not (Path(environment.resume_path) / TRACKER).is_file():
            raise RuntimeError(
                f"no checkpoint of Megatron is at {environment.resume_path}, which the job would go on from: it has no"
                f" {TRACKER}. See that each node reaches the job's checkpoints, and that Megatron has written them"
            )
        sys.argv = [*_going_on(sys.argv), "--load", environment.resume_path]
    following = _Following(training, environment, every, scale_learning_rate)
    for name in REPLACED:
        wrapped = getattr(following, name)(getattr(training, name))
        wrapped.headway = True
        setattr(training, name, wrapped)


def _going_on(arguments: list[str]) -> list[str]:
    """Without what was said for the job's beginning."""
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        if word in BEGINNING_AT:
            next(words, None)
        elif word not in BEGINNING and word.partition("=")[0] not in BEGINNING_AT:
            kept.append(word)
    return kept


class _Following:
    """One training. A step: forward and backward of all micro-batches, the norm, clipping, the optimizer; perhaps an
    evaluation; checkpoint_and_decide_exit."""

    def __init__(self, training: Any, environment: Environment, every: int, scale_learning_rate: bool) -> None:
        self._training, self._environment, self._every = training, environment, every
        self._scale_learning_rate = scale_learning_rate
        self._reporter: StepReporter | None = None
        self._asked = Asked()
        self._losses: list[dict[str, torch.Tensor]] = []
        self._loss_scale = 1.0
        self._interval = sys.maxsize

    def setup_model_and_optimizer(self, setup: Callable[..., Any]) -> Callable[..., Any]:
        """It loads the checkpoint, and leaves with code 0 where it cannot."""

        def setting_up(*given: Any, **named: Any) -> Any:
            args = self._training.get_args()
            _look_at(args)
            try:
                built = setup(*given, **named)
            except SystemExit as left:
                raise RuntimeError(
                    f"Megatron leaves with code {left.code or 0} before training: its last lines say what it could not"
                    " load"
                ) from left
            job = self._environment
            if job.resume_path is not None and args.iteration != job.resume_step:
                raise RuntimeError(f"Megatron is at step {args.iteration}, and the job at {job.resume_step}")
            # Megatron divides all samples by the present batch, as if it had been that of all steps.
            args.train_iters = args.iteration + _steps_left(args)
            return built

        return setting_up

    def get_train_valid_test_num_samples(self, numbers: Callable[[], Any]) -> Callable[[], Any]:
        def numbering() -> Any:
            args = self._training.get_args()
            train, valid, test = numbers()
            if valid is not None and args.eval_interval:  # earlier evaluations may have been of larger batches
                every, last = args.eval_interval, args.train_iters
                to_come = last // every - args.iteration // every + 1
                valid = max(valid, args.consumed_valid_samples + to_come * args.eval_iters * args.global_batch_size)
            return train, valid, test

        return numbering

    def train_step(self, train_step: Callable[..., Any]) -> Callable[..., Any]:
        def followed(
            forward: Any, data: Any, model: Any, optimizer: Any, scheduler: Any, config: Any, run: Any, iteration: int
        ) -> Any:
            reporter = self._reporter
            if reporter is None:
                reporter = self._reporter = self._begin(model, optimizer, iteration)

            def running(*given: Any, **named: Any) -> Any:
                self._losses = run(*given, **named)
                self._loss_scale = float(optimizer.get_loss_scale())  # that of these gradients: the step updates it
                return self._losses

            done = train_step(forward, data, model, optimizer, scheduler, config, running, iteration=iteration)
            _, skipped, _, leaves, *_ = done
            if leaves:  # to be run again: no step was made
                return done
            if skipped and reporter.step == iteration:  # fp16 overflowed, before the norm was taken
                self._end_step(math.nan)
            if reporter.step != iteration + 1:
                raise RuntimeError(f"Megatron is at step {iteration + 1} after {reporter.step} steps were heard")
            return done

        return followed

    def evaluate_and_print_results(self, evaluate: Callable[..., None]) -> Callable[..., None]:
        """It comes before the save: a job that is to stop has no time for it."""

        def evaluating(*given: Any, **named: Any) -> None:
            if not self._asked.stop:
                evaluate(*given, **named)

        return evaluating

    def checkpoint_and_decide_exit(self, decide: Callable[..., bool]) -> Callable[..., bool]:
        """Every rank was told the same, so all save and stop together. A stop leaves by SystemExit."""

        def deciding(
            model: Any, optimizer: Any, scheduler: Any, iteration: int, flops: Any, context: Any, data: Any
        ) -> bool:
            reporter = self._reporter
            assert reporter is not None, "a step has been made"

            def write(directory: Path) -> None:
                self._write(directory, iteration, model, optimizer, scheduler, flops, context, train_data_iterator=data)

            if self._asked.save or iteration % self._interval == 0:
                reporter.save_together(write)
            if self._asked.stop:
                sys.exit(reporter.stopped())
            return decide(model, optimizer, scheduler, iteration, flops, context, data)

        return deciding

    def _begin(self, model: list[Any], optimizer: Any, iteration: int) -> StepReporter:
        from megatron.core import parallel_state

        args = self._training.get_args()
        if self._environment.checkpoint_dir is not None:
            # What it saves between become the job's checkpoints, and only the last stays its own.
            self._interval, args.save_interval = args.save_interval or sys.maxsize, sys.maxsize
        shared = [each for part in model for each in part.parameters() if getattr(each, "shared_embedding", False)]
        stages = parallel_state.get_pipeline_model_parallel_group()
        tied = bool(shared) and torch.distributed.get_world_size(stages) > 1
        reporter = StepReporter(
            *model,
            micro_batch=args.micro_batch_size,
            sequence_length=args.seq_length,
            ranks=Ranks(
                parallel_state.get_data_parallel_group(with_context_parallel=True),
                parallel_state.get_tensor_model_parallel_group(),
                stages,
            ),
            every=self._every,
            summed=[Summed(shared[:1], parallel_state.get_embedding_group())] if tied else (),
        )
        reporter.step, reporter.samples_seen = iteration, args.consumed_train_samples
        norm = optimizer.get_grad_norm

        def listening() -> Any:
            known = norm()
            self._end_step(float(known))
            return known

        optimizer.get_grad_norm = listening
        if self._scale_learning_rate:
            for each in getattr(optimizer, "chained_optimizers", [optimizer]):
                ScaledLearningRate(each.optimizer)
        return reporter

    def _end_step(self, norm: float) -> None:
        from megatron.core.num_microbatches_calculator import get_num_microbatches

        reporter, count = self._reporter, get_num_microbatches()
        assert reporter is not None, "training has begun"
        args = self._training.get_args()
        sums = [[float(number) for number in next(iter(each.values())).view(-1)] for each in self._losses]
        loss = None
        if sums:
            loss = math.fsum(each[0] for each in sums) / (math.fsum(each[1] for each in sums if each[1:]) or len(sums))
        tokens = self._tokens(sums, count) if reporter.meter.measuring else None
        scales: float | list[float] = self._loss_scale / count
        if args.calculate_per_token_loss and tokens is not None:
            scales = [self._loss_scale * each for each in tokens]
        self._asked = reporter.end_step(loss, count, scales, norm, tokens=tokens)

    def _tokens(self, sums: list[list[float]], count: int) -> list[float]:
        """Of each micro-batch, which only the last stage knows."""
        from megatron.core import parallel_state

        told = torch.zeros(count, device=torch.cuda.current_device())
        if sums and all(each[1:] for each in sums):
            told = torch.tensor([each[1] for each in sums], device=told.device)
        group = parallel_state.get_pipeline_model_parallel_group()
        if torch.distributed.get_world_size(group) > 1:
            torch.distributed.broadcast(told, parallel_state.get_pipeline_model_parallel_last_rank(), group)
        tokens: list[float] = told.tolist()
        args = self._training.get_args()
        return tokens if any(tokens) else [float(args.micro_batch_size * args.seq_length)] * count

    def _write(self, directory: Path, *of: Any, **named: Any) -> None:
        """This rank's part of a checkpoint, as Megatron writes it. Raises RuntimeError where all ranks hear of a
        failure, and FailedAlone where this one does."""
        args = self._training.get_args()
        own = args.save, args.async_save
        args.save, args.async_save = str(directory), False
        try:
            self._training.save_checkpoint_and_time(*of, **named)
        except CheckpointException as error:  # no Exception; raised on every rank
            raise RuntimeError(str(error)) from error
        except Exception as error:
            if torch.distributed.get_world_size() == 1:
                raise
            raise FailedAlone(
                "Megatron's save failed on this rank, and the others may wait for it for ever: this process ends. The"
                f" job goes on from the checkpoint before: {error}"
            ) from error
        finally:
            args.save, args.async_save = own


def _steps_left(args: Any) -> int:
    """Whole ones, of the present batch."""
    return int(max(args.train_samples - args.consumed_train_samples, 0) // args.global_batch_size)


def _look_at(args: Any) -> None:
    """ValueError names what cannot be followed, before the first step."""
    refused = {
        "it would end at SIGTERM by itself: leave out --exit-signal-handler": args.exit_signal_handler,
        "its checkpoints are for one layout: give --ckpt-format torch_dist": args.ckpt_format != "torch_dist",
        "its optimizer's states are for one layout: give --dist-ckpt-optim-fully-reshardable": (
            args.use_distributed_optimizer and not args.dist_ckpt_optim_fully_reshardable
        ),
        "kernels add gradients where nobody hears them: give --no-gradient-accumulation-fusion": (
            args.gradient_accumulation_fusion
        ),
        "a checkpoint without them begins anew: leave out --no-save-optim": args.no_save_optim,
        "its steps are of one batch: give --train-samples (and --lr-decay-samples) in place of --train-iters": (
            args.train_samples is None
        ),
        "the scheduler chooses the batch: leave out --rampup-batch-size": args.rampup_batch_size is not None,
        "its phases are of one batch: leave out --phase-transition-iterations": args.phase_transition_iterations,
        "it counts steps that nobody makes: leave out --iterations-to-skip": args.iterations_to_skip,
        "the scheduler chooses the layout: leave out --use-mp-args-from-checkpoint-args": (
            args.use_mp_args_from_checkpoint_args
        ),
        "it would load others than the job's: leave out --non-persistent-ckpt-type": args.non_persistent_ckpt_type,
    }
    refuse("Megatron", refused)
    refuse_degrees("Megatron", args, "context_parallel_size", "expert_model_parallel_size")


if __name__ == "__main__":
    main()
