"""The calls a training script makes. State is one session per process; a forked child begins with none.

Nothing here waits for the agent, except `close`, for a bounded time. The thread starts with the first `poll`, `report`
or other message, so a script may fork after `init`.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
from collections.abc import Callable
from typing import Any

from headway import said
from headway.environment import Environment
from headway.group_end import end_groups_at_exit
from headway.message import Configuration, Directive
from headway.noise import NoiseSample
from headway.numbers import Number, count, real, whole
from headway.offers import wrong_with
from headway.session import Session
from headway.window import StepSummary

log = logging.getLogger("headway")

WAYS = ("live", "restart", "never")


_session: Session | None = None


def init(
    *, batch: str = "live", layout: str = "restart", handle_sigterm: bool = True, heartbeat_s: float = 5.0
) -> Environment | None:
    """Joins the Headway job this process was launched for; None (and every later call a no-op) outside Headway.

    `batch` and `layout` say how the script takes a change: "live", "restart" or "never". With `handle_sigterm`,
    SIGTERM makes `poll` return `Stop(checkpoint=True, signalled=True)` instead of ending the process; a handler that
    the script had before is called as well, and is in place again after `close`. Python lets only the main thread do
    that.

    Raises ValueError where `batch` or `layout` is none of these words, RuntimeError where this process has joined
    already and has not left by `close`.
    """
    global _session
    for name, way in (("batch", batch), ("layout", layout)):
        if way not in WAYS:
            raise ValueError(f"{name} must be one of {', '.join(WAYS)}, not {way!r}")
    if _session is not None:
        raise RuntimeError("headway.init was called before in this process: call it once, or headway.close() between")
    environment = Environment.read(os.environ)
    if environment is None:
        return None
    said.forget()
    _session = Session(environment, {"batch": batch, "layout": layout}, heartbeat_s)
    end_groups_at_exit()
    atexit.register(close)
    if handle_sigterm:
        _session.handle_sigterm()
    return environment


def joined() -> Environment | None:
    """What `init` found; None outside Headway."""
    return None if _session is None else _session.environment


def _joined_session() -> Session | None:
    """What is told outside of the session of a Headway job goes nowhere."""
    if _session is None and os.environ.get("HEADWAY_SOCKET"):
        said.once("init", "Headway is told nothing: headway.init was not called in this process, or close was since")
    return _session


def promised_live_batch() -> bool:
    """Whether `init` was told that the script follows another batch while it runs."""
    return _session is not None and _session.capabilities["batch"] == "live"


def poll() -> Directive | None:
    """The next thing the scheduler asks for. Call it on rank 0 at a step boundary and let every rank do the same."""
    session = _joined_session()
    return None if session is None else session.next_directive()


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

    Numbers may be of any library. What is no number, of the wrong type or negative raises TypeError or ValueError with
    its name, outside Headway too. What the scheduler could make nothing of is left out, which is said once: a duration
    that is not finite and positive, noise that cannot be, a report of a job without a configuration that has none.

    A `loss` that is no finite number, or far above what was usual, is told as an anomaly besides. `noise` are the
    squares of the gradients as they are, `preconditioned` of the gradients as Adam scales them: the job goes by one.

    `memory_peak`: most bytes of device memory held since this configuration began on the fullest GPU known, as
    `torch.cuda.max_memory_reserved()`.
    """
    counts = {"step": step, "samples_seen": samples_seen, "tokens": tokens}
    message: dict[str, Any] = {"type": "step", **{name: count(name, number) for name, number in counts.items()}}
    message["steps"] = count("steps", steps, least=1)
    took = real("duration_s", duration_s)
    lost = None if loss is None else real("loss", loss)
    peak = None if memory_peak is None else whole("memory_peak", memory_peak)
    _require("configuration", configuration, Configuration)
    squares = {"noise": noise, "preconditioned": preconditioned}
    for name, sample in squares.items():
        _require(name, sample, NoiseSample)
    session = _joined_session()
    if session is None:
        return
    if lost is not None:
        session.loss(message["step"], lost)
    if not math.isfinite(took) or took <= 0.0:
        return said.once("duration_s", f"a report is left out: duration_s is {took}")
    message["duration_s"] = took
    configuration = configuration or session.configuration
    if configuration is None:
        return said.once(
            "configuration", "a report is left out: the job was launched without one, so give configuration"
        )
    message["configuration"] = configuration.to_json()
    if lost is not None and math.isfinite(lost):
        message["loss"] = lost
    message |= {name: told for name, sample in squares.items() if (told := _told_squares(name, sample)) is not None}
    if peak is not None and peak > 0:
        message["memory_peak"] = peak
    session.count_on(message["samples_seen"])
    session.send(message, droppable=True)


