"""Jobs of several ranks under a stand-in for the agent, whose script is somebody else's and is followed by an
integration."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agent import FakeAgent, Message, environment
from test_adapters import blocks

from headway import checkpoint

SOAK = Path(__file__).parent
MICRO, GLOBAL = 1, 4  # a sample each, so that the small squares of every layout are of the same gradients
FOR_EVER = 1_000_000


@dataclass(frozen=True)
class Degrees:
    dp: int = 1
    tp: int = 1
    pp: int = 1

    @property
    def ranks(self) -> int:
        return self.dp * self.tp * self.pp


LAYOUTS = {
    "dp 2": Degrees(dp=2),
    "tp 2": Degrees(tp=2),
    "pp 2": Degrees(pp=2),
    "dp 2, tp 2": Degrees(dp=2, tp=2),
    "dp 2, pp 2": Degrees(dp=2, pp=2),
    "tp 2, pp 2": Degrees(tp=2, pp=2),
}


@dataclass
class Ran:
    """One launch that has ended, and the lines that its ranks wrote below $SEEN."""

    messages: list[Message]
    seen: list[dict[str, Any]]
    code: int
    log: str

    def of(self, kind: str) -> list[Message]:
        return [each for each in self.messages if each["type"] == kind]

    def well(self) -> Ran:
        assert self.code == 0, self.log[-8000:]
        return self

    def offer(self) -> Message:
        """The only one, whole on disk, at which it stopped."""
        assert len(self.of("checkpoint")) == 1, self.log[-8000:]
        (offer,), (stopped,) = self.of("checkpoint"), self.of("stopped")
        checkpoint.verify(offer["path"], checkpoint.read_manifest(offer["path"]))
        assert offer["step"] == stopped["step"]
        return offer


Stops = Callable[[FakeAgent, int], None]


def by_signal(_: FakeAgent, process: int) -> None:
    os.kill(process, signal.SIGTERM)


def by_order(agent: FakeAgent, _: int) -> None:
    agent.say({"type": "stop", "checkpoint": True, "grace_s": 30.0})


def launch(
    folder: Path, degrees: Degrees, script: str, arguments: Iterable[object], stops: Stops | None = None, **more: str
) -> Ran:
    """To its end; after two reports `stops` is called with the process that leads the ranks."""
    agent = FakeAgent(folder / "agent.sock")
    seen, log = folder / f"seen-{len(list(folder.glob('seen-*')))}", folder / "log"
    seen.mkdir()
    told = environment(agent, degrees.dp, MICRO, GLOBAL, HEADWAY_CHECKPOINT_DIR=str(folder / "saved"))
    told |= {"HEADWAY_TP": str(degrees.tp), "HEADWAY_PP": str(degrees.pp), "GPUS_PER_NODE": str(degrees.ranks)}
    path = os.pathsep.join([str(SOAK.parent / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    told |= {"PYTHONPATH": path, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "SEEN": str(seen), **more}
    run = ["-m", "torch.distributed.run", f"--nproc-per-node={degrees.ranks}", f"--master-port={told['MASTER_PORT']}"]
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, *run, str(SOAK / script), *map(str, arguments)],
            cwd=folder,
            env={**os.environ, **told},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    def hear(message: Message) -> None:
        nonlocal stops
        if message["type"] == "step" and stops is not None and len(agent.of("step")) == 2:
            stops(agent, process.pid)
            stops = None

    try:
        agent.serve(lambda: process.poll() is not None, deadline_s=600.0, hear=hear)
        agent.serve(lambda: not agent.connections, deadline_s=5.0)
    finally:
        if process.poll() is None:  # its ranks are groups of their own, which it ends itself
            process.terminate()
            process.wait(timeout=60.0)
        agent.hang_up()
    lines = [json.loads(line) for file in sorted(seen.iterdir()) for line in file.read_text().splitlines()]
    return Ran(list(agent.messages), lines, int(process.returncode), log.read_text())


def page_script(name: str, folder: Path) -> str:
    """What stands on the page, in a file."""
    (script,) = blocks(name, "python")
    (folder / "page.py").write_text(script)
    return str(folder / "page.py")


def agree(name: str, ran: Ran, truth: Ran, within: float = 1e-4) -> None:
    """Loss and both squares of each step, as they were told."""
    told, expected = ran.well().of("step"), truth.of("step")
    assert [(each["step"], each["samples_seen"]) for each in told] == [
        (each["step"], each["samples_seen"]) for each in expected
    ]
    for step, other in zip(told, expected, strict=True):
        apart = {"loss": step["loss"] / other["loss"] - 1.0}
        apart |= {part: step["noise"][part] / other["noise"][part] - 1.0 for part in ("small_sqr", "big_sqr")}
        print(f"\n{name}, step {step['step']}: " + ", ".join(f"{part} {by:+.1e}" for part, by in apart.items()))
        assert max(map(abs, apart.values())) < within
        batches = [[each["noise"][part] for part in ("small_batch", "big_batch")] for each in (step, other)]
        assert batches[0] == pytest.approx(batches[1], rel=1e-6)


def exact(told: Message, small: Iterable[float], big: float) -> None:
    """Against the squares of each sample's gradient of its share in the mean loss, and of their sum."""
    assert told["noise"]["small_sqr"] == pytest.approx(GLOBAL * sum(small), rel=1e-4)
    assert told["noise"]["big_sqr"] == pytest.approx(big, rel=1e-4)
