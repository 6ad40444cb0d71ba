"""The reference trainer under a fake agent, with real ranks over gloo."""

from __future__ import annotations

import array
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
TINY = "--layers 2 --hidden 16 --heads 4 --kv-heads 2 --ffn 44 --seq-len 16".split()
TINY += "--report-every 0 --warmup-samples 16 --noise-every 1".split()


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
        agent.see_out(worker, lambda message: hear(agent, message, worker), code)
        return agent


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def losses(agent: FakeAgent) -> list[float]:
    return [message["loss"] for message in agent.of("step")]


def greeted(agent: FakeAgent) -> list[int]:
    """The ranks that said hello, each once: rank 0 of a node at once, others when they first tell how they worked."""
    ranks: list[int] = [message["rank"] for message in agent.of("hello")]
    assert len(ranks) == len(set(ranks)), "a rank greets once in its life"
    return sorted(ranks)


def test_layouts_agree_on_loss_and_noise(runs: Runs) -> None:
    alone, four = runs.run(1, 2, 8, 40), runs.run(4, 2, 8, 40)
    uneven = runs.run(2, 2, 8, 40, HEADWAY_SHARES="1,3", HEADWAY_SHARDING="optimizer")
    assert len(losses(alone)) == 5
    for many in (four, uneven):
        assert losses(many) == pytest.approx(losses(alone), abs=1e-5)
        for one, other in zip(alone.of("step"), many.of("step"), strict=True):
            assert other["noise"] == pytest.approx(one["noise"], rel=1e-4)
            assert one["noise"]["small_batch"] == 2.0 and one["noise"]["big_batch"] == 8.0
    shares = [step["configuration"]["execution"]["shares"] for step in uneven.of("step")]
    assert shares == [{"slower": 1, "faster": 3, "of_faster": 1}] * 5
    assert greeted(alone) == [0] and greeted(four)[0] == 0
    assert four.of("phases")[0]["phases"].keys() == {"import", "rendezvous", "load", "first_step"}


def test_plain_data_parallelism_does_not_wait_for_the_compiler(runs: Runs) -> None:
    """Whose import takes seconds at every start, though nothing is compiled."""
    command = [sys.executable, "-X", "importtime", "-m", "headway.trainer", *TINY, "--corpus", str(runs.corpus)]
    variables = {**os.environ, "GPUS_PER_NODE": "2", "PYTHONPATH": str(Path(trainer.__file__).parents[1])}
    command += ["--max-samples", "16", "--sharding", "optimizer", "--dropout", "0.1", "--offload", "host"]
    ran = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300, check=True)
    assert "complete: evaluation loss" in ran.stdout
    imported = {line.rsplit("|", 1)[-1].strip() for line in ran.stderr.splitlines()}
    assert "torch.distributed.device_mesh" in imported and "torch._dynamo" not in imported


def test_a_run_resumed_in_another_layout_goes_on_as_if_never_stopped(runs: Runs, tmp_path: Path) -> None:
    def stop_at_three(agent: FakeAgent, message: Message, _: Worker) -> None:
        if message["type"] == "step" and message["step"] == 3:
            agent.say({"type": "stop", "checkpoint": True, "grace_s": 30.0})

    directory = str(tmp_path / "saved")
    dropping = ("--dropout", "0.1")
    first = runs.run(2, 2, 8, 8_000_000, stop_at_three, more=dropping, HEADWAY_CHECKPOINT_DIR=directory)
    offered, stopped = first.of("checkpoint")[-1], first.of("stopped")[-1]
    assert [message["type"] for message in first.messages[-2:]] == ["checkpoint", "stopped"]
    assert offered["step"] == stopped["step"] == first.of("step")[-1]["step"]
    assert checkpoint.read_manifest(offered["path"]).samples_seen == offered["samples_seen"] == 8 * offered["step"]
    second = runs.run(
        4,
        2,
        8,
        8 * offered["step"] + 40,
        more=dropping,
        HEADWAY_GENERATION="2",
        HEADWAY_CHECKPOINT_DIR=directory,
        HEADWAY_RESUME_PATH=offered["path"],
        HEADWAY_SAMPLES_SEEN=str(offered["samples_seen"]),
    )
    whole = runs.run(1, 2, 8, 8 * offered["step"] + 40, more=dropping)
    assert losses(first) + losses(second) == pytest.approx(losses(whole), abs=1e-4)
    final = second.of("checkpoint")[-1]
    assert final["path"].startswith(f"{directory}/g2/")
    assert not second.of("stopped"), "a complete run was not stopped"


