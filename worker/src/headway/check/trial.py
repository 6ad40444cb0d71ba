"""Takes one launch through what Headway would ask of it, and writes down what came of it. Judges nothing."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from headway.check.agent import Agent, Message
from headway.check.launch import Checkpoint, Launch, Order
from headway.check.line import Suggestion, suggest
from headway.check.opened import Opened
from headway.checkpoint import MANIFEST, CheckpointError, read_manifest, sha256, verify
from headway.message import Configuration, Layout

ENOUGH_STEPS = 16
REQUEST_SHARE = 0.75
"""Of the grace: how long a stop waits for an answer before SIGTERM comes (core/node, ledger/stop.rs)."""
LAST_WORDS_S = 30.0
SILENT_S = 3.0
"""How long a script whose output counts steps has to find its agent."""
LOOK_EVERY_S = 0.5


@dataclass(frozen=True)
class Offer:
    """A checkpoint as it was offered, and what is wrong with it."""

    step: int
    samples_seen: int
    path: str
    manifest_sha256: str
    size: int
    after_s: float
    error: str | None

    def resume(self) -> Checkpoint:
        return Checkpoint(self.path, self.step, self.samples_seen, self.manifest_sha256)


@dataclass(frozen=True)
class End:
    """How a launch came down after it was asked to."""

    code: int
    after_s: float
    reminded: bool
    """SIGTERM was needed beside the order."""
    killed: bool
    """Nothing else ended it within the grace."""
    told: Message | None
    """Its last word, `stopped`."""
    offer: Offer | None


@dataclass
class Seen:
    """All that is known of one launch."""

    order: Order
    patience_s: float
    """How long its first step was waited for."""
    hello: Message | None = None
    steps: list[Message] = field(default_factory=list)
    first_step_s: float | None = None
    output: str = ""
    suggestion: Suggestion | None = None
    malformed: str | None = None
    asked_batch: Configuration | None = None
    batch_from: int | None = None
    asked_layout: Configuration | None = None
    layout_from: int | None = None
    save_asked: bool = False
    offer: Offer | None = None
    end: End | None = None
    ended_itself: int | None = None
    """Its exit code, where it ended before it was asked to."""
    resumed_files: set[str] | None = None
    """Files of the checkpoint that it has opened."""

    @property
    def noisy_steps(self) -> int:
        return sum("noise" in step or "preconditioned" in step for step in self.steps)

    def claims(self, what: str) -> str | None:
        """How the script says it takes a change of `batch` or `layout`."""
        return None if self.hello is None else self.hello.get("capabilities", {}).get(what)


class Trial:
    """One launch, from its start to its end."""

    def __init__(self, order: Order, patience_s: float) -> None:
        self.seen = Seen(order, patience_s)
        self._agent = Agent(order.socket)
        self._began = time.monotonic()
        self._asked_to_stop = False
        self._look_at = self._began
        self._printed_at: float | None = None
        self._opened = None if order.resume is None else Opened(Path(order.resume.path))
        self._launch = Launch()
        try:
            self._launch.begin(order)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._launch.kill()
        self.seen.output = self._launch.output()
        if self._opened is not None:
            names = self._opened.names()
            self.seen.resumed_files = None if names is None else names - {MANIFEST}
            self._opened.close()
        self._agent.hang_up()

    def train(self, want_noise: bool) -> bool:
        """Until there are steps, and noise or enough of them; whether it trains still."""
        told = self._wait(lambda: bool(self.seen.steps) or self._silent(), self.seen.patience_s)
        if not told or not self.seen.steps:
            self.seen.suggestion = suggest(self._launch.output())
            return False
        self._wait(lambda: self._enough(want_noise), self.seen.patience_s)
        return not self._launch.ended()

    def follow(self, wanted: Configuration, wait_s: float) -> int | None:
        """Orders another configuration; the first step whose report says so and counts as many samples."""
        known = len(self.seen.steps)
        message = {"type": "configure", "revision": 1 + known, "configuration": wanted.to_json(), "lr_scale": 1.0}
        self._agent.say(message)

        def found() -> int | None:
            for before, step in zip(self.seen.steps, self.seen.steps[1:], strict=False):
                samples = step["samples_seen"] - before["samples_seen"]
                if step.get("configuration") == wanted.to_json() and samples == step["steps"] * wanted.global_batch:
                    return int(step["step"]) - int(step["steps"]) + 1
            return None

        self._wait(lambda: found() is not None, wait_s)
        return found()

    def batch(self, wait_s: float) -> None:
        """Orders twice the batch."""
        now = self._configuration()
        self.seen.asked_batch = replace(now, global_batch=2 * now.global_batch)
        self.seen.batch_from = self.follow(self.seen.asked_batch, wait_s)

    def layout(self, wait_s: float) -> None:
        """Orders replicas to become ranks of a tensor-parallel group."""
        now = self._configuration()
        self.seen.asked_layout = replace(now, layout=Layout(1, now.layout.dp * now.layout.tp, now.layout.pp))
        self.seen.layout_from = self.follow(self.seen.asked_layout, wait_s)

    def save(self, wait_s: float) -> None:
        """Orders a checkpoint."""
        self.seen.save_asked = True
        asked = time.monotonic()
        self._agent.say({"type": "checkpoint"})
        self._wait(lambda: bool(self._agent.of("checkpoint")), wait_s)
        self.seen.offer = self._offer(asked)

    def stop(self, by_order: bool) -> None:
        """Asks it to end: over the socket where a worker is connected, and by SIGTERM; then it is killed."""
        grace = self.seen.order.grace_s
        self._asked_to_stop = True
        known = len(self._agent.of("checkpoint"))
        asked = time.monotonic()
        by_order = by_order and bool(self._agent.connections)
        if by_order:
            self._agent.say({"type": "stop", "checkpoint": True, "grace_s": grace})
        reminded = not by_order or not self._wait(self._launch.ended, REQUEST_SHARE * grace)
        if reminded:
            self._launch.signal(signal.SIGTERM)
        left = asked + grace - time.monotonic()
        killed = not self._wait(self._launch.ended, left)
        after = time.monotonic() - asked
        if killed:
            self._launch.kill()
        self._last_words()
        offers = self._agent.of("checkpoint")[known:]
        stopped = self._agent.of("stopped")
        self.seen.end = End(
            code=self._launch.code(),
            after_s=after,
            reminded=by_order and reminded,
            killed=killed,
            told=stopped[-1] if stopped else None,
            offer=self._offer(asked) if offers else None,
        )

    def _configuration(self) -> Configuration:
        told = self.seen.steps[-1].get("configuration")
        return self.seen.order.configuration if told is None else Configuration.from_json(told)

    def _silent(self) -> bool:
        """No word of Headway, and the output counts steps."""
        now = time.monotonic()
        if self.seen.hello is not None:
            return False
        if self._printed_at is None and now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            self._printed_at = now if suggest(self._launch.output()) else None
        return self._printed_at is not None and now - self._printed_at >= SILENT_S

    def _enough(self, want_noise: bool) -> bool:
        steps = self.seen.steps
        trained = sum(step["steps"] for step in steps)
        return len(steps) >= 2 and (self.seen.noisy_steps > 0 or not want_noise or trained >= ENOUGH_STEPS)

    def _wait(self, until: Callable[[], bool], wait_s: float) -> bool:
        """Serves the agent's socket; False where the time has passed or the launch has ended without it."""
        end = time.monotonic() + wait_s
        while not until():
            if self._launch.ended():
                self._last_words()
                if not self._asked_to_stop:
                    self.seen.ended_itself = self._launch.code()
                return until()
            if time.monotonic() >= end:
                return False
            self._agent.serve_once(self._hear)
        return True

    def _last_words(self) -> None:
        """What ended processes have said before: all of it has come already, however late it is read. A descendant that
        goes on writing is not listened to for ever."""
        end = time.monotonic() + LAST_WORDS_S
        while self._agent.serve_once(self._hear) and time.monotonic() < end:
            pass

    def _hear(self, message: Message) -> None:
        seen = self.seen
        match message["type"]:
            case "hello" if seen.hello is None:
                seen.hello = message
            case "step":
                seen.steps.append(message)
                if seen.first_step_s is None:
                    seen.first_step_s = time.monotonic() - self._began
            case "malformed":
                seen.malformed = seen.malformed or str(message["line"])[:200]

    def _offer(self, asked: float) -> Offer | None:
        """The newest; read and held against its manifest at once."""
        offers = self._agent.of("checkpoint")
        if not offers:
            return None
        after, told = time.monotonic() - asked, offers[-1]
        home = self.seen.order.checkpoint_dir / f"g{self.seen.order.generation}"
        path, error, size = Path(str(told["path"])), None, 0
        try:
            manifest = read_manifest(path)
            verify(path, manifest)
            size = sum(each.size for each in manifest.files)
            if not manifest.files:
                error = "it holds no file"
            elif not path.resolve().is_relative_to(home.resolve()):
                error = f"it lies outside of {home.name}/, where this generation may write"
            elif (manifest.step, manifest.samples_seen) != (told["step"], told["samples_seen"]):
                error = "its manifest has another step or other samples than the offer"
            elif sha256(path / MANIFEST) != told["manifest_sha256"]:
                error = "its manifest is not the one offered"
        except CheckpointError as wrong:
            error = str(wrong)
        return Offer(
            int(told["step"]), int(told["samples_seen"]), str(path), str(told["manifest_sha256"]), size, after, error
        )
