"""What one process knows of its agent: the connection, and what was asked since the script last looked."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from headway import said
from headway.anomaly import LossWatch
from headway.environment import Environment
from headway.message import Checkpoint, Configure, Directive, Stop, parse_directive
from headway.transport import Transport

log = logging.getLogger("headway")

PROTOCOL_VERSION = 1
BUSY_EVERY_S = 1.0


class Session:
    """What this process knows of its agent."""

    def __init__(self, environment: Environment, capabilities: dict[str, str], heartbeat_s: float) -> None:
        self.environment = environment
        self.capabilities = capabilities
        self._heartbeat_s = heartbeat_s
        self._lock = threading.Lock()
        self._stop: Stop | None = None
        self._configure: Configure | None = None
        self._revision = -1
        self._checkpoint = False
        self._terminated = False
        self._handles = False
        self._before: Callable[[int, FrameType | None], Any] | int | None = None
        self._transport: Transport | None = None
        self._losses = LossWatch()
        self._last_words: list[Callable[[], None]] = []
        self._startup_s = environment.startup_s
        self._busy_s, self._busy_steps, self._busy_told = 0.0, 0, time.monotonic()
        self._samples_seen = environment.samples_seen
        self._unheard_reports = 0
        self.configuration = environment.configuration
        self.offers = 0
        """Checkpoints that were offered."""

    def send(self, message: dict[str, Any], droppable: bool = False) -> None:
        self.transport().send(message, droppable)

    def busy(self, seconds: float, steps: int) -> None:
        """Summed up, so that a script may call it at every step."""
        self._busy_s += seconds
        self._busy_steps += steps
        now = time.monotonic()
        if now - self._busy_told >= BUSY_EVERY_S:
            self.send({"type": "busy", "steps": self._busy_steps, "busy_s": self._busy_s}, droppable=True)
            self._busy_s, self._busy_steps, self._busy_told = 0.0, 0, now

    def count_on(self, samples_seen: int) -> None:
        """Says what a script does that counts wrongly, or hears nothing."""
        if samples_seen <= self._samples_seen:
            said.once(
                "samples_seen",
                f"samples_seen goes from {self._samples_seen} to {samples_seen}: steps without new samples count for"
                " nothing. Count on from headway.joined().samples_seen",
            )
        self._samples_seen = max(self._samples_seen, samples_seen)
        self._unheard_reports += self._terminated
        if self._unheard_reports > 1:
            said.once("poll", "SIGTERM has come, and headway.poll is not called: this process will be killed unsaved")

    def loss(self, step: int, loss: float) -> None:
        """Tells of an odd one."""
        found = self._losses.see(loss)
        if found is not None:
            numbers = {"loss": found.loss, "usual": found.usual}
            told = {name: number for name, number in numbers.items() if number is not None}
            self.send({"type": "loss_anomaly", "step": step, **told})

    def phases(self, durations_s: dict[str, float]) -> None:
        """The first of them are those of the start."""
        startup_s, self._startup_s = self._startup_s, None
        before = {} if startup_s is None else {"startup": round(startup_s, 4)}
        self.send({"type": "phases", "phases": {**before, **durations_s}})

    def resharded(self, durations_s: dict[str, float]) -> None:
        self.send({"type": "phases", "phases": {f"reshard_{name}": took for name, took in durations_s.items()}})

    def transport(self) -> Transport:
        """Started on first use."""
        if self._transport is None:
            environment = self.environment
            hello = {
                "type": "hello",
                "version": PROTOCOL_VERSION,
                "job": environment.job_id,
                "generation": environment.generation,
                "secret": environment.secret,
                "rank": environment.rank,
                "pid": os.getpid(),
                "capabilities": self.capabilities,
            }
            self._transport = Transport(environment.socket, hello, self._receive, self._heartbeat_s)
            self._transport.start()
        return self._transport

    def next_directive(self) -> Directive | None:
        """Stop before configure before checkpoint: what ends the run makes the others moot."""
        self.transport()
        if self._handles and signal.getsignal(signal.SIGTERM) != self._on_sigterm:
            said.once(
                "SIGTERM",
                "another handler has taken SIGTERM since headway.init: set it before, and it is called as well, or say"
                " headway.init(handle_sigterm=False)",
            )
        if self._terminated:
            self._terminated = False
            self._unheard_reports = 0
            return Stop(checkpoint=True, grace_s=self.environment.grace_s, signalled=True)
        with self._lock:
            if self._stop is not None:
                stop, self._stop = self._stop, None
                return stop
            if self._configure is not None:
                configure, self._configure = self._configure, None
                self.configuration = configure.configuration
                return configure
            if self._checkpoint:
                self._checkpoint = False
                return Checkpoint()
        return None

    def handle_sigterm(self) -> None:
        if not _is_main_thread():
            log.warning(
                "headway.init was not called on the main thread: SIGTERM ends this process before it is asked to save"
            )
            return
        self._before = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        self._handles = True

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        """Touches one flag, takes no lock."""
        self._terminated = True
        if callable(self._before):
            self._before(number, frame)

    def _let_go_of_sigterm(self) -> None:
        """Unless the script has put another handler in the place of ours."""
        if _is_main_thread() and signal.getsignal(signal.SIGTERM) == self._on_sigterm:
            signal.signal(signal.SIGTERM, self._before if self._before is not None else signal.SIG_DFL)

    def before_close(self, say: Callable[[], None]) -> None:
        self._last_words.append(say)

    def say_last_words(self) -> None:
        """Once, so that one who closes in between is no loop."""
        words, self._last_words = self._last_words, []
        for say in words:
            say()

    def close(self, timeout_s: float) -> None:
        self._let_go_of_sigterm()
        said.forget()
        if self._transport is not None:
            self._transport.close(timeout_s)
            self._transport = None

    def _receive(self, message: dict[str, Any]) -> None:
        """On the transport's thread. Of several configurations only the newest counts."""
        directive = parse_directive(message)
        with self._lock:
            match directive:
                case Stop():
                    self._stop = directive
                case Checkpoint():
                    self._checkpoint = True
                case Configure(revision=revision) if revision > self._revision:
                    self._revision = revision
                    self._configure = directive


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
