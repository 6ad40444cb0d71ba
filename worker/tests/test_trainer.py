"""The reference trainer under a fake agent, with real ranks over gloo."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch  # noqa: F401 - imported before the first fork, so that no rank pays for it
from agent import FakeAgent, Message, Worker, environment

from headway import checkpoint, trainer

CORPUS_TEXT = b"".join(b"line %d says %d\n" % (i, i * i) for i in range(4000))
TINY = "--layers 2 --hidden 16 --heads 4 --kv-heads 2 --ffn 44 --seq-len 16 --report-every 0 --warmup-steps 2".split()


class Runs:
    """Runs trainers to their end, each below its own agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.corpus = folder / "corpus"
        self.corpus.mkdir()
        (self.corpus / "text").write_bytes(CORPUS_TEXT)
        self._count = 0

    def run(
        self,
        dp: int,
        micro_batch: int,
        global_batch: int,
        samples: int,
        hear: Callable[[FakeAgent, Message, Worker], None] = lambda *_: None,
        code: int = 0,
        more: tuple[str, ...] = (),
        **variables: str,
    ) -> FakeAgent:
        self._count += 1
        agent = FakeAgent(self.folder / f"{self._count}.sock")
        output = self.folder / f"{self._count}.log"
        arguments = [*TINY, "--corpus", str(self.corpus), "--max-samples", str(samples), *more]
        env = environment(agent, dp, micro_batch, global_batch, **variables)
        worker = Worker(lambda: trainer.main(arguments), env, output)
        try:
            agent.serve(worker.ended, hear=lambda message: hear(agent, message, worker))
            agent.serve(lambda: not agent.connections, deadline_s=5.0)
        finally:
            worker.kill()
            agent.hang_up()
        assert worker.code == code, output.read_text()
        return agent


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def losses(agent: FakeAgent) -> list[float]:
    return [message["loss"] for message in agent.of("step")]


def test_layouts_agree_on_loss_and_noise(runs: Runs) -> None:
    alone, four = runs.run(1, 2, 8, 40), runs.run(4, 2, 8, 40)
    assert len(losses(alone)) == 5
    assert losses(four) == pytest.approx(losses(alone), abs=1e-5)
    for one, other in zip(alone.of("step"), four.of("step"), strict=True):
        assert other["noise"] == pytest.approx(one["noise"], rel=1e-4)
        assert one["noise"]["small_batch"] == 2.0 and one["noise"]["big_batch"] == 8.0
    assert alone.of("hello")[0]["rank"] == 0 and len(four.of("hello")) == 1
    assert four.of("phases")[0]["phases"].keys() == {"import", "rendezvous", "load", "first_step"}


def test_a_run_resumed_in_another_layout_goes_on_as_if_never_stopped(runs: Runs, tmp_path: Path) -> None:
    def stop_at_three(agent: FakeAgent, message: Message, _: Worker) -> None:
        if message["type"] == "step" and message["step"] == 3:
            agent.say({"type": "stop", "checkpoint": True, "grace_s": 30.0})

    directory = str(tmp_path / "saved")
    first = runs.run(2, 2, 8, 8_000_000, stop_at_three, HEADWAY_CHECKPOINT_DIR=directory)
    offered, stopped = first.of("checkpoint")[-1], first.of("stopped")[-1]
    assert [message["type"] for message in first.messages[-2:]] == ["checkpoint", "stopped"]
    assert offered["step"] == stopped["step"] == first.of("step")[-1]["step"]
    assert checkpoint.load(offered["path"]).samples_seen == offered["samples_seen"] == 8 * offered["step"]
    second = runs.run(
        4,
        2,
        8,
        8 * offered["step"] + 40,
        HEADWAY_GENERATION="2",
        HEADWAY_CHECKPOINT_DIR=directory,
        HEADWAY_RESUME_PATH=offered["path"],
        HEADWAY_SAMPLES_SEEN=str(offered["samples_seen"]),
    )
    whole = runs.run(1, 2, 8, 8 * offered["step"] + 40)
    assert losses(first) + losses(second) == pytest.approx(losses(whole), abs=1e-4)
    final = second.of("checkpoint")[-1]
    assert final["path"].startswith(f"{directory}/g2/")
    assert not second.of("stopped"), "a complete run was not stopped"


def test_a_corrupt_checkpoint_is_refused(runs: Runs, tmp_path: Path) -> None:
    path = Path(checkpoint.save(str(tmp_path), "job", 1, 1, 8, {"model": {}}).path)
    (path / "model.pt").write_bytes(b"something else")
    runs.run(1, 2, 8, 40, code=2, HEADWAY_RESUME_PATH=str(path))


def test_a_checkpoint_of_other_samples_is_refused(runs: Runs, tmp_path: Path) -> None:
    path = checkpoint.save(str(tmp_path), "job", 1, 1, 8, {"model": {}}).path
    runs.run(1, 2, 8, 40, code=2, HEADWAY_RESUME_PATH=path, HEADWAY_SAMPLES_SEEN="16")


