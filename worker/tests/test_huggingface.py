"""A Hugging Face Trainer under a fake agent. Runs only where Transformers is installed: it is no dependency of ours."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from agent import FakeAgent, Message, Worker, environment
from gang import gang

import headway
from headway import checkpoint
from headway.torch import GradientAccumulator, Reduced
from headway.window import StepSummary

transformers = pytest.importorskip("transformers")
load_file = pytest.importorskip("safetensors.torch").load_file
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


def arguments(folder: Path, **more: Any) -> Any:
    given = {
        "output_dir": str(folder / "out"),
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 3,
        "max_grad_norm": 1e-3,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
    }
    return transformers.TrainingArguments(**{**given, **more})


def alone() -> None:
    """One rank without a launcher."""
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        os.environ.pop(name)


def script(folder: Path, steps: int, text: Text | None = None, batch: str = "restart") -> int:
    from headway.integrations import huggingface

    alone()
    trainer = InOrder(model(), arguments(folder, max_steps=steps), train_dataset=text or Text())
    resume = huggingface.follow(trainer, sequence_length=LENGTH, every=1, batch=batch)
    try:
        trainer.train(resume_from_checkpoint=resume)
    except SystemExit as end:
        return int(end.code or 0)
    trainer.save_model()
    return 0


def run(
    tmp_path: Path,
    main: Callable[[], int],
    code: int = 0,
    hear: Callable[[FakeAgent, Worker, Message], None] = lambda *_: None,
    **variables: str,
) -> FakeAgent:
    agent = FakeAgent(tmp_path / "agent.sock")
    more = {"HEADWAY_CHECKPOINT_DIR": str(tmp_path / "saved"), **variables}
    worker = Worker(main, environment(agent, 1, 2, 6, **more), tmp_path / "log")
    agent.see_out(worker, lambda message: hear(agent, worker, message), code)
    return agent


def test_the_first_steps_noise_is_that_of_the_unclipped_gradients(tmp_path: Path) -> None:
    agent = run(tmp_path, lambda: script(tmp_path, 1))
    (step,) = agent.of("step")
    whole = expected()
    assert whole.noise is not None
    assert step["noise"] == pytest.approx(whole.noise.to_json(), rel=1e-4)
    assert step["loss"] == pytest.approx(whole.loss, rel=1e-5)
    assert (step["samples_seen"], step["tokens"]) == (6, 6 * LENGTH)


def test_sigterm_saves_a_checkpoint_that_another_generation_resumes(tmp_path: Path) -> None:
    def end(agent: FakeAgent, worker: Worker, message: Message) -> None:
        if message["type"] == "step" and len(agent.of("step")) == 1:  # a second one may come when nobody handles it
            os.kill(worker.pid, signal.SIGTERM)

    agent = run(tmp_path, lambda: script(tmp_path, 1_000_000), 143, end)
    offer = agent.of("checkpoint")[-1]
    checkpoint.verify(offer["path"], checkpoint.read_manifest(offer["path"]))
    assert agent.messages[-1]["type"] == "stopped"
    resumed = {"HEADWAY_RESUME_PATH": offer["path"], "HEADWAY_SAMPLES_SEEN": str(offer["samples_seen"])}
    second = run(tmp_path, lambda: script(tmp_path, offer["step"] + 3), HEADWAY_GENERATION="2", **resumed)
    assert second.of("step")[-1]["step"] == offer["step"] + 3
    assert second.of("step")[-1]["samples_seen"] == offer["samples_seen"] + 18
    assert (tmp_path / "out" / "model.safetensors").exists(), "save_model() writes where the script said"
    assert not (tmp_path / "saved" / "g2").exists(), "no step of it was to be saved"


@pytest.mark.parametrize("batch", ["restart", "live"])
def test_micro_batches_are_weighted_by_their_labels(tmp_path: Path, batch: str) -> None:
    """The Trainer divides the sum of all losses by all labels of the step."""
    (step,) = run(tmp_path, lambda: script(tmp_path, 1, Answers(), batch)).of("step")
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

    trainer = transformers.Trainer(model(), arguments(tmp_path), train_dataset=Text())
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


class FirstIsBest(InOrder):
    """Its evaluations get worse from step to step."""

    def evaluate(self, *_: object, **__: object) -> dict[str, float]:
        metrics = {"eval_loss": float(self.state.global_step)}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


def keeping_the_best(folder: Path, steps: int) -> int:
    from headway.integrations import huggingface

    alone()
    schedule = {"eval_strategy": "steps", "save_strategy": "steps", "eval_steps": 1, "save_steps": 1}
    given = arguments(folder, max_steps=steps, load_best_model_at_end=True, learning_rate=0.1, **schedule)
    trainer = FirstIsBest(model(), given, train_dataset=Text(), eval_dataset=Text())
    resume = huggingface.follow(trainer, sequence_length=LENGTH)
    trainer.train(resume_from_checkpoint=resume)
    trainer.save_model()
    return 0


def test_the_best_model_is_loaded_at_the_end_though_its_directory_was_renamed(tmp_path: Path) -> None:
    def weights(directory: str | Path) -> dict[str, torch.Tensor]:
        loaded: dict[str, torch.Tensor] = load_file(Path(directory) / "model.safetensors")
        return loaded

    first = run(tmp_path, lambda: keeping_the_best(tmp_path, 3)).of("checkpoint")
    assert [offer["step"] for offer in first] == [1, 2, 3]
    best, last, kept = weights(first[0]["path"]), weights(first[2]["path"]), weights(tmp_path / "out")
    assert all(torch.equal(kept[name], best[name]) for name in best)
    assert any(not torch.equal(last[name], best[name]) for name in best)

    resumed = {"HEADWAY_RESUME_PATH": first[2]["path"], "HEADWAY_SAMPLES_SEEN": str(first[2]["samples_seen"])}
    run(tmp_path, lambda: keeping_the_best(tmp_path, 5), HEADWAY_GENERATION="2", **resumed)
    kept = weights(tmp_path / "out")
    assert all(torch.equal(kept[name], best[name]) for name in best), "another generation's checkpoint was the best"


class Listed(Text):
    """Writes down which samples were asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        with self._path.open("a") as file:
            file.write(f"{index}\n")
        return super().__getitem__(index)


