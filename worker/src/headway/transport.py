"""A connection to the agent that never blocks or breaks training: a daemon thread that speaks JSON lines over a unix
socket, reconnects with backoff, and forgets the oldest step reports first when the agent is away."""

from __future__ import annotations

import contextlib
import json
import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

log = logging.getLogger("headway")

MAX_LINE_BYTES = 64 * 1024
MAX_QUEUED = 256
FIRST_BACKOFF_S = 0.1
MAX_BACKOFF_S = 10.0
WELCOME_TIMEOUT_S = 10.0


class _Disconnected(Exception):
    """The conversation is over; the reason is for the log."""


class Transport:
    """Queues messages out, hands messages in to `on_message` (called on the transport's thread)."""

    def __init__(
        self,
        path: str,
        hello: Mapping[str, Any],
        on_message: Callable[[dict[str, Any]], None],
        heartbeat_s: float = 5.0,
    ) -> None:
        self._path = path
        self._hello = _encode(hello)
        self._on_message = on_message
        self._heartbeat_s = heartbeat_s
        self._lock = threading.Lock()
        self._outbox: deque[tuple[bool, bytes]] = deque()
        self._current = b""  # the line being sent; sent again from its start after a reconnect
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._closing = threading.Event()
        self._deadline = float("inf")
        self._thread = threading.Thread(target=self._run, name="headway", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def send(self, message: Mapping[str, Any], droppable: bool) -> None:
        """Queues a message; a full queue gives up its oldest droppable one."""
        line = _encode(message)
        if len(line) > MAX_LINE_BYTES:
            log.warning("message of %d bytes is too long and was dropped", len(line))
            return
        with self._lock:
            if len(self._outbox) >= MAX_QUEUED:
                oldest = next((i for i, (may_drop, _) in enumerate(self._outbox) if may_drop), 0)
                del self._outbox[oldest]
            self._outbox.append((droppable, line))
        self._wake()

    def close(self, timeout_s: float) -> None:
        """Sends what is queued if the agent takes it within the time, then ends the thread."""
        self._deadline = time.monotonic() + timeout_s
        self._closing.set()
        self._wake()
        self._thread.join(timeout_s + 1.0)
        if not self._thread.is_alive():
            self._wake_read.close()
            self._wake_write.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # a full pipe already wakes the thread; a closed one has none
            self._wake_write.send(b"\0")

    def _finished(self) -> bool:
        if not self._closing.is_set():
            return False
        with self._lock:
            empty = not self._outbox and not self._current
        return empty or time.monotonic() >= self._deadline

    def _run(self) -> None:
        backoff = FIRST_BACKOFF_S
        while not self._finished():
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                    connection.settimeout(1.0)
                    connection.connect(self._path)
                    connection.setblocking(False)
                    _Conversation(self, connection).run()
            except (_Disconnected, OSError) as error:
                log.debug("agent connection ended: %s", error)
                if isinstance(error, _Disconnected) and error.args[1]:
                    backoff = FIRST_BACKOFF_S
            except Exception:  # whatever it was: without this thread the scheduler would never hear of the job again
                log.exception("agent connection broke; connecting again")
            if self._closing.is_set():
                time.sleep(FIRST_BACKOFF_S if not self._finished() else 0.0)
            else:
                self._closing.wait(backoff)
                backoff = min(2.0 * backoff, MAX_BACKOFF_S)


class _Conversation:
    """One connection: hello, welcome, then lines both ways and heartbeats."""

    def __init__(self, transport: Transport, connection: socket.socket) -> None:
        self._transport = transport
        self._connection = connection
        self._sending = memoryview(transport._hello)
        self._sending_current = False
        self._welcomed = False
        self._incoming = b""
        self._opened = time.monotonic()
        self._heartbeat_at = self._opened + transport._heartbeat_s

    def run(self) -> None:
        """Returns when the transport is done; raises _Disconnected or OSError otherwise."""
        wake = self._transport._wake_read
        with selectors.DefaultSelector() as selector:  # unlike select(), for descriptors of any number
            selector.register(wake, selectors.EVENT_READ)
            selector.register(self._connection, selectors.EVENT_READ)
            while not self._transport._finished():
                self._next_line()
                now = time.monotonic()
                if not self._welcomed and now > self._opened + WELCOME_TIMEOUT_S:
                    raise _Disconnected("no welcome", False)
                # An overdue heartbeat that cannot go out yet is nothing to wake up for.
                idle = self._welcomed and not self._sending
                timeout = max(0.0, min(self._heartbeat_at - now, 1.0)) if idle else 1.0
                write = selectors.EVENT_WRITE if self._sending else 0
                selector.modify(self._connection, selectors.EVENT_READ | write)
                ready = {key.fileobj: events for key, events in selector.select(timeout)}
                if wake in ready:
                    wake.recv(4096)
                events = ready.get(self._connection, 0)
                if events & selectors.EVENT_READ:
                    self._receive()
                if events & write:
                    self._sending = self._sending[self._connection.send(self._sending) :]

    def _next_line(self) -> None:
        """Chooses what to send once the line before is out. Nothing but hello goes before the welcome."""
        if self._sending:
            return
        transport = self._transport
        if self._sending_current:
            transport._current = b""
            self._sending_current = False
        if not self._welcomed:
            return
        with transport._lock:
            if not transport._current and transport._outbox:
                transport._current = transport._outbox.popleft()[1]
        if transport._current:
            self._sending = memoryview(transport._current)
            self._sending_current = True
        elif time.monotonic() >= self._heartbeat_at:
            self._sending = memoryview(_HEARTBEAT)
            self._heartbeat_at = time.monotonic() + transport._heartbeat_s

    def _receive(self) -> None:
        data = self._connection.recv(MAX_LINE_BYTES)
        if not data:
            raise _Disconnected("closed by the agent", self._welcomed)
        *lines, self._incoming = (self._incoming + data).split(b"\n")
        if len(self._incoming) > MAX_LINE_BYTES:
            raise _Disconnected("line too long", False)
        for line in lines:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if not isinstance(message, dict):
                continue
            if message.get("type") == "welcome":
                self._welcomed = True
            elif message.get("type") == "refused":
                log.warning("the agent refused this worker: %s", message.get("reason"))
                raise _Disconnected("refused", False)
            else:
                self._transport._on_message(message)


def _encode(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"


_HEARTBEAT = _encode({"type": "heartbeat"})