def test_a_corrupt_checkpoint_is_refused(runs: Runs, tmp_path: Path) -> None:
    path = Path(written(tmp_path, samples_seen=8))
    (path / "progress.json").write_text("something else")
    runs.run(1, 2, 8, 40, code=2, HEADWAY_RESUME_PATH=str(path), HEADWAY_SAMPLES_SEEN="8")


def test_a_checkpoint_of_other_samples_is_refused(runs: Runs, tmp_path: Path) -> None:
    path = written(tmp_path, samples_seen=8)
    runs.run(1, 2, 8, 40, code=2, HEADWAY_RESUME_PATH=path, HEADWAY_SAMPLES_SEEN="16")


def test_another_models_checkpoint_is_refused(runs: Runs, tmp_path: Path) -> None:
    path = written(tmp_path, samples_seen=8)
    runs.run(1, 2, 8, 40, code=2, HEADWAY_RESUME_PATH=path, HEADWAY_SAMPLES_SEEN="8")


def written(folder: Path, samples_seen: int) -> str:
    """A whole checkpoint that holds no model."""
    draft = checkpoint.Draft(str(folder), 1, 1)
    draft.prepare()
    (draft.path / "progress.json").write_text("{}")
    return draft.commit("job", samples_seen, [draft.entry("progress.json")]).path