def test_a_batch_change_is_live_and_every_sample_is_seen_once(runs: Runs) -> None:
    def configure(agent: FakeAgent, message: Message, _: Worker) -> None:
        if message["type"] == "step" and message["step"] in (2, 3):
            configuration = {"layout": {"dp": 2, "tp": 1, "pp": 1}, "micro_batch": 4, "global_batch": 16}
            agent.say({"type": "configure", "revision": 1, "configuration": configuration, "lr_scale": 1.414})

    agent = runs.run(2, 2, 8, 800, configure)
    steps = agent.of("step")
    assert len(agent.of("hello")) == 1, "the change needs no restart"
    seen = 0
    for number, step in enumerate(steps, start=1):
        seen += step["configuration"]["global_batch"]
        assert (step["step"], step["samples_seen"]) == (number, seen)
        assert step["noise"]["big_batch"] == step["configuration"]["global_batch"]
    assert [steps[0]["configuration"]["global_batch"], steps[-1]["configuration"]["global_batch"]] == [8, 16]
    assert steps[-1]["configuration"]["micro_batch"] == 4
    # The same samples in the same order as a run that changed at the same step must have seen.
    assert seen == steps[-1]["samples_seen"] >= 800


def test_an_impossible_batch_is_ignored(runs: Runs) -> None:
    def configure(agent: FakeAgent, message: Message, _: Worker) -> None:
        if message["type"] == "step" and message["step"] == 1:
            configuration = {"layout": {"dp": 1, "tp": 1, "pp": 1}, "micro_batch": 3, "global_batch": 16}
            agent.say({"type": "configure", "revision": 1, "configuration": configuration, "lr_scale": 1.0})

    agent = runs.run(1, 2, 8, 160, configure)
    assert {step["configuration"]["global_batch"] for step in agent.of("step")} == {8}


def test_sigterm_saves_and_is_no_success(runs: Runs, tmp_path: Path) -> None:
    def terminate(_: FakeAgent, message: Message, worker: Worker) -> None:
        if message["type"] == "step" and message["step"] == 2:
            os.kill(worker.pid, signal.SIGTERM)

    agent = runs.run(2, 2, 8, 8_000_000, terminate, code=143, HEADWAY_CHECKPOINT_DIR=str(tmp_path / "saved"))
    assert [message["type"] for message in agent.messages[-2:]] == ["checkpoint", "stopped"]


def test_a_gang_over_two_nodes_stops_together_when_either_is_asked(runs: Runs, tmp_path: Path) -> None:
    agent = FakeAgent(tmp_path / "both.sock")
    shared = environment(agent, 4, 2, 8, GPUS_PER_NODE="2", HEADWAY_CHECKPOINT_DIR=str(tmp_path / "saved"))
    arguments = [*TINY, "--corpus", str(runs.corpus)]
    nodes = [
        Worker(lambda: trainer.main(arguments), {**shared, "RANK": rank}, tmp_path / f"{rank}.log")
        for rank in ("0", "2")
    ]

    def terminate_the_second(message: Message) -> None:
        if message["type"] == "step" and message["step"] == 2:
            os.kill(nodes[1].pid, signal.SIGTERM)

    try:
        agent.serve(lambda: all([node.ended() for node in nodes]), hear=terminate_the_second)
        agent.serve(lambda: not agent.connections, deadline_s=5.0)
    finally:
        for node in nodes:
            node.kill()
        agent.hang_up()
    assert [node.code for node in nodes] == [143, 143]
    assert sorted(hello["rank"] for hello in agent.of("hello")) == [0, 2]
    assert len(agent.of("checkpoint")) == 1
    assert len({(message["step"], message["samples_seen"]) for message in agent.of("stopped")}) == 1


def test_a_dead_rank_ends_the_group(runs: Runs) -> None:
    def kill_a_rank(_: FakeAgent, message: Message, worker: Worker) -> None:
        if message["type"] == "step" and message["step"] == 2:
            children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
            os.kill(int(children[1]), signal.SIGKILL)

    runs.run(2, 2, 8, 8_000_000, kill_a_rank, code=137)


def test_checkpoints_come_on_time_and_on_request(runs: Runs, tmp_path: Path) -> None:
    def ask(agent: FakeAgent, message: Message, _: Worker) -> None:
        if message["type"] == "step" and message["step"] == 2:
            agent.say({"type": "checkpoint"})
        if len(agent.of("checkpoint")) == 3:
            agent.say({"type": "stop", "checkpoint": False, "grace_s": 30.0})

    directory = str(tmp_path / "saved")
    agent = runs.run(1, 2, 8, 8_000_000, ask, HEADWAY_CHECKPOINT_DIR=directory, HEADWAY_CHECKPOINT_EVERY="0.2")
    assert agent.messages[-1]["type"] == "stopped"
    saved = {str(path) for path in (tmp_path / "saved" / "g1").iterdir()}
    assert saved == {message["path"] for message in agent.of("checkpoint")}


def test_divergence_exits_with_its_own_code(runs: Runs) -> None:
    runs.run(1, 2, 8, 8_000_000, code=3, more=("--lr", "1e30", "--clip", "1e30"))


def test_an_emulated_device_sets_the_pace(runs: Runs) -> None:
    def flops_per_sequence() -> float:
        return trainer.options(TINY).shape.training_flops_per_token() * 16

    speed = flops_per_sequence() * 2 / 0.05
    agent = runs.run(2, 2, 8, 40, HEADWAY_DEVICE_FLOPS=str(speed), HEADWAY_LINK_BYTES_PER_SECOND="1e6")
    parameters = trainer.options(TINY).shape.parameters()
    expected = 2 * 0.05 + 4 * parameters / 1e6
    assert all(step["duration_s"] >= expected - 1e-3 for step in agent.of("step"))


def test_the_command_runs_alone(runs: Runs) -> None:
    """The one test that pays for an import: no agent, no environment, the real command line."""
    command = [sys.executable, "-m", "headway.trainer", *TINY, "--corpus", str(runs.corpus), "--max-samples", "64"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "complete: evaluation loss" in done.stdout
