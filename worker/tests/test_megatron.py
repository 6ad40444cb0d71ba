"""What the integration of Megatron-LM refuses, and what it has it load, with words in Megatron's place. It runs for
real in soak/test_megatron.py."""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.distributed
from agent import JOB, FakeAgent, environment
from torch.distributed.checkpoint.api import CheckpointException

import headway
from headway.environment import Environment
from headway.integrations import megatron
from headway.torch import Asked, UnknownLayout

FIT: dict[str, Any] = {
    "exit_signal_handler": False,
    "ckpt_format": "torch_dist",
    "use_distributed_optimizer": True,
    "dist_ckpt_optim_fully_reshardable": True,
    "gradient_accumulation_fusion": False,
    "no_save_optim": None,
    "train_samples": 1000,
    "rampup_batch_size": None,
    "phase_transition_iterations": None,
    "iterations_to_skip": [],
    "use_mp_args_from_checkpoint_args": False,
    "non_persistent_ckpt_type": None,
    "context_parallel_size": 1,
    "expert_model_parallel_size": 1,
}


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Megatron's module of that name, of the version that is known."""
    names = ["megatron", "megatron.core", "megatron.training", "megatron.training.training"]
    modules = {name: types.ModuleType(name) for name in names}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(modules[parent], child, module)
    modules["megatron.core"].__version__ = megatron.KNOWN  # type: ignore[attr-defined]
    loop = modules["megatron.training.training"]
    vars(loop).update(dict.fromkeys(megatron.REPLACED, lambda: None))
    yield loop
    headway.close()


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    agent = FakeAgent(tmp_path / "agent.sock")
    resumed = {"HEADWAY_RESUME_PATH": str(tmp_path / "saved"), "HEADWAY_RESUME_STEP": "7", "HEADWAY_SAMPLES_SEEN": "28"}
    for name, value in {**environment(agent, 1, 1, 4), **resumed}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / megatron.TRACKER).write_text("7")
    yield tmp_path
    agent.hang_up()


@pytest.mark.parametrize(
    "beginning",
    [
        ["--load", "elsewhere", "--finetune", "--no-load-optim", "--no-load-rng"],
        ["--load=elsewhere", "--ckpt-step=3", "--exit-on-missing-checkpoint"],
        ["--ckpt-step", "3", "--pretrained-checkpoint", "elsewhere", "--load-main-params-from-ckpt"],
    ],
)
def test_a_job_that_goes_on_loads_its_checkpoint_and_no_other(
    beginning: list[str], training: Any, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["pretrain_gpt.py", "--seed", "3", *beginning, "--bf16"])
    megatron.follow(handle_sigterm=False)
    assert sys.argv[1:] == ["--seed", "3", "--bf16", "--load", str(job / "saved")]
    joined = headway.joined()
    assert joined is not None and joined.job_id == JOB
    with pytest.raises(RuntimeError, match="follows Megatron already"):
        megatron.follow(handle_sigterm=False)


def test_a_missing_checkpoint_is_an_error_and_no_end_of_the_job(training: Any, job: Path) -> None:
    (job / "saved" / megatron.TRACKER).unlink()
    with pytest.raises(RuntimeError, match="no checkpoint of Megatron is at .*/saved, .* See that each node reaches"):
        megatron.follow(handle_sigterm=False)


class Loop:
    """Megatron's training loop with its arguments and its optimizer, as the wrapped functions see them."""

    def __init__(self, resume_step: int | None = None, **more: object) -> None:
        self.args = SimpleNamespace(
            **{
                **FIT,
                "iteration": 0,
                "consumed_train_samples": 0,
                "consumed_valid_samples": 0,
                "global_batch_size": 2,
                "train_iters": 500,
                "eval_interval": 100,
                "eval_iters": 10,
                "calculate_per_token_loss": False,
                "save": None,
                "async_save": False,
                **more,
            }
        )
        self.scale = torch.tensor([1024.0])
        environment = SimpleNamespace(resume_path=None if resume_step is None else "/saved", resume_step=resume_step)
        training: Any = SimpleNamespace(get_args=lambda: self.args)
        self.training = training
        self.following = megatron._Following(training, cast(Environment, environment), 4, True)

    def get_loss_scale(self) -> torch.Tensor:
        return self.scale

    def setup(self, iteration: int, consumed: int) -> None:
        def load() -> None:
            self.args.iteration, self.args.consumed_train_samples = iteration, consumed

        self.following.setup_model_and_optimizer(load)()