def test_an_earlier_checkpoint_takes_the_place_of_a_broken_one(
    runs: Runs, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = str(tmp_path / "saved")
    whole = runs.run(1, 2, 8, 16, HEADWAY_CHECKPOINT_DIR=directory).of("checkpoint")[-1]
    resumed = {"HEADWAY_CHECKPOINT_DIR": directory, "HEADWAY_RESUME_PATH": whole["path"], "HEADWAY_SAMPLES_SEEN": "16"}
    broken = runs.run(2, 2, 8, 32, HEADWAY_GENERATION="2", **resumed).of("checkpoint")[-1]
    data = bytearray((Path(broken["path"]) / "__1_0.distcp").read_bytes())
    data[len(data) // 2] ^= 1
    (Path(broken["path"]) / "__1_0.distcp").write_bytes(data)
    resumed |= {"HEADWAY_RESUME_PATH": broken["path"], "HEADWAY_SAMPLES_SEEN": "32"}
    third = runs.run(2, 2, 8, 48, HEADWAY_GENERATION="3", **resumed)
    log = capfd.readouterr().err
    assert "CHECKPOINT BROKEN" in log and "__1_0.distcp does not match its manifest" in log
    assert f"resuming from the earlier {whole['path']} instead: 16 samples are trained again" in log
    assert [step["samples_seen"] for step in third.of("step")] == [24, 32, 40, 48]


def test_a_three_dimensional_layout_is_trained_as_launched(runs: Runs) -> None:
    shape = {"WORLD_SIZE": "4", "GPUS_PER_NODE": "4", "HEADWAY_TP": "2", "HEADWAY_PP": "2"}
    alone = runs.run(1, 2, 8, 24)
    many = runs.run(1, 2, 8, 24, HEADWAY_SEQUENCE_PARALLEL="true", HEADWAY_RECOMPUTE="full", **shape)
    assert losses(many) == pytest.approx(losses(alone), abs=1e-5)
    for one, other in zip(alone.of("step"), many.of("step"), strict=True):
        assert other["noise"] == pytest.approx(one["noise"], rel=1e-4)
        assert other["configuration"]["layout"] == {"dp": 1, "tp": 2, "pp": 2}
        assert other["configuration"]["execution"]["recompute"] == "full"


def test_shared_sequences_and_spread_experts_are_trained_as_launched(runs: Runs) -> None:
    experts = ("--experts", "4", "--dropout", "0.1")
    shape = {"WORLD_SIZE": "4", "GPUS_PER_NODE": "4", "HEADWAY_EP": "2", "HEADWAY_CP": "2", "HEADWAY_OFFLOAD": "host"}
    alone, many = runs.run(1, 2, 8, 24, more=experts), runs.run(2, 2, 8, 24, more=experts, **shape)
    assert losses(many) == pytest.approx(losses(alone), abs=1e-5)
    for one, other in zip(alone.of("step"), many.of("step"), strict=True):
        assert other["noise"] == pytest.approx(one["noise"], rel=1e-4)
        execution = other["configuration"]["execution"]
        assert (execution["cp"], execution["ep"], execution["offload"]) == (2, 2, "host")


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"HEADWAY_SHARES": "1,3", "HEADWAY_SHARDING": "parameters"}, "cannot share out parameters"),
        ({"HEADWAY_OFFLOAD": "disk"}, "to the host and not to disks"),
        ({"HEADWAY_EP": "2"}, "ep 2 does not divide 0 experts and dp x cp x tp 2"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(
    runs: Runs, variables: dict[str, str], complaint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    runs.run(2, 2, 8, 24, code=2, **variables)
    told = capfd.readouterr().err
    assert "cannot train: " in told and complaint in told


def test_a_layout_change_on_the_same_ranks_needs_no_restart(runs: Runs, capfd: pytest.CaptureFixture[str]) -> None:
    def configure(agent: FakeAgent, message: Message, _: Worker) -> None:
        if message["type"] == "step" and message["step"] == 2:
            layout, execution = {"dp": 1, "tp": 1, "pp": 2}, {"vpp": 1, "schedule": "gpipe"}
            configuration = {"layout": layout, "micro_batch": 2, "global_batch": 8, "execution": execution}
            agent.say({"type": "configure", "revision": 1, "configuration": configuration, "lr_scale": 1.0})

    # Paced, so that the order arrives while there is something left to train.
    flops = trainer.options(TINY).shape.training_flops_per_token() * 16 * 4 / 0.05
    agent = runs.run(2, 2, 8, 160, configure, HEADWAY_DEVICE_FLOPS=str(flops))
    layouts = [step["configuration"]["layout"]["pp"] for step in agent.of("step")]
    assert sorted(set(layouts)) == [1, 2] and layouts == sorted(layouts)
    assert set(greeted(agent)) <= {0, 1} and [s["step"] for s in agent.of("step")] == list(range(1, 21))
    assert losses(agent) == pytest.approx(losses(runs.run(1, 2, 8, 160)), abs=1e-4)
    assert "resharded in" in capfd.readouterr().out


def test_tokens_are_read_from_a_mapped_file(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_bytes(array.array("H", (i * i % 1000 for i in range(4000))).tobytes())
    more = ("--corpus", str(tmp_path / "tokens"), "--token-bytes", "2", "--vocab", "1000")
    assert losses(runs.run(1, 2, 8, 16, more=more))[0] == pytest.approx(6.9, abs=0.1)


def test_a_batch_change_is_live_and_every_sample_is_seen_once(runs: Runs, capfd: pytest.CaptureFixture[str]) -> None:
    def configure(agent: FakeAgent, message: Message, _: Worker) -> None:
        if message["type"] == "step" and message["step"] in (2, 3):
            configuration = {"layout": {"dp": 2, "tp": 1, "pp": 1}, "micro_batch": 4, "global_batch": 16}
            agent.say({"type": "configure", "revision": 1, "configuration": configuration, "lr_scale": 1.414})

    agent = runs.run(2, 2, 8, 800, configure)
    steps = agent.of("step")
    assert set(greeted(agent)) <= {0, 1}, "the change needs no restart"
    seen = 0
    for number, step in enumerate(steps, start=1):
        seen += step["configuration"]["global_batch"]
        assert (step["step"], step["samples_seen"]) == (number, seen)
        assert step["noise"]["big_batch"] == step["configuration"]["global_batch"]
    assert [steps[0]["configuration"]["global_batch"], steps[-1]["configuration"]["global_batch"]] == [8, 16]
    assert steps[-1]["configuration"]["micro_batch"] == 4
    assert capfd.readouterr().out.count("learning rate x 1.414") == 1, "told twice, it changes once"
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
    assert {0, 2} <= set(greeted(agent))
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
        if message["type"] == "checkpoint" and len(agent.of("checkpoint")) == 3:
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
