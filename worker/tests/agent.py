"""A stand-in for the node's agent: speaks the worker protocol on a unix socket, without a thread, as tests fork."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headway

Message = dict[str, Any]
JOB = "3f0c1a52-0000-4000-8000-000000000001"


class FakeAgent:
    """Accepts workers, records what they say, says what a test wants said."""

    def __init__(self, path: Path, welcoming: bool = True) -> None:
        self.path = path
        self.messages: list[Message] = []
        self.welcoming = welcoming
        self.connections: list[socket.socket] = []
        self._buffers: dict[socket.socket, bytes] = {}
        self._listener: socket.socket | None = None
        self.listen()

    def listen(self) -> None:
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen()

    def hang_up(self) -> None:
        """The agent dies: listener and connections are gone."""
        for each in [*self.connections, self._listener]:
            if each is not None:
                each.close()
        self._listener = None
        self.connections.clear()
        self._buffers.clear()

    def say(self, *messages: Message) -> None:
        self.say_raw(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def say_raw(self, data: bytes) -> None:
        for connection in self.connections:
            self._tell(connection, data)

    @staticmethod
    def _tell(connection: socket.socket, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a worker may just have left
            connection.sendall(data)

    def of(self, kind: str) -> list[Message]:
        return [message for message in self.messages if message["type"] == kind]

    def serve(
        self, until: Callable[[], bool], deadline_s: float = 60.0, hear: Callable[[Message], None] = lambda _: None
    ) -> None:
        """Serves until the condition holds; `hear` is called with every message."""
        end = time.monotonic() + deadline_s
        while not until():
            assert time.monotonic() < end, f"condition not met in {deadline_s} s; heard {self.messages[-5:]}"
            self.serve_once(hear)

    def serve_once(self, hear: Callable[[Message], None]) -> None:
        with selectors.DefaultSelector() as selector:
            for each in [self._listener, *self.connections]:
                selector.register(each, selectors.EVENT_READ)
            readable = [key.fileobj for key, _ in selector.select(0.02)]
        for each in readable:
            if each is self._listener:
                connection, _ = each.accept()
                self.connections.append(connection)
                self._buffers[connection] = b""
                continue
            try:
                data = each.recv(65536)
            except ConnectionResetError:  # killed with our word unread; what it said before has been read
                data = b""
            if not data:
                self.connections.remove(each)
                each.close()
                continue
            *lines, self._buffers[each] = (self._buffers[each] + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                self.messages.append(message)
                if message["type"] == "hello" and self.welcoming:
                    self._tell(each, b'{"type":"welcome"}\n')
                hear(message)


def environment(agent: FakeAgent, dp: int, micro_batch: int, global_batch: int, **more: str) -> dict[str, str]:
    """What the real agent would launch a one-node worker group with."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(dp),
        "GPUS_PER_NODE": str(dp),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
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
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
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