@pytest.mark.parametrize(
    ("iteration", "consumed", "batch", "last"),
    [(0, 0, 2, 500), (100, 200, 2, 500), (100, 200, 4, 300), (100, 200, 3, 366), (400, 1000, 2, 400)],
)
def test_a_changed_batch_trains_on_the_samples_that_are_left(
    iteration: int, consumed: int, batch: int, last: int
) -> None:
    """Megatron alone would end at step train_samples // batch."""
    loop = Loop(resume_step=iteration, global_batch_size=batch)
    loop.setup(iteration, consumed)
    assert loop.args.train_iters == last


def test_samples_to_evaluate_on_are_enough_for_a_batch_that_was_larger() -> None:
    loop = Loop(global_batch_size=2, iteration=100, consumed_valid_samples=400, train_iters=300)
    numbers = loop.following.get_train_valid_test_num_samples(lambda: (1000, 80, 20))
    assert numbers() == (1000, 400 + 3 * 10 * 2, 20)
    assert loop.following.get_train_valid_test_num_samples(lambda: (1000, None, 20))() == (1000, None, 20)


def test_another_checkpoint_than_the_jobs_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="Megatron is at step 3, and the job at 7"):
        Loop(resume_step=7).setup(3, 6)


def test_leaving_before_training_is_an_error_and_no_end_of_the_job() -> None:
    """Megatron calls sys.exit() where it cannot load."""
    with pytest.raises(RuntimeError, match="leaves with code 0 before training"):
        Loop().following.setup_model_and_optimizer(sys.exit)()


class Heard:
    """A reporter that keeps what it was told of each step."""

    def __init__(self, asked: Asked) -> None:
        self.step, self.told, self.asked = 0, list[tuple[Any, ...]](), asked
        self.meter = SimpleNamespace(measuring=False)

    def end_step(self, *told: Any, tokens: object) -> Asked:
        self.step += 1
        self.told.append(told)
        return self.asked


def steps(loop: Loop, monkeypatch: pytest.MonkeyPatch, asked: Asked, step: Callable[..., Any]) -> Callable[[int], Any]:
    """`step(hear)` stands for the optimizer's; what it returns is train_step's: whether skipped, and whether to end."""
    calculator = types.ModuleType("megatron.core.num_microbatches_calculator")
    calculator.get_num_microbatches = lambda: 2  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, calculator.__name__, calculator)
    loop.following._reporter = cast(Any, Heard(asked))

    def train_step(*given: Any, iteration: int) -> Any:
        given[-1]()
        skipped, leaves = step(loop.following._end_step)
        return {}, skipped, False, leaves, 0, None, None, 0

    followed = loop.following.train_step(train_step)
    return lambda iteration: followed(None, None, [], loop, None, None, lambda: [], iteration)


