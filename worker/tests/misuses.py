"""What a script can do wrong with the SDK, each as a few lines that do it, and what comes of it. docs/misuses.md is the
same for people."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from agent import FakeAgent

import headway

NOISE = headway.NoiseSample(2.0, 1.0, 4.0, 16.0)


@dataclass(frozen=True)
class Scene:
    """A job of one rank under a stand-in for its agent; nothing has joined yet."""

    agent: FakeAgent
    folder: Path
    variables: dict[str, str]


@dataclass(frozen=True)
class Raises:
    """An error, which says what is wrong."""

    error: type[Exception]
    words: str


@dataclass(frozen=True)
class Says:
    """A line in the log that says what is wrong and what is left out."""

    words: str


@dataclass(frozen=True)
class Corrected:
    """What was meant is done, as `words` have it: `told` looks at what reached the agent."""

    words: str
    told: Callable[[FakeAgent], bool] = lambda _: True


Outcome = Raises | Says | Corrected


@dataclass(frozen=True)
class Misuse:
    commit: Callable[[Scene], Any]
    outcome: Outcome


def report(**more: Any) -> None:
    """A good report, but for what is given."""
    headway.report(**{"step": 1, "samples_seen": 16, "tokens": 1024, "duration_s": 0.5, **more})


def joined(then: Callable[..., Any], *arguments: Any, **more: Any) -> Callable[[Scene], Any]:
    """Joins first, as a script should."""

    def commit(_: Scene) -> Any:
        headway.init()
        return then(*arguments, **more)

    return commit


def take_sigterm(_: Scene) -> None:
    headway.init()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    headway.poll()


def never_poll(_: Scene) -> None:
    headway.init()
    signal.raise_signal(signal.SIGTERM)
    for step in (1, 2):
        report(step=step, samples_seen=16 * step)


def off_the_main_thread(_: Scene) -> None:
    thread = threading.Thread(target=headway.init)
    thread.start()
    thread.join()


def join_twice(_: Scene) -> None:
    headway.init()
    headway.init()


def close_twice(scene: Scene) -> None:
    headway.init()
    report()
    scene.agent.serve(lambda: bool(scene.agent.of("step")))
    headway.close()
    headway.close()


def report_after_close(_: Scene) -> None:
    headway.init()
    headway.close(timeout_s=0.0)
    report()


def without_configuration(_: Scene) -> None:
    os.environ.pop("HEADWAY_GLOBAL_BATCH")
    headway.init()
    report()


def resumed_at_zero(_: Scene) -> None:
    os.environ["HEADWAY_SAMPLES_SEEN"] = "640"
    headway.init()
    report()


def offer(scene: Scene, below: str, sha256: str | None = None) -> None:
    headway.init()
    with headway.saving(step=1, samples_seen=16) as directory:
        (directory / "state").write_text("1")
    saved = scene.folder / "checkpoints" / "g1" / "step-000000001"
    named = scene.folder / below if below else saved
    headway.checkpoint_done(
        step=1,
        samples_seen=16,
        path=str(named),
        manifest_sha256=sha256 or headway.checkpoint.sha256(saved / "manifest.json"),
        duration_s=0.1,
    )


def save_elsewhere(scene: Scene) -> None:
    headway.init()
    with headway.saving(step=1, samples_seen=16):
        (scene.folder / "state").write_text("1")


def save_outside_a_job(_: Scene) -> None:
    os.environ.pop("HEADWAY_CHECKPOINT_DIR")
    headway.init()
    with headway.saving(step=1, samples_seen=16):
        pass


SDK: dict[str, Misuse] = {
    # Reports.
    "a count that is text": Misuse(
        joined(report, samples_seen="many"), Raises(TypeError, "samples_seen must be a number, not str")
    ),
    "a step that is a fraction": Misuse(
        joined(report, step=1.5), Raises(ValueError, "step must be a whole number, not 1.5")
    ),
    "a negative count": Misuse(joined(report, tokens=-1), Raises(ValueError, "tokens must be 0 at least, not -1")),
    "a report of no step": Misuse(joined(report, steps=0), Raises(ValueError, "steps must be 1 at least, not 0")),
    "a duration of zero or NaN": Misuse(
        joined(report, duration_s=0.0), Says("a report is left out: duration_s is 0.0")
    ),
    "a loss that is NaN": Misuse(
        joined(report, loss=math.nan),
        Corrected(
            "told as an anomaly; the step counts, without its loss",
            lambda agent: "loss" not in agent.of("step")[0] and bool(agent.of("loss_anomaly")),
        ),
    ),
    "numbers of NumPy or PyTorch": Misuse(
        joined(report, step=np.int64(1), loss=torch.tensor([2.5], requires_grad=True)),
        Corrected("reported as the numbers they are", lambda agent: agent.of("step")[0]["loss"] == 2.5),
    ),
    "noise whose squares are tensors": Misuse(
        joined(report, noise=headway.NoiseSample(torch.tensor(2.0), torch.tensor(1.0), 4, 16)),  # type: ignore[arg-type]
        Corrected("reported as the numbers they are", lambda agent: agent.of("step")[0]["noise"]["small_sqr"] == 2.0),
    ),
    "noise as a dictionary": Misuse(
        joined(report, noise=NOISE.to_json()), Raises(TypeError, "noise must be a headway.NoiseSample, not dict")
    ),
    "noise of one small batch": Misuse(
        joined(report, noise=headway.NoiseSample(2.0, 2.0, 16.0, 16.0)),
        Says("the full batch must be larger than the small one"),
    ),
    "a configuration as a dictionary": Misuse(
        joined(report, configuration={"dp": 1}),
        Raises(TypeError, "configuration must be a headway.Configuration, not dict"),
    ),
    "no configuration, in a job without one": Misuse(
        without_configuration, Says("the job was launched without one, so give configuration")
    ),
    "counting from zero after a resume": Misuse(resumed_at_zero, Says("samples_seen goes from 640 to 16")),
    "a phase that is not finite": Misuse(
        joined(headway.phases, {"load": math.nan}), Says("the phase load is left out: it took nan s")
    ),
    # The session.
    "reporting before init": Misuse(
        lambda _: report(), Says("headway.init was not called in this process, or close was since")
    ),
    "reporting after close": Misuse(
        report_after_close, Says("headway.init was not called in this process, or close was since")
    ),
    "a second init": Misuse(join_twice, Raises(RuntimeError, "headway.init was called before in this process")),
    "init off the main thread": Misuse(
        off_the_main_thread, Says("SIGTERM ends this process before it is asked to save")
    ),
    "a word that init does not know": Misuse(
        lambda _: headway.init(batch="yes"), Raises(ValueError, "batch must be one of live, restart, never, not 'yes'")
    ),
    "a SIGTERM handler set after init": Misuse(
        take_sigterm, Says("another handler has taken SIGTERM since headway.init")
    ),
    "never polling": Misuse(never_poll, Says("SIGTERM has come, and headway.poll is not called")),
    "closing twice": Misuse(close_twice, Corrected("the second call does nothing")),
    "a secret that the job has not": Misuse(
        joined(headway.secret, "TOKEN"), Raises(headway.MissingSecret, "there is no secret TOKEN here")
    ),
    # Checkpoints.
    "offering what lies elsewhere": Misuse(
        lambda scene: offer(scene, "elsewhere"), Says("where this generation may write")
    ),
    "offering with another checksum": Misuse(
        lambda scene: offer(scene, "", "5ec2e7"), Says("is not the one the scheduler has committed")
    ),
    "saving into another directory": Misuse(
        save_elsewhere, Raises(headway.NothingWritten, "write into the directory that is given")
    ),
    "saving outside of a job": Misuse(
        save_outside_a_job, Raises(RuntimeError, "no checkpoint directory of a Headway job")
    ),
}


def row(name: str, outcome: Outcome) -> str:
    """As docs/misuses.md has it."""
    match outcome:
        case Raises(error, words):
            return f"| {name} | `{error.__name__}` | {words} |"
        case Says(words):
            return f"| {name} | said | {words} |"
        case Corrected(words=words):
            return f"| {name} | put right | {words} |"
