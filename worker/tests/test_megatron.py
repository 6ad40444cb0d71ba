"""What the integration of Megatron-LM refuses, and what it has it load, with words in Megatron's place. It runs for
real in soak/test_megatron.py."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agent import JOB, FakeAgent, environment

import headway
from headway.integrations import megatron
from headway.torch import UnknownLayout

FIT: dict[str, Any] = {
    "exit_signal_handler": False,
    "ckpt_format": "torch_dist",
    "use_distributed_optimizer": True,
    "dist_ckpt_optim_fully_reshardable": True,
    "gradient_accumulation_fusion": False,
    "no_save_optim": None,
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
    vars(loop).update(train_step=lambda: None, checkpoint_and_decide_exit=lambda: None)
    yield loop
    headway.close()


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    agent = FakeAgent(tmp_path / "agent.sock")
    resumed = {"HEADWAY_RESUME_PATH": str(tmp_path / "saved"), "HEADWAY_RESUME_STEP": "7", "HEADWAY_SAMPLES_SEEN": "28"}
    for name, value in {**environment(agent, 1, 1, 4), **resumed}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["pretrain_gpt.py", "--load", "elsewhere", "--finetune", "--no-load-optim"])
    yield tmp_path
    agent.hang_up()


def test_a_job_that_goes_on_loads_its_checkpoint_and_must_find_it(training: Any, job: Path) -> None:
    megatron.follow(handle_sigterm=False)
    assert sys.argv[1:] == ["--load", "elsewhere", "--load", str(job / "saved"), "--exit-on-missing-checkpoint"]
    joined = headway.joined()
    assert joined is not None and joined.job_id == JOB
    with pytest.raises(RuntimeError, match="follows Megatron already"):
        megatron.follow(handle_sigterm=False)


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