def test_the_scale_of_half_precision_is_that_of_the_gradients(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop()

    def grows(hear: Callable[[float], None]) -> tuple[int, bool]:
        loop.scale *= 2.0  # Megatron updates it before the norm is taken
        hear(3.0)
        return 0, False

    steps(loop, monkeypatch, Asked(), grows)(0)
    assert cast(Any, loop.following._reporter).told == [(None, 2, 512.0, 3.0)]


def test_an_overflow_is_a_step_without_a_norm(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop()
    steps(loop, monkeypatch, Asked(), lambda hear: (1, False))(0)
    ((_, _, scale, norm),) = cast(Any, loop.following._reporter).told
    assert scale == 512.0 and math.isnan(norm)


def test_a_step_that_megatron_leaves_to_be_run_again_is_none(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop()
    steps(loop, monkeypatch, Asked(), lambda hear: (True, True))(0)
    assert cast(Any, loop.following._reporter).told == []


def test_a_step_that_nobody_heard_is_an_error(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="Megatron is at step 1 after 0 steps were heard"):
        steps(Loop(), monkeypatch, Asked(), lambda hear: (0, False))(0)


@pytest.mark.parametrize("stop", [False, True])
def test_a_job_that_is_to_stop_evaluates_no_more(stop: bool, training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, evaluated = Loop(), list[str]()

    def heard(hear: Callable[[float], None]) -> tuple[int, bool]:
        hear(1.0)
        return 0, False

    steps(loop, monkeypatch, Asked(save=True, stop=stop), heard)(0)
    loop.following.evaluate_and_print_results(evaluated.append)("iteration 1")
    assert evaluated == ([] if stop else ["iteration 1"])


@pytest.mark.parametrize(
    ("ranks", "failure", "raised"),
    [
        (1, OSError("full"), OSError),
        (2, OSError("full"), megatron.FailedAlone),
        (2, CheckpointException("write", {}), RuntimeError),
    ],
)
def test_a_save_that_fails_on_one_rank_alone_ends_the_process(
    ranks: int, failure: BaseException, raised: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are in a barrier of Megatron's: a sum of ours would wait for them for ever."""
    loop = Loop(save="own")

    def save() -> None:
        assert loop.args.save == str(tmp_path)
        raise failure

    loop.training.save_checkpoint_and_time = save
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: ranks)
    with pytest.raises(raised):
        loop.following._write(tmp_path)
    assert loop.args.save == "own"
    assert not issubclass(megatron.FailedAlone, OSError | RuntimeError)  # which save_together takes for every rank's


def test_nothing_is_touched_outside_of_a_job(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["pretrain_gpt.py"])
    step = training.train_step
    megatron.follow()
    assert training.train_step is step and sys.argv == ["pretrain_gpt.py"]


def test_another_version_is_an_error_that_says_what_to_do(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["megatron.core"], "__version__", "0.17.0", raising=False)
    with pytest.raises(RuntimeError, match="0.16.1, and this is 0.17.0: check out core_v0.16.1, or run it untouched"):
        megatron.follow()


@pytest.mark.parametrize(
    ("argument", "value", "what_to_do"),
    [
        ("exit_signal_handler", True, "leave out --exit-signal-handler"),
        ("ckpt_format", "torch", "give --ckpt-format torch_dist"),
        ("dist_ckpt_optim_fully_reshardable", False, "give --dist-ckpt-optim-fully-reshardable"),
        ("gradient_accumulation_fusion", True, "give --no-gradient-accumulation-fusion"),
        ("no_save_optim", True, "leave out --no-save-optim"),
        ("train_samples", None, r"give --train-samples .* in place of --train-iters"),
        ("rampup_batch_size", ["2", "2", "8"], "leave out --rampup-batch-size"),
        ("phase_transition_iterations", [5], "leave out --phase-transition-iterations"),
        ("iterations_to_skip", [5], "leave out --iterations-to-skip"),
        ("use_mp_args_from_checkpoint_args", True, "leave out --use-mp-args-from-checkpoint-args"),
        ("non_persistent_ckpt_type", "global", "leave out --non-persistent-ckpt-type"),
    ],
)
def test_what_cannot_be_followed_is_named(argument: str, value: object, what_to_do: str) -> None:
    megatron._look_at(SimpleNamespace(**FIT))
    with pytest.raises(ValueError, match=what_to_do):
        megatron._look_at(SimpleNamespace(**{**FIT, argument: value}))


@pytest.mark.parametrize("kind", ["context_parallel_size", "expert_model_parallel_size"])
def test_layouts_without_noise_are_refused(kind: str) -> None:
    with pytest.raises(UnknownLayout, match=f"{kind} cannot be measured: run it untouched"):
        megatron._look_at(SimpleNamespace(**{**FIT, kind: 2}))
