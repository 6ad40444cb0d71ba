"""The stand-in for the node's agent as tests use it, and workers that they fork."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import headway
from headway.check.agent import Agent, Message
from headway.check.launch import free_port

JOB = "3f0c1a52-0000-4000-8000-000000000001"


class FakeAgent(Agent):
    """The stand-in, and patience with what a test waits for."""

    def serve(
        self, until: Callable[[], bool], deadline_s: float = 60.0, hear: Callable[[Message], None] = lambda _: None
    ) -> None:
        """Serves until the condition holds; `hear` is called with every message."""
        end = time.monotonic() + deadline_s
        while not until():
            assert time.monotonic() < end, f"condition not met in {deadline_s} s; heard {self.messages[-5:]}"
            self.serve_once(hear)

    def see_out(self, worker: Worker, hear: Callable[[Message], None] = lambda _: None, code: int = 0) -> None:
        """Serves until the worker has ended by itself, with this code, and all that it said is heard."""
        try:
            self.serve(worker.ended, hear=hear)
            self.serve(lambda: not self.connections, deadline_s=5.0)
        finally:
            worker.kill()
            self.hang_up()
        assert worker.code == code, worker.output.read_text()


def resumed_from(offer: Message) -> dict[str, str]:
    """What a second generation is launched with to go on from a checkpoint that was offered."""
    return {
        "HEADWAY_GENERATION": "2",
        "HEADWAY_RESUME_PATH": offer["path"],
        "HEADWAY_RESUME_STEP": str(offer["step"]),
        "HEADWAY_RESUME_MANIFEST_SHA256": offer["manifest_sha256"],
        "HEADWAY_SAMPLES_SEEN": str(offer["samples_seen"]),
    }


def environment(agent: FakeAgent, dp: int, micro_batch: int, global_batch: int, **more: str) -> dict[str, str]:
    """What the real agent would launch a one-node worker group with."""
    return {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(dp),
        "GPUS_PER_NODE": str(dp),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "HEADWAY_SOCKET": str(agent.path),
        "HEADWAY_SECRET": "5ec2e7",
        "HEADWAY_JOB_ID": JOB,
        "HEADWAY_GENERATION": "1",
        "HEADWAY_DP": str(dp),
        "HEADWAY_TP": "1",
        "HEADWAY_PP": "1",
        "HEADWAY_MICRO_BATCH": str(micro_batch),
        "HEADWAY_GLOBAL_BATCH": str(global_batch),
        "HEADWAY_LR_SCALE": "1",
        **more,
    }


class Worker:
    """A forked trainer, run as `python -m headway.trainer` would be, without importing torch again."""

    def __init__(self, main: Callable[[], int], variables: dict[str, str], output: Path) -> None:
        self.code: int | None = None
        self.output = output
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            gc.freeze()  # a collection would copy all the memory that is shared with the parent
            try:
                os.setsid()
                descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(descriptor, 1)
                os.dup2(descriptor, 2)
                os.environ.update(variables)
                code = main()
                headway.close()  # as at an interpreter's end
            finally:
                os._exit(code)

    def ended(self) -> bool:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def kill(self) -> None:
        if not self.ended():
            os.killpg(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
            self.code = os.waitstatus_to_exitcode(status)
