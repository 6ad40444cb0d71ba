"""The scripts of examples/training as a person starts them, each in an interpreter of its own, under a fake agent."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from agent import FakeAgent, Message, environment

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
