"""The calls a training script makes. State is one session per process; a forked child begins with none.

Nothing here waits for the agent, except `close`, for a bounded time. The thread starts with the first `poll`, `report`
or other message, so a script may fork after `init`.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from headway.anomaly import LossWatch
from headway.environment import Environment
from headway.message import Checkpoint, Configuration, Configure, Directive, Stop, parse_directive
from headway.noise import NoiseSample
from headway.numbers import Number, complain, real, whole
from headway.transport import Transport
from headway.window import StepSummary

log = logging.getLogger("headway")

PROTOCOL_VERSION = 1
BUSY_EVERY_S = 1.0


class _Session:
    """What this process knows of its agent."""

    def __init__(self, environment: Environment, capabilities: dict[str, str], heartbeat_s: float) -> None:
        self._environment = environment
        self.capabilities = capabilities
        self._heartbeat_s = heartbeat_s
        self._lock = threading.Lock()
        self._stop: Stop | None = None
        self._configure: Configure | None = None
        self._revision = -1
        self._checkpoint = False
        self._terminated = False
        self._before: Callable[[int, FrameType | None], Any] | int | None = None
        self._transport: Transport | None = None
        self._losses = LossWatch()
        self._last_words: list[Callable[[], None]] = []
        self._startup_s = environment.startup_s
        self._busy_s, self._busy_steps, self._busy_told = 0.0, 0, time.monotonic()
        self.configuration = environment.configuration

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
            environment = self._environment
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
            atexit.register(close)
        return self._transport

    def next_directive(self) -> Directive | None:
        """Stop before configure before checkpoint: what ends the run makes the others moot."""
        self.transport()
        if self._terminated:
            self._terminated = False
            return Stop(checkpoint=True, grace_s=self._environment.grace_s, signalled=True)
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


_session: _Session | None = None


def init(
    *, batch: str = "live", layout: str = "restart", handle_sigterm: bool = True, heartbeat_s: float = 5.0
) -> Environment | None:
    """Joins the Headway job this process was launched for; None (and every later call a no-op) outside Headway.

    `batch` and `layout` say how the script takes a change: "live", "restart" or "never". With `handle_sigterm`,
    SIGTERM makes `poll` return `Stop(checkpoint=True, signalled=True)` instead of ending the process; a handler that the
    script had before is called as well, and is in place again after `close`. Python lets only the main thread do that.

    Raises RuntimeError where this process has joined already and has not left by `close`.
    """
    global _session
    if _session is not None:
        raise RuntimeError("headway.init was called before in this process: call it once, or headway.close() between")
    environment = Environment.read(os.environ)
    if environment is None:
        return None
    _session = _Session(environment, {"batch": batch, "layout": layout}, heartbeat_s)
    if handle_sigterm:
        _session.handle_sigterm()
    return environment


def joined() -> Environment | None:
    """What `init` found; None outside Headway."""
    return None if _session is None else _session._environment


def promised_live_batch() -> bool:
    """Whether `init` was told that the script follows another batch while it runs."""
    return _session is not None and _session.capabilities["batch"] == "live"


def poll() -> Directive | None:
    """The next thing the scheduler asks for. Call it on rank 0 at a step boundary and let every rank do the same."""
    return None if _session is None else _session.next_directive()


def report(
    *,
    step: Number,
    samples_seen: Number,
    tokens: Number,
    duration_s: Number,
    steps: Number = 1,
    configuration: Configuration | None = None,
    loss: Number | None = None,
    noise: NoiseSample | None = None,
    preconditioned: NoiseSample | None = None,
    memory_peak: Number | None = None,
) -> None:
    """Tells of finished optimizer steps: about once a second, see `StepWindow`. Old reports give way to new ones.

    Numbers may be of any library. What is no number raises, with its name and outside Headway too; of a duration that
    is not finite nothing is reported, which is said once.

    A `loss` that is no finite number, or far above what was usual, is told as an anomaly besides. `noise` are the
    squares of the gradients as they are, `preconditioned` of the gradients as Adam scales them: the job goes by one.

    `memory_peak`: most bytes of device memory held since this configuration began on the fullest GPU known, as
    `torch.cuda.max_memory_reserved()`.
    """
    counts = {"step": step, "steps": steps, "samples_seen": samples_seen, "tokens": tokens}
    message: dict[str, Any] = {"type": "step", **{name: whole(name, count) for name, count in counts.items()}}
    took = real("duration_s", duration_s)
    lost = None if loss is None else real("loss", loss)
    peak = None if memory_peak is None else whole("memory_peak", memory_peak)
    if _session is None:
        return
    if lost is not None:
        _session.loss(message["step"], lost)
    if not math.isfinite(took) or took < 0.0:
        return complain("duration_s", took)
    message["duration_s"] = took
    configuration = configuration or _session.configuration
    if configuration is not None:
        message["configuration"] = configuration.to_json()
    if lost is not None and math.isfinite(lost):
        message["loss"] = lost
    if noise is not None and noise.is_finite():
        message["noise"] = noise.to_json()
    if preconditioned is not None and preconditioned.is_finite():
        message["preconditioned"] = preconditioned.to_json()
    if peak is not None and peak > 0:
        message["memory_peak"] = peak
    _session.send(message, droppable=True)


def report_steps(summary: StepSummary, memory_peak: int | None = None) -> None:
    """The same of what a `StepWindow` has gathered."""
    report(**vars(summary), memory_peak=memory_peak)


def loss(step: Number, value: Number) -> None:
    """Looks at the loss of a step that is not reported, such as one given up because it is no number: an odd one is
    told."""
    at, lost = whole("step", step), real("value", value)
    if _session is not None:
        _session.loss(at, lost)


def busy(seconds: Number, *, steps: Number = 1) -> None:
    """Tells how long this rank worked on a step, without waiting for others: that is how stragglers are found.

    Call it on every rank, at every step; it costs one message a second.
    """
    worked, count = real("seconds", seconds), whole("steps", steps)
    if _session is not None and math.isfinite(worked) and worked >= 0.0 and count > 0:
        _session.busy(worked, count)


def phases(durations_s: dict[str, float]) -> None:
    """Tells where the time from launch to the first step went: import, rendezvous, load, first_step. What came before
    the script is added: startup."""
    if _session is not None:
        _session.phases(durations_s)


def resharded(durations_s: dict[str, float]) -> None:
    """What another layout, taken without a restart, has cost by phase; a script that does so says `layout="live"`."""
    if _session is not None:
        _session.resharded(durations_s)


def checkpoint_done(*, step: int, samples_seen: int, path: str, manifest_sha256: str, duration_s: float) -> None:
    """Offers a complete checkpoint. It counts once the scheduler has committed it."""
    if _session is None:
        return
    _session.send(
        {
            "type": "checkpoint",
            "step": step,
            "samples_seen": samples_seen,
            "path": path,
            "manifest_sha256": manifest_sha256,
            "duration_s": duration_s,
        }
    )


def stopped(*, step: int, samples_seen: int) -> None:
    """Says that this worker stops because it was asked to; exit right after, with `Stop.exit_code`."""
    if _session is not None:
        _session.send({"type": "stopped", "step": step, "samples_seen": samples_seen})


def before_close(say: Callable[[], None]) -> None:
    """Has `say` called at the beginning of `close`, while it can still report: for what gathers steps."""
    if _session is not None:
        _session.before_close(say)


def close(timeout_s: float = 5.0) -> None:
    """Delivers what is queued, for at most `timeout_s`. Also runs when the interpreter exits, unless nothing was ever
    said or asked."""
    global _session
    if _session is not None:
        _session.say_last_words()
        session, _session = _session, None
        session.close(timeout_s)


def _forget() -> None:
    """A thread does not survive a fork, and a child must not speak with its parent's connection."""
    global _session
    _session = None


os.register_at_fork(after_in_child=_forget)
