"""An untouched script, run and read."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest
from agent import FakeAgent, Message, Worker, environment

from headway import watch
from headway.watch import Reader, Sizes

LINE = r"step (?P<step>[\d,]+).* loss (?P<loss>\S+)"
SIZES = Sizes(samples=8, tokens=None, sequence_length=16)

SCRIPT = """
import signal, sys
for step in range(1, 1 + int(sys.argv[1])):
    print(f"step {step} of many, loss {4.0 / step:.4f}", flush=True)
if sys.argv[2] == "stay":
    signal.pause()
sys.exit(int(sys.argv[2]))
"""


def reader(pattern: str = LINE) -> Reader:
    return Reader(re.compile(pattern), SIZES, samples_seen=100, started=0.0)


def test_a_line_becomes_a_report() -> None:
    lines = reader()
    assert lines.read("step 1 loss 5.0", 9.0) is None, "its time holds the start"
    assert lines.read("saved a checkpoint", 9.5) is None
    told = {"step": 3, "steps": 2, "samples_seen": 124, "tokens": 256, "duration_s": 2.0, "loss": 4.5}
    assert lines.read("  step 3, loss 4.5", 11.0) == told


def test_what_the_script_says_of_a_step_counts() -> None:
    pattern = r"it (?P<step>\d+) (?P<seconds>\S+) s/it (?P<tokens>\S+) tokens (?P<samples>\d+) sequences"
    told = reader(pattern).read("it 1,0 0.5 s/it", 1.0)
    assert told is None
    told = reader(pattern).read("it 10 0.5 s/it 4,096 tokens 4 sequences", 1.0)
    assert told == {"step": 10, "steps": 1, "samples_seen": 104, "tokens": 4096, "duration_s": 0.5}


def test_megatrons_line_is_read() -> None:
    """As it prints it."""
    pattern = (
        r"iteration +(?P<step>\d+)/.*consumed samples: +(?P<consumed>\d+).*"
        r"iteration \(ms\): (?P<milliseconds>[\d.]+).*lm loss: (?P<loss>\S+)"
    )
    line = (
        " [2026-08-22 15:22:22.000001] iteration       10/   50000 | consumed samples:         2560 | "
        "elapsed time per iteration (ms): 1250.5 | learning rate: 3.000000E-05 | global batch size:   256 | "
        "lm loss: 8.123456E+00 | loss scale: 1.0 | grad norm: 2.345 | number of skipped iterations:   0 |"
    )
    told = reader(pattern).read(line, 1.0)
    assert told is not None
    assert (told["step"], told["samples_seen"], told["duration_s"], told["loss"]) == (10, 2560, 1.2505, 8.123456)


def test_torchtitans_coloured_line_is_read() -> None:
    line = "\x1b[31mstep: 20  \x1b[32mloss:  4.81234  \x1b[38;2;180;60;0mgrad_norm:  1.2345  \x1b[36mmemory: 10.00GiB"
    lines = Reader(re.compile(r"step: +(?P<step>\d+) .*?loss: +(?P<loss>[\d.]+)"), Sizes(8, None, 16, True), 0, 0.0)
    assert lines.read(line.replace("step: 20", "step: 10"), 1.0) is None
    told = lines.read(line, 6.0)
    assert told == {"step": 20, "steps": 10, "samples_seen": 160, "tokens": 1280, "duration_s": 5.0, "loss": 4.81234}


def test_an_old_step_and_nonsense_are_ignored() -> None:
    lines = reader()
    lines.read("step 7 loss 1", 1.0)
    assert lines.read("step 7 loss 1", 2.0) is None
    assert lines.read("step , loss 1", 2.0) is None
    told = lines.read("step 8 loss nan?", 3.0)
    assert told is not None and "loss" not in told


@pytest.mark.parametrize("pattern", ["(", "loss (?P<loss>.)", "(?P<step>.)(?P<mood>.)"])
def test_a_pattern_that_cannot_work_is_refused(pattern: str) -> None:
    with pytest.raises(SystemExit):
        watch.main(["--line", pattern, "--", "true"])


def run(
    tmp_path: Path, steps: int, end: str, code: int, order: Message | None = None, opaque: bool = False
) -> FakeAgent:
    agent = FakeAgent(tmp_path / "agent.sock")
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "train.py"), str(steps), end]
    arguments = ["--line", LINE, "--sequence-length", "16", "--", *command]
    variables = environment(agent, 1, 2, 8)
    if opaque:
        arguments = ["--samples-per-step", "6", *arguments]
        variables = {name: value for name, value in variables.items() if not name.endswith(("_BATCH", "_DP"))}
    worker = Worker(lambda: watch.main(arguments), variables, tmp_path / "log")

    def hear(message: Message) -> None:
        if order is not None and message["type"] == "step" and message["step"] == 5:
            agent.say(order)

    began = time.monotonic()
    agent.see_out(worker, hear, code)
    assert time.monotonic() - began < 50.0
    return agent


def test_a_scripts_steps_are_reported(tmp_path: Path) -> None:
    agent = run(tmp_path, 20, "0", 0)
    last = agent.of("step")[-1]
    assert (last["step"], last["samples_seen"], last["tokens"], last["loss"]) == (20, 160, 128, 0.2)
    assert agent.of("hello")[0]["capabilities"] == {"batch": "never", "layout": "never"}


def test_a_job_without_a_model_is_reported_too(tmp_path: Path) -> None:
    last = run(tmp_path, 20, "0", 0, opaque=True).of("step")[-1]
    assert last["configuration"] == {"layout": {"dp": 1, "tp": 1, "pp": 1}, "micro_batch": 6, "global_batch": 6}
    assert last["samples_seen"] == 120


def test_a_scripts_failure_is_its_own(tmp_path: Path) -> None:
    run(tmp_path, 3, "7", 7)


def test_an_ordered_stop_ends_the_script_and_is_no_failure(tmp_path: Path) -> None:
    run(tmp_path, 20, "stay", 0, order={"type": "stop", "checkpoint": True, "grace_s": 30.0})