def living(folder: Path, steps: int, seen: str) -> int:
    from headway.integrations import huggingface

    alone()
    rates = []

    class Rate(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, _: Any, state: Any, *__: Any, optimizer: Any = None, **___: Any) -> None:
            if not rates:
                optimizer.optimizer.register_step_pre_hook(lambda *_: rates.append(optimizer.param_groups[0]["lr"]))

    given = arguments(folder, max_steps=steps, lr_scheduler_type="constant", learning_rate=1e-3)
    trainer = transformers.Trainer(model(), given, train_dataset=Listed(folder / seen), callbacks=[Rate()])
    resume = huggingface.follow(trainer, sequence_length=LENGTH, every=1, batch="live")
    try:
        trainer.train(resume_from_checkpoint=resume)
        return 0
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        (folder / f"{seen}.rates").write_text(json.dumps(rates))


def test_a_live_batch_changes_between_steps_and_no_sample_is_left_out_or_seen_twice(tmp_path: Path) -> None:
    layout = {"dp": 1, "tp": 1, "pp": 1}
    wider = {"layout": layout, "micro_batch": 4, "global_batch": 8}

    def change(agent: FakeAgent, _: Worker, message: Message) -> None:
        if message["type"] == "hello":
            agent.say({"type": "configure", "revision": 0, "configuration": wider, "lr_scale": 1.5})
        if message["type"] == "step" and message["configuration"] == wider:
            agent.say({"type": "stop", "checkpoint": True, "grace_s": 30.0})

    agent = run(tmp_path, lambda: living(tmp_path, 1_000_000, "first"), 0, change, HEADWAY_LR_SCALE="2")
    assert agent.of("hello")[0]["capabilities"] == {"batch": "live", "layout": "restart"}
    first, *_, last = agent.of("step")
    assert (first["samples_seen"], first["configuration"]["global_batch"]) == (6 * first["steps"], 6)
    assert (last["configuration"], last["noise"]["small_batch"]) == (wider, 4.0)
    before = int((last["step"] * 8 - last["samples_seen"]) / 2)
    assert last["samples_seen"] == 6 * before + 8 * (last["step"] - before)
    rates = json.loads((tmp_path / "first.rates").read_text())
    assert rates[0] == pytest.approx(2e-3) and len(rates) == agent.of("checkpoint")[-1]["step"]
    assert all(1.5e-3 <= rate <= 2e-3 for rate in rates), "approached over some steps"

    offer = agent.of("checkpoint")[-1]
    resumed = {"HEADWAY_RESUME_PATH": offer["path"], "HEADWAY_SAMPLES_SEEN": str(offer["samples_seen"])}
    run(tmp_path, lambda: living(tmp_path, offer["step"] + 40, "second"), HEADWAY_GENERATION="2", **resumed)
    seen = [int(line) for line in (tmp_path / "first").read_text().split()][: offer["samples_seen"]]
    seen += [int(line) for line in (tmp_path / "second").read_text().split()][: 40 * 6]
    epochs = [seen[start : start + 100] for start in range(0, len(seen) - 99, 100)]
    assert len(epochs) >= 2 and all(sorted(epoch) == list(range(100)) for epoch in epochs)
    assert epochs[0] != epochs[1], "each epoch has its own order"