def _require(name: str, value: object, kind: type) -> None:
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{name} must be a headway.{kind.__name__}, not {type(value).__name__}")


def _told_squares(name: str, sample: NoiseSample | None) -> dict[str, float] | None:
    """None, which is said once, where no gradients can have these squares."""
    if sample is None:
        return None
    told = {part: real(f"{name}.{part}", number) for part, number in sample.to_json().items()}
    if not all(math.isfinite(number) for number in told.values()):
        return None
    if min(told.values()) < 0.0 or not 0.0 < told["small_batch"] < told["big_batch"]:
        said.once(name, f"{name} is left out: {sample} cannot be; the full batch must be larger than the small one")
        return None
    return told


def report_steps(summary: StepSummary, memory_peak: int | None = None) -> None:
    """The same of what a `StepWindow` has gathered."""
    report(**vars(summary), memory_peak=memory_peak)


def loss(step: Number, value: Number) -> None:
    """Looks at the loss of a step that is not reported, such as one given up because it is no number: an odd one is
    told."""
    at, lost = whole("step", step), real("value", value)
    session = _joined_session()
    if session is not None:
        session.loss(at, lost)


def busy(seconds: Number, *, steps: Number = 1) -> None:
    """Tells how long this rank worked on a step, without waiting for others: that is how stragglers are found.

    Call it on every rank, at every step; it costs one message a second.
    """
    worked, covered = real("seconds", seconds), whole("steps", steps)
    session = _joined_session()
    if session is not None and math.isfinite(worked) and worked >= 0.0 and covered > 0:
        session.busy(worked, covered)


def phases(durations_s: dict[str, float]) -> None:
    """Tells where the time from launch to the first step went: import, rendezvous, load, first_step. What came before
    the script is added: startup."""
    took, session = _seconds(durations_s), _joined_session()
    if session is not None:
        session.phases(took)


def resharded(durations_s: dict[str, float]) -> None:
    """What another layout, taken without a restart, has cost by phase; a script that does so says `layout="live"`."""
    took, session = _seconds(durations_s), _joined_session()
    if session is not None:
        session.resharded(took)


def _seconds(durations_s: dict[str, float]) -> dict[str, float]:
    """Without those that cannot be, which is said once."""
    took = {name: real(name, duration) for name, duration in durations_s.items()}
    for name, duration in took.items():
        if not math.isfinite(duration) or duration < 0.0:
            said.once(f"phase {name}", f"the phase {name} is left out: it took {duration} s")
    return {name: duration for name, duration in took.items() if math.isfinite(duration) and duration >= 0.0}


def checkpoint_done(
    *, step: Number, samples_seen: Number, path: str | os.PathLike[str], manifest_sha256: str, duration_s: Number
) -> None:
    """Offers a complete checkpoint. It counts once the scheduler has committed it. What no agent would accept is not
    offered, and said each time: where it lies elsewhere than this generation may write, or its manifest is not the one
    named."""
    message: dict[str, Any] = {"type": "checkpoint", "step": count("step", step)}
    message |= {"samples_seen": count("samples_seen", samples_seen), "path": os.fspath(path)}
    message |= {"manifest_sha256": manifest_sha256, "duration_s": real("duration_s", duration_s)}
    session = _joined_session()
    if session is None:
        return
    wrong = wrong_with(session.environment, message["path"], manifest_sha256)
    if wrong is not None:
        log.warning("the checkpoint of step %d is not offered: %s", message["step"], wrong)
        return
    session.offers += 1
    session.send(message)


def offers() -> int:
    """How many checkpoints this process has offered."""
    return 0 if _session is None else _session.offers


def stopped(*, step: Number, samples_seen: Number) -> None:
    """Says that this worker stops because it was asked to; exit right after, with `Stop.exit_code`."""
    at, seen = count("step", step), count("samples_seen", samples_seen)
    session = _joined_session()
    if session is not None:
        session.send({"type": "stopped", "step": at, "samples_seen": seen})


def before_close(say: Callable[[], None]) -> None:
    """Has `say` called at the beginning of `close`, while it can still report: for what gathers steps."""
    if _session is not None:
        _session.before_close(say)


def close(timeout_s: float = 5.0) -> None:
    """Delivers what is queued, for at most `timeout_s`. Also runs when the interpreter exits, unless nothing was ever
    said or asked."""
    global _session
    session = _session
    if session is not None:
        session.say_last_words()
        _session = None
        session.close(timeout_s)


def _forget() -> None:
    """A thread does not survive a fork, and a child must not speak with its parent's connection."""
    global _session
    _session = None


os.register_at_fork(after_in_child=_forget)
