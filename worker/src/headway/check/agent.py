"""A stand-in for the node's agent: speaks the worker protocol on a unix socket, without a thread."""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

Message = dict[str, Any]
LISTEN_S = 0.02


class Agent:
    """Accepts workers, records what they say, tells them what it is told to."""

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

    def serve_once(self, hear: Callable[[Message], None] = lambda _: None) -> bool:
        """What has come within `LISTEN_S`, and whether anything has; `hear` is called with every message."""
        with selectors.DefaultSelector() as selector:
            for each in [self._listener, *self.connections]:
                if each is not None:
                    selector.register(each, selectors.EVENT_READ)
            readable = [key.fileobj for key, _ in selector.select(LISTEN_S)]
        for ready in readable:
            each = cast(socket.socket, ready)
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
                message = _read(line)
                self.messages.append(message)
                if message["type"] == "hello" and self.welcoming:
                    self._tell(each, b'{"type":"welcome"}\n')
                hear(message)
        return bool(readable)


def _read(line: bytes) -> Message:
    """What is no message of the protocol is one of type `malformed`."""
    with contextlib.suppress(ValueError):
        message = json.loads(line)
        if isinstance(message, dict) and isinstance(message.get("type"), str):
            return message
    return {"type": "malformed", "line": line.decode(errors="replace")}
