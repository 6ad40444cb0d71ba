"""A Hugging Face Trainer under a fake agent. Runs only where Transformers is installed: it is no dependency of ours."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from agent import FakeAgent, Message, Worker, environment

import headway
from headway import checkpoint
from headway.torch import GradientAccumulator

transformers = pytest.importorskip("transformers")
LENGTH = 16


class Text(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(32, (LENGTH,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


class Answers(Text):
    """The first sequences have few labels."""

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        sample = super().__getitem__(index)
        ignored = torch.arange(LENGTH) < 3 * (3 - index)
        return {**sample, "labels": sample["labels"].masked_fill(ignored, -100)}


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    shape = transformers.LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=LENGTH,
    )
    return transformers.LlamaForCausalLM(shape)


class InOrder(transformers.Trainer):  # type: ignore[misc]
    def _get_train_sampler(self, *_: object) -> torch.utils.data.Sampler[int]:
        return torch.utils.data.SequentialSampler(self.train_dataset)


def script(folder: Path, steps: int, text: Text) -> int:
    from headway.integrations import huggingface

    os.environ.pop("WORLD_SIZE")  # one rank without a launcher
    os.environ.pop("RANK")
    os.environ.pop("LOCAL_RANK")
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "out"),
        max_steps=steps,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=3,
        max_grad_norm=1e-3,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = InOrder(model(), arguments, train_dataset=text)
    resume = huggingface.follow(trainer, sequence_length=LENGTH, every=1)
    try:
        trainer.train(resume_from_checkpoint=resume)
    except SystemExit as end:
        return int(end.code or 0)
    headway.close()  # as an interpreter does when it ends by itself
    return 0


def run(tmp_path: Path, steps: int, code: int, text: Text | None = None, **variables: str) -> FakeAgent:
    agent = FakeAgent(tmp_path / "agent.sock")
    more = {"HEADWAY_CHECKPOINT_DIR": str(tmp_path / "saved"), **variables}
    worker = Worker(
        lambda: script(tmp_path, steps, text or Text()), environment(agent, 1, 2, 6, **more), tmp_path / "log"
    )

    def hear(message: Message) -> None:
        # Once: when it has stopped, its handler is the default again.
        if message["type"] == "step" and code and len(agent.of("step")) == 1:
            os.kill(worker.pid, signal.SIGTERM)

    try:
        agent.serve(worker.ended, hear=hear)
        agent.serve(lambda: not agent.connections, deadline_s=5.0)
    finally:
        worker.kill()
        agent.hang_up()
    assert worker.code == code, (tmp_path / "log").read_text()
    return agent


def test_the_first_steps_noise_is_that_of_the_unclipped_gradients(tmp_path: Path) -> None:
    agent = run(tmp_path, 1, 0)
    (step,) = agent.of("step")
    reference = model()
    gradients = GradientAccumulator(reference.parameters(), every=1)
    for start in range(0, 6, 2):
        tokens = torch.stack([Text()[index]["input_ids"] for index in range(start, start + 2)])
        loss = reference(input_ids=tokens, labels=tokens).loss
        loss.backward()
        gradients.end_micro_batch(loss)
    expected = gradients.reduce(2)
    assert expected.noise is not None
    assert step["noise"] == pytest.approx(expected.noise.to_json(), rel=1e-4)
    assert step["loss"] == pytest.approx(expected.loss, rel=1e-5)
    assert (step["samples_seen"], step["tokens"]) == (6, 6 * LENGTH)


def test_sigterm_saves_a_checkpoint_that_another_generation_resumes(tmp_path: Path) -> None:
    agent = run(tmp_path, 1_000_000, 143)
    offer = agent.of("checkpoint")[-1]
    checkpoint.verify(offer["path"], checkpoint.read_manifest(offer["path"]))
    assert agent.messages[-1]["type"] == "stopped"
    resumed = {"HEADWAY_RESUME_PATH": offer["path"], "HEADWAY_SAMPLES_SEEN": str(offer["samples_seen"])}
    second = run(tmp_path, offer["step"] + 3, 0, HEADWAY_GENERATION="2", **resumed)
    assert second.of("step")[-1]["step"] == offer["step"] + 3
    assert second.of("step")[-1]["samples_seen"] == offer["samples_seen"] + 18


def test_micro_batches_are_weighted_by_their_labels(tmp_path: Path) -> None:
    """The Trainer divides the sum of all losses by all labels of the step."""
    (step,) = run(tmp_path, 1, 0, Answers()).of("step")
    reference, squares, counts, total = model(), [], [], torch.zeros(())
    for start in range(0, 6, 2):
        samples = [Answers()[index] for index in range(start, start + 2)]
        labels = torch.stack([each["labels"] for each in samples])
        reference.zero_grad()
        reference(input_ids=torch.stack([each["input_ids"] for each in samples]), labels=labels).loss.backward()
        gradient = torch.cat([parameter.grad.flatten().double() for parameter in reference.parameters()])
        counts.append(int((labels[:, 1:] != -100).sum()))
        squares.append(float(gradient.square().sum()))
        total = total + counts[-1] * gradient
    weights = [count / sum(counts) for count in counts]
    assert max(weights) > 1.2 * min(weights)
    assert step["noise"] == pytest.approx(
        {
            "small_sqr": sum(weight * square for weight, square in zip(weights, squares, strict=True)),
            "big_sqr": float((total / sum(counts)).square().sum()),
            "small_batch": 2.0,
            "big_batch": 6.0,
        },
        rel=1e-4,
    )


def test_a_trainer_is_followed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.integrations import huggingface

    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[])
    trainer = transformers.Trainer(model(), arguments, train_dataset=Text())
    agent = FakeAgent(tmp_path / "agent.sock")
    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patched:
        for name, value in environment(agent, 1, 2, 6).items():
            patched.setenv(name, value)
        huggingface.follow(trainer, sequence_length=LENGTH)
        with pytest.raises(RuntimeError, match="each step would be counted twice"):
            huggingface.follow(trainer, sequence_length=LENGTH)
        headway.close(timeout_s=0.0)
    signal.signal(signal.SIGTERM, before)
    agent.hang_up()
