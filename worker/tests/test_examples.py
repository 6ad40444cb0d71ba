"""The scripts of examples/training under a fake agent: as a person starts them, each in an interpreter of its own, or
forked, which spares ranks importing PyTorch."""

from __future__ import annotations

import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from agent import FakeAgent, Message, Worker, environment, resumed_from

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "training"


def run(
    agent: FakeAgent, variables: dict[str, str], command: list[str], hear: Callable[[Message], None] = lambda _: None
) -> str:
    """To its good end; what it wrote."""
    path = os.pathsep.join([str(ROOT / "worker" / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    told = {**os.environ, **variables, "PYTHONPATH": path, "GLOO_SOCKET_IFNAME": "lo"}
    log = agent.path.with_suffix(".log")
    with log.open("w") as output:
        script = subprocess.Popen(
            [sys.executable, *command], cwd=EXAMPLES, env=told, stdout=output, stderr=output, start_new_session=True
        )
    try:
        agent.serve(lambda: script.poll() is not None, deadline_s=120.0, hear=hear)
        agent.serve(lambda: not agent.connections, deadline_s=5.0)
    finally:
        if script.poll() is None:
            os.killpg(script.pid, signal.SIGKILL)
            script.wait()
    assert script.returncode == 0, log.read_text()
    return log.read_text()


def test_the_untouched_script_is_read_by_the_pattern_of_its_specification(tmp_path: Path) -> None:
    pattern = re.search(r"--line,\s+'([^']+)'", (EXAMPLES / "untouched.yaml").read_text())
    assert pattern is not None
    agent = FakeAgent(tmp_path / "agent.sock")
    variables = environment(agent, 1, 16, 16)
    variables = {name: value for name, value in variables.items() if not name.endswith(("_BATCH", "_DP"))}
    watch = ["-m", "headway.watch", "--samples-per-step", "16", "--sequence-length", "64", "--line", pattern[1], "--"]
    written = run(agent, variables, [*watch, sys.executable, "untouched.py", "--batch=16", "--length=64", "--steps=80"])
    agent.hang_up()
    assert "step 80/80 | loss " in written
    steps = agent.of("step")
    assert steps[-1]["step"] == 80
    assert steps[-1]["samples_seen"] == 61 * 16, "the first line is of step 20: what was before nobody can know"
    assert steps[-1]["tokens"] == 20 * 16 * 64 and 0.0 < steps[-1]["duration_s"] < 10.0
    assert 1.0 < steps[-1]["loss"] < 5.5, "below that of a uniform guess (ln 256)"


def test_the_five_lines_report_noise_save_and_stop_below_torchrun(tmp_path: Path) -> None:
    """`test_check` has them resume, on other ranks."""
    agent = FakeAgent(tmp_path / "agent.sock")
    variables = environment(agent, 2, 8, 32, HEADWAY_CHECKPOINT_DIR=str(tmp_path / "checkpoints"))
    torchrun = ["-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=2", "--node-rank=0"]
    torchrun += [f"--master-addr={variables['MASTER_ADDR']}", f"--master-port={variables['MASTER_PORT']}"]
    options = ["--micro-batch=8", "--global-batch=32", "--steps=1000000"]
    asked: list[str] = []

    def hear(message: Message) -> None:
        if message["type"] == "step" and message["step"] >= 32 and not asked:
            asked.append("stop")
            agent.say({"type": "stop", "checkpoint": True, "grace_s": 30.0})

    run(agent, variables, [*torchrun, "five_lines.py", *options], hear)
    agent.hang_up()
    assert agent.of("hello")[0]["capabilities"] == {"batch": "restart", "layout": "restart"}
    steps = agent.of("step")
    assert any("noise" in step for step in steps)
    (saved,), (stopped,) = agent.of("checkpoint"), agent.of("stopped")
    assert saved["step"] == stopped["step"] == steps[-1]["step"]
    assert saved["samples_seen"] == 32 * saved["step"]
    assert steps[-1]["loss"] < 5.5, "below that of a uniform guess (ln 256)"


def fork(
    agent: FakeAgent, variables: dict[str, str], command: list[str], hear: Callable[[Message], None] = lambda _: None
) -> None:
    """A process for each rank, to its good end."""

    def main() -> int:
        torch.set_num_threads(1)
        sys.argv = command
        try:
            runpy.run_path(str(EXAMPLES / command[0]), run_name="__main__")
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    ranks = [str(rank) for rank in range(int(variables["WORLD_SIZE"]))]
    told = [{**variables, "RANK": rank, "LOCAL_RANK": rank, "GLOO_SOCKET_IFNAME": "lo"} for rank in ranks]
    workers = [Worker(main, each, agent.path.with_suffix(f".{each['RANK']}.log")) for each in told]
    try:
        agent.serve(lambda: all([worker.ended() for worker in workers]), hear=hear)
        agent.serve(lambda: not agent.connections, deadline_s=5.0)
    finally:
        for worker in workers:
            worker.kill()
    assert {worker.code for worker in workers} == {0}, [worker.output.read_text() for worker in workers]


def test_uneven_shares_are_followed_while_batches_change_and_after_a_restart(tmp_path: Path) -> None:
    agent = FakeAgent(tmp_path / "agent.sock")
    launched = environment(agent, 2, 4, 24, HEADWAY_CHECKPOINT_DIR=str(tmp_path / "saved"))
    wanted: list[Message] = []

    def hear(message: Message) -> None:
        if message["type"] == "step" and not wanted:
            wanted.append({**message["configuration"], "micro_batch": 8, "global_batch": 48})
            agent.say({"type": "configure", "revision": 0, "configuration": wanted[0], "lr_scale": 1.0})
        elif message["type"] == "step" and message["configuration"] in wanted:
            agent.say({"type": "stop", "checkpoint": True, "grace_s": 30.0})

    fork(agent, {**launched, "HEADWAY_SHARES": "1,2"}, ["uneven_shares.py"], hear)
    steps, (saved,) = agent.of("step"), agent.of("checkpoint")
    assert wanted[0]["execution"]["shares"] == {"slower": 1, "faster": 2, "of_faster": 1}
    seen = 0
    for step in steps:
        seen += step["steps"] * step["configuration"]["global_batch"]
        assert step["samples_seen"] == seen
    assert any("noise" in step for step in steps) and saved["samples_seen"] == seen

    agent.messages.clear()
    shares = {"HEADWAY_SHARES": "1", "HEADWAY_DP": "1", "WORLD_SIZE": "1"}
    fork(agent, {**launched, **shares, **resumed_from(saved)}, ["uneven_shares.py", f"--steps={saved['step'] + 5}"])
    assert agent.of("step")[-1]["samples_seen"] == seen + 5 * 24
    agent.hang_up()
