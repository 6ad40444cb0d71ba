"""A script of one's own with a few added lines, under a fake agent: real ranks, DistributedDataParallel."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from agent import FakeAgent, Message, Worker, environment
from tiny import LENGTH, Tiny, batch, loss_of
from torch.nn.parallel import DistributedDataParallel

import headway
from headway import checkpoint
from headway.launch import Termination, fork_ranks
from headway.torch import StepReporter

SMALL = 2


def script(steps: int, report_every_s: float, sizes: tuple[int, ...]) -> int:
    """What a user runs below torchrun. `sizes`: of each micro-batch, where they are not equal."""

    def rank(_: Termination) -> int:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.distributed.init_process_group("gloo")
        model = DistributedDataParallel(Tiny())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        reporter = StepReporter(
            model,
            micro_batch=SMALL,
            sequence_length=LENGTH,
            every=2,
            report_every_s=report_every_s,
            batch="live",
        )
        accumulation, micro_batch = 2, SMALL
        while reporter.step < steps:
            optimizer.zero_grad()
            for size in sizes or (micro_batch,) * accumulation:
                inputs, targets = batch(reporter.samples_seen, size)
                loss = loss_of(model(inputs), targets)
                (loss / accumulation).backward()
            asked = reporter.end_step(loss, accumulation, sequences=sizes or None)
            optimizer.step()
            if asked.configure is not None:
                micro_batch = asked.configure.configuration.micro_batch
            if asked.save:
                name = f"{torch.distributed.get_rank()}.pt"
                reporter.save_together(lambda directory, name=name: torch.save(model.state_dict(), directory / name))
            if asked.stop:
                os.write(1, f"asked {asked}\n".encode())
                return reporter.stopped()
        headway.close()
        return 0

    return fork_ranks(2, rank)


def run(
    tmp_path: Path,
    say: Message | int,
    code: int,
    steps: int = 1_000_000,
    report_every_s: float = 0.0,
    sizes: tuple[int, ...] = (),
) -> FakeAgent:
    agent = FakeAgent(tmp_path / "agent.sock")
    more = {"HEADWAY_SAMPLES_SEEN": "64", "HEADWAY_CHECKPOINT_DIR": str(tmp_path / "saved")}
    variables = environment(agent, 2, SMALL, 8, **more)
    worker = Worker(lambda: script(steps, report_every_s, sizes), variables, tmp_path / "log")

    def hear(message: Message) -> None:
        if message["type"] == "step" and message["step"] == 2:
            if isinstance(say, int):
                os.killpg(worker.pid, say)
            else:
                agent.say(say)

    agent.see_out(worker, hear, code)
    return agent


def test_steps_are_reported_with_their_noise_until_ordered_to_stop(tmp_path: Path) -> None:
    agent = run(tmp_path, {"type": "stop", "checkpoint": True, "grace_s": 30.0}, code=0)
    steps = agent.of("step")
    assert [step["step"] for step in steps] == list(range(1, len(steps) + 1))
    assert [step["samples_seen"] for step in steps] == [64 + 8 * step["step"] for step in steps]
    assert [("noise" in step) for step in steps] == [step["step"] % 2 == 1 for step in steps]
    assert steps[0]["noise"]["small_batch"] == 2.0 and steps[0]["noise"]["big_batch"] == 8.0
    assert steps[0]["tokens"] == 8 * LENGTH
    (offer,) = agent.of("checkpoint")
    manifest = checkpoint.read_manifest(offer["path"])
    checkpoint.verify(offer["path"], manifest)
    assert (manifest.step, manifest.samples_seen) == (offer["step"], offer["samples_seen"])
    assert sorted(file.name for file in manifest.files) == ["0.pt", "1.pt"]
    assert list((tmp_path / "saved" / "g1").iterdir()) == [Path(offer["path"])], "nothing else is left there"
    assert agent.messages[-1]["type"] == "stopped" and agent.messages[-1]["step"] == steps[-1]["step"]
    assert (tmp_path / "log").read_text().count("asked Asked(save=True, stop=True, exit_code=0") == 2


def test_a_signal_alone_is_no_success(tmp_path: Path) -> None:
    run(tmp_path, int(signal.SIGTERM), code=143)
    assert (tmp_path / "log").read_text().count("stop=True, exit_code=143") == 2


def test_a_script_that_ends_by_itself_has_told_of_its_last_steps(tmp_path: Path) -> None:
    (told,) = run(tmp_path, int(signal.SIGTERM), code=0, steps=7, report_every_s=3600.0).of("step")
    assert (told["step"], told["steps"], told["samples_seen"]) == (7, 7, 64 + 7 * 8)


def test_a_batch_change_reaches_every_rank(tmp_path: Path) -> None:
    configuration = {"layout": {"dp": 2, "tp": 1, "pp": 1}, "micro_batch": 4, "global_batch": 16}
    change = {"type": "configure", "revision": 0, "configuration": configuration, "lr_scale": 1.5}
    agent = run(tmp_path, change, code=0, steps=200)
    last = agent.of("step")[-1]
    assert last["configuration"] == configuration
    assert [step["noise"]["small_batch"] for step in agent.of("step") if "noise" in step][-1] == pytest.approx(4.0)


def test_a_batch_that_does_not_divide_is_taken_by_nobody(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    configuration = {"layout": {"dp": 2, "tp": 1, "pp": 1}, "micro_batch": 3, "global_batch": 16}
    change = {"type": "configure", "revision": 0, "configuration": configuration, "lr_scale": 1.5}
    last = run(tmp_path, change, code=0, steps=30).of("step")[-1]
    assert (last["configuration"]["micro_batch"], last["configuration"]["global_batch"]) == (SMALL, 8)
    assert last["samples_seen"] == 64 + 30 * 8
    assert capfd.readouterr().err.count("ignored an impossible") == 1


def test_a_short_micro_batch_is_counted_as_what_it_is(tmp_path: Path) -> None:
    """Two ranks, each with micro-batches of two and of one: six sequences a step, the squares of 4/3 and 16/3."""
    agent = run(tmp_path, {"type": "checkpoint"}, code=0, steps=3, sizes=(2, 1))
    steps = agent.of("step")
    assert [step["samples_seen"] for step in steps] == [70, 76, 82] and steps[0]["tokens"] == 6 * LENGTH
    noise = steps[0]["noise"]
    assert (noise["small_batch"], noise["big_batch"]) == pytest.approx((4 / 3, 16 / 3))
