"""A Lightning Trainer under a fake agent. Runs only where Lightning is installed: it is no dependency of ours."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from agent import FakeAgent, Message, Worker, environment
from tiny import LENGTH, Tiny, batch, loss_of

import headway
from headway import checkpoint
from headway.torch import GradientAccumulator, SampleBatches

L = pytest.importorskip("lightning")
SIZE = 60


class Samples(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        inputs, targets = batch(index, 1)
        return index, inputs[0], targets[0]


class Module(L.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.model, self.seen, self.rates = Tiny(), [], []

    def training_step(self, samples: Any) -> torch.Tensor:
        indices, inputs, targets = samples
        self.seen += indices.tolist()
        return loss_of(self.model(inputs), targets)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-3)

    def on_train_start(self) -> None:
        optimizer = self.trainer.optimizers[0]
        optimizer.register_step_pre_hook(lambda *_: self.rates.append(optimizer.param_groups[0]["lr"]))


def made(folder: Path, follow: Any, **more: Any) -> Any:
    return L.Trainer(
        use_distributed_sampler=False,
        callbacks=[follow],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **more,
    )


def script(folder: Path, name: str, steps: int, micro_batch: int, accumulation: int) -> int:
    from headway.integrations.lightning import Follow

    for launched in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):  # one rank without a launcher
        os.environ.pop(launched)
    module, follow = Module(), Follow(micro_batch, sequence_length=LENGTH, every=1)
    loader = torch.utils.data.DataLoader(
        Samples(), batch_sampler=SampleBatches(SIZE, micro_batch, accumulation, order=lambda epoch: range(SIZE))
    )
    trainer = made(folder, follow, max_steps=steps, accumulate_grad_batches=accumulation, gradient_clip_val=1e-3)
    try:
        trainer.fit(module, loader, ckpt_path=follow.resume_path)
        return 0
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        (folder / name).write_text(json.dumps([module.seen, module.rates]))


def run(tmp_path: Path, name: str, steps: int, sizes: tuple[int, int], code: int, **variables: str) -> FakeAgent:
    agent = FakeAgent(tmp_path / "agent.sock")
    more = {"HEADWAY_CHECKPOINT_DIR": str(tmp_path / "saved"), **variables}
    launched = environment(agent, 1, sizes[0], sizes[0] * sizes[1], **more)
    worker = Worker(lambda: script(tmp_path, name, steps, *sizes), launched, tmp_path / "log")

    def hear(message: Message) -> None:
        if code and message["type"] == "step" and len(agent.of("step")) == 1:
            os.kill(worker.pid, signal.SIGTERM)

    agent.see_out(worker, hear, code)
    return agent


def test_the_first_steps_noise_is_that_of_the_unclipped_gradients(tmp_path: Path) -> None:
    (step,) = run(tmp_path, "seen", 1, (2, 3), 0, HEADWAY_LR_SCALE="2").of("step")
    reference = Tiny()
    gradients = GradientAccumulator(reference.parameters(), every=1)
    for start in range(0, 6, 2):
        inputs, targets = batch(start, 2)
        loss = loss_of(reference(inputs), targets)
        loss.backward()
        gradients.end_micro_batch(loss)
    expected = gradients.reduce(2)
    assert expected.noise is not None
    assert step["noise"] == pytest.approx(expected.noise.to_json(), rel=1e-4)
    assert step["loss"] == pytest.approx(expected.loss, rel=1e-5)
    assert (step["samples_seen"], step["tokens"]) == (6, 6 * LENGTH)
    assert json.loads((tmp_path / "seen").read_text()) == [list(range(6)), [pytest.approx(2e-3)]]


def test_sigterm_saves_a_checkpoint_and_the_samples_go_on_with_another_batch(tmp_path: Path) -> None:
    agent = run(tmp_path, "first", 1_000_000, (2, 3), 143)
    (offer,) = agent.of("checkpoint")
    checkpoint.verify(offer["path"], checkpoint.read_manifest(offer["path"]))
    assert (agent.messages[-1]["type"], agent.messages[-1]["step"]) == ("stopped", offer["step"])
    assert offer["samples_seen"] == 6 * offer["step"]

    resumed = {"HEADWAY_RESUME_PATH": offer["path"], "HEADWAY_SAMPLES_SEEN": str(offer["samples_seen"])}
    second = run(tmp_path, "second", offer["step"] + 5, (4, 4), 0, HEADWAY_GENERATION="2", **resumed)
    last = second.of("step")[-1]
    assert (last["step"], last["samples_seen"]) == (offer["step"] + 5, offer["samples_seen"] + 5 * 16)
    assert last["noise"]["big_batch"] == 16.0, "no step of it is shorter than the accumulation"
    seen, _ = json.loads((tmp_path / "first").read_text())
    then, _ = json.loads((tmp_path / "second").read_text())
    assert seen + then == [position % SIZE for position in range(last["samples_seen"])]


def loader() -> Any:
    return torch.utils.data.DataLoader(Samples(), batch_sampler=SampleBatches(SIZE, 2))


def test_outside_headway_nothing_is_kept(tmp_path: Path) -> None:
    from headway.integrations.lightning import Follow

    follow, module = Follow(2, sequence_length=LENGTH), Module()
    made(tmp_path, follow, max_steps=3, accumulate_grad_batches=2).fit(module, loader(), ckpt_path=follow.resume_path)
    assert len(module.seen) == 12 and module.rates == [1e-3] * 3
    assert follow._losses == []


def test_manual_optimization_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.integrations.lightning import Follow

    monkeypatch.setenv("HEADWAY_SOCKET", str(tmp_path / "nobody"))
    module = Module()
    module.automatic_optimization = False
    try:
        with pytest.raises(ValueError, match="automatic optimization"):
            made(tmp_path, Follow(2, sequence_length=LENGTH), max_steps=1).fit(module, loader())
    finally:
        headway.close()


def test_a_live_batch_that_was_promised_before_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.integrations.lightning import Follow

    monkeypatch.setenv("HEADWAY_SOCKET", str(tmp_path / "nobody"))
    headway.init(batch="live", handle_sigterm=False)
    try:
        with pytest.raises(ValueError, match="promised a live batch"):
            Follow(2, sequence_length=LENGTH)
    finally:
        headway.close()