@pytest.mark.parametrize("more", [{"num_train_epochs": 1.0}, {"max_steps": 5, "auto_find_batch_size": True}])
def test_a_trainer_that_cannot_follow_a_live_batch_is_refused_by_name(tmp_path: Path, more: dict[str, Any]) -> None:
    from headway.integrations.huggingface_live import Live

    trainer = transformers.Trainer(model(), arguments(tmp_path, **more), train_dataset=Text())
    with pytest.raises(ValueError, match="max_steps|auto_find_batch_size"):
        Live(trainer)


def test_data_that_would_go_on_elsewhere_are_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Another batch after a restart: the Trainer counts its own steps."""
    run(tmp_path, lambda: script(tmp_path, 1), HEADWAY_SAMPLES_SEEN="7")
    assert "its data go on elsewhere" in capfd.readouterr().err


def expected(samples: int = 6) -> Reduced:
    """Of one step of the whole model."""
    reference = model()
    gradients = GradientAccumulator(reference.parameters(), every=1)
    for start in range(0, samples, 2):
        tokens = torch.stack([Text()[index]["input_ids"] for index in range(start, start + 2)])
        loss = reference(input_ids=tokens, labels=tokens).loss
        loss.backward()
        gradients.end_micro_batch(loss)
    return gradients.reduce(2)


def sharded(folder: Path, batch: str, **sizes: int) -> list[StepSummary]:
    """A rank's reports of one step of a model that Transformers cuts at load time. Accelerate would refuse to do so on
    CPUs."""
    from accelerate import ParallelismConfig

    from headway.integrations import huggingface

    rank = str(torch.distributed.get_rank())
    os.environ.update(
        WORLD_SIZE=str(torch.distributed.get_world_size()),
        RANK=rank,
        LOCAL_RANK=rank,
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="1",
    )
    os.environ.update(HEADWAY_SOCKET=str(folder / "nobody"), ACCELERATE_USE_CPU="true")
    ParallelismConfig._validate_accelerator = lambda *_: None
    if rank == "0":
        model().save_pretrained(folder / "model")
    torch.distributed.barrier()
    layout = transformers.DistributedConfig(tp_plan="auto", **sizes)
    split = transformers.LlamaForCausalLM.from_pretrained(folder / "model", distributed_config=layout)
    given = arguments(folder, max_steps=1, ddp_backend="gloo", train_sampling_strategy="sequential")
    trainer = transformers.Trainer(split, given, train_dataset=Text())
    told: list[StepSummary] = []
    headway.report_steps = told.append
    huggingface.follow(trainer, sequence_length=LENGTH, every=1, batch=batch)
    trainer.train()
    return told


@pytest.mark.parametrize(
    ("batch", "sizes"),
    [("restart", {"tp_size": 2}), ("live", {"tp_size": 2}), ("restart", {"tp_size": 2, "fsdp_size": 2})],
)
def test_noise_under_the_tensor_parallelism_of_transformers_is_that_of_the_whole_model(
    tmp_path: Path, batch: str, sizes: dict[str, int]
) -> None:
    replicas = sizes.get("fsdp_size", 1)
    (told,), *others = gang(tmp_path, 2 * replicas, lambda: sharded(tmp_path, batch, **sizes))
    whole = expected(6 * replicas)
    assert told.noise is not None and whole.noise is not None
    assert told.noise.to_json() == pytest.approx(whole.noise.to_json(), rel=1e-4)
    assert told.loss == pytest.approx(whole.loss, rel=1e-5)
    assert told.samples_seen == 6 * replicas, "ranks that share a replica see the same samples"
    assert not any(others)


def test_a_live_batch_that_was_promised_before_is_followed_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headway.integrations import huggingface

    monkeypatch.setenv("HEADWAY_SOCKET", str(tmp_path / "nobody"))
    trainer = transformers.Trainer(model(), arguments(tmp_path, max_steps=1), train_dataset=Text())
    headway.init(batch="live", handle_sigterm=False)
    try:
        with pytest.raises(ValueError, match="promised a live batch"):
            huggingface.follow(trainer, sequence_length=LENGTH)
        huggingface.follow(trainer, sequence_length=LENGTH, batch="live")
    finally:
        headway.close()
