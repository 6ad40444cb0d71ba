"""One job's life below a stand-in for agent and scheduler that follows a seeded random plan: live changes of batch,
micro-batch and layout, stops with a checkpoint and resumption on other ranks, kills at random moments. What the
trainers did is known from what they told: see `record`."""

from __future__ import annotations

import math
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import layouts  # noqa: F401 - imports, before the first fork, what ranks of any layout need
from agent import JOB, FakeAgent, Message, Worker, environment
from record import Generation, Kill, Offer, Record, Step

from headway import checkpoint, trainer
from headway.message import Configuration, Execution, Layout, Shares
from headway.parts import RECOMPUTES, SCHEDULES, SHARDINGS, CannotRun, check

ARGUMENTS = (
    "--layers 4 --hidden 16 --heads 4 --kv-heads 2 --ffn 44 --seq-len 16 --report-every 0"
    " --warmup-samples 40 --decay cosine --decay-samples 600 --dropout 0.1"
).split()
OPTIONS = trainer.options(ARGUMENTS)
CORPUS_TEXT = b"".join(b"line %d says %d\n" % (i, i * i) for i in range(4000))
RANKS, BATCHES, MICRO_BATCHES = (1, 2, 4), (8, 12, 16, 24), (1, 2, 4)
SAMPLES_TO_END = 100
# So that orders arrive between steps on any machine: a sequence takes this long on one emulated device.
SECONDS_PER_SEQUENCE = 0.003
MOMENTS = ("training", "saving", "starting", "changing layout", "stopping")
DEADLINE_S = 120.0


def scale_of(batch: int) -> float:
    """The rule that the job asks for: square root, reference batch 8."""
    return math.sqrt(batch / 8)


class Lifetime:
    """`live` once, then read what is public."""

    def __init__(
        self, folder: Path, seed: int, reconfigurations: int, kills: int, ranks: tuple[int, ...] = RANKS
    ) -> None:
        self.corpus = folder / "corpus"
        self.corpus.mkdir()
        (self.corpus / "text").write_bytes(CORPUS_TEXT)
        self.record = Record()
        self._folder, self._choice, self._sizes = folder, random.Random(seed), ranks
        stops = max(1, reconfigurations // 4)
        self._plan = ["stop"] * stops + ["live"] * (reconfigurations - stops)
        self._plan += [MOMENTS[number % len(MOMENTS)] for number in range(kills)]
        self._choice.shuffle(self._plan)
        self._agent = FakeAgent(folder / "agent.sock")
        self._worker: Worker | None = None
        self._now = self._draw(self._choice.choice(self._sizes))
        self._revision = 0

    def live(self) -> None:
        """From the first launch through the plan to the end of training."""
        try:
            self._launch()
            for event in self._plan:
                self._train(self._choice.randint(1, 4))
                if event == "live":
                    self._change()
                elif event == "stop":
                    self._restart()
                else:
                    self._kill(event)
            self._train(1)
            self._stop()
            assert self.record.committed is not None, "a stop saves"
            self._launch(self.record.committed.samples_seen + SAMPLES_TO_END)
            self._end((0,))
        finally:
            if self._worker is not None:
                self._worker.kill()
            self._agent.hang_up()

    def log(self) -> str:
        return self._log(len(self.record.generations)).read_text()

    def complaints(self) -> list[str]:
        """What no generation may say: none is ever given a broken checkpoint, or an order that it cannot follow."""
        lines = [line for each in self.record.generations for line in self._log(each.number).read_text().splitlines()]
        return [line for line in lines if "CHECKPOINT BROKEN" in line or "ignored an impossible" in line]

    def _log(self, generation: int) -> Path:
        return self._folder / f"g{generation}.log"

    def _launch(self, samples: int = 1 << 40) -> None:
        """The next generation, from the last committed checkpoint, as the agent would."""
        now, number = self._now, len(self.record.generations) + 1
        self.record.generations.append(Generation(number, now, self.record.committed))
        ranks, execution = now.ranks(), now.execution
        variables = {
            "WORLD_SIZE": str(ranks),
            "GPUS_PER_NODE": str(ranks),
            "HEADWAY_GENERATION": str(number),
            "HEADWAY_TP": str(now.layout.tp),
            "HEADWAY_PP": str(now.layout.pp),
            "HEADWAY_CP": str(execution.cp),
            "HEADWAY_VPP": str(execution.vpp),
            "HEADWAY_SCHEDULE": execution.schedule,
            "HEADWAY_SHARDING": execution.sharding,
            "HEADWAY_RECOMPUTE": execution.recompute,
            "HEADWAY_SEQUENCE_PARALLEL": str(execution.sequence_parallel).lower(),
            "HEADWAY_OFFLOAD": execution.offload,
            "HEADWAY_SHARES": ",".join(map(str, now.shares())),
            "HEADWAY_LR_SCALE": repr(scale_of(now.global_batch)),
            "HEADWAY_CHECKPOINT_DIR": str(self._folder / "saved"),
            "HEADWAY_CHECKPOINT_EVERY": "0.5",
            "HEADWAY_DEVICE_FLOPS": repr(
                OPTIONS.shape.training_flops_per_token() * OPTIONS.seq_len / SECONDS_PER_SEQUENCE
            ),
        }
        if self.record.committed is not None:
            variables |= {
                "HEADWAY_RESUME_PATH": self.record.committed.path,
                "HEADWAY_RESUME_STEP": str(self.record.committed.step),
                "HEADWAY_RESUME_MANIFEST_SHA256": self.record.committed.manifest_sha256,
                "HEADWAY_SAMPLES_SEEN": str(self.record.committed.samples_seen),
            }
        arguments = [*ARGUMENTS, "--corpus", str(self.corpus), "--max-samples", str(samples)]
        given = environment(self._agent, now.layout.dp, now.micro_batch, now.global_batch, **variables)
        self._worker = Worker(lambda: _trainer(arguments), given, self._log(number))

    def _hear(self, message: Message) -> None:
        generation = self.record.generations[-1]
        if message["type"] == "step":
            assert message["steps"] == 1, "every step is reported by itself"
            seen = message["samples_seen"]
            samples = range(seen - message["configuration"]["global_batch"], seen)
            generation.steps.append(Step(message["step"], samples, message["loss"]))
            self._now = Configuration.from_json(message["configuration"])
        elif message["type"] == "checkpoint":
            offer = Offer(
                generation.number,
                *(message[name] for name in ("step", "samples_seen", "path", "manifest_sha256")),
            )
            self._check(offer)
            generation.offers.append(offer)
            self.record.committed = offer

    def _check(self, offer: Offer) -> None:
        """As the agent does before it passes an offer on."""
        assert Path(offer.path).parent == self._folder / "saved" / f"g{offer.generation}"
        manifest = checkpoint.read_manifest(offer.path, offer.manifest_sha256)
        told = (manifest.job, manifest.generation, manifest.step, manifest.samples_seen)
        assert told == (JOB, offer.generation, offer.step, offer.samples_seen)
        checkpoint.verify(offer.path, manifest)

    def _train(self, steps: int) -> None:
        """Until so many more steps are heard of."""
        generation = self.record.generations[-1]
        wanted = len(generation.steps) + steps
        self._serve(lambda: len(generation.steps) >= wanted)

    def _serve(self, until: Callable[[], bool]) -> None:
        """A trainer that ends by itself will not do what is waited for."""
        worker = self._worker
        assert worker is not None
        self._agent.serve(lambda: until() or worker.ended(), DEADLINE_S, self._hear)
        assert until(), f"ended with {worker.code}: {self.log()[-3000:]}"

    def _pass(self, longest_s: float) -> None:
        """A random moment within that time."""
        moment = time.monotonic() + self._choice.uniform(0.0, longest_s)
        self._agent.serve(lambda: time.monotonic() >= moment, DEADLINE_S, self._hear)

    def _end(self, codes: tuple[int, ...]) -> None:
        """The generation's end, with all that it said before."""
        worker = self._worker
        assert worker is not None
        self._agent.serve(worker.ended, DEADLINE_S, self._hear)
        self._agent.serve(lambda: not self._agent.connections, DEADLINE_S, self._hear)
        assert worker.code in codes, f"ended with {worker.code}: {self.log()[-3000:]}"

    def _change(self) -> None:
        """On the same ranks, without a restart; done once a step is reported under it."""
        before = self._now
        after = self._ask(self._choice.choice(("batch", "micro-batch", "layout")))
        self._serve(lambda: self._now == after)
        kind = "batch" if after.global_batch != before.global_batch else "micro-batch"
        kind = kind if (after.layout, after.execution) == (before.layout, before.execution) else "layout"
        self.record.reconfigurations.append(kind)

    def _ask(self, kind: str) -> Configuration:
        """Tells the trainer to take another configuration of its ranks; a layout where no other batch will do."""
        before = self._now
        others = {
            "batch": [replace(before, global_batch=batch) for batch in BATCHES],
            "micro-batch": [replace(before, micro_batch=micro_batch) for micro_batch in MICRO_BATCHES],
            "layout": [self._draw(before.ranks()) for _ in range(9)],
        }[kind]
        others = [each for each in others if each != before and _possible(each)]
        if not others:
            return self._ask("layout")
        after = self._choice.choice(others)
        self._revision += 1
        scale = scale_of(after.global_batch)
        order = {"type": "configure", "revision": self._revision, "configuration": after.to_json(), "lr_scale": scale}
        self._agent.say(order)
        return after

    def _restart(self) -> None:
        """Stops with a checkpoint and goes on with other ranks; done once a step is reported."""
        self._stop()
        self._move()
        self._train(1)
        self.record.reconfigurations.append("restart")

    def _move(self) -> None:
        """To another number of ranks."""
        others = [ranks for ranks in self._sizes if ranks != self._now.ranks()]
        self._now = self._draw(self._choice.choice(others))
        self._launch()

    def _stop(self) -> None:
        """By an order over the socket, or by a signal alone."""
        assert self._worker is not None
        if self._choice.random() < 0.5:
            self._agent.say({"type": "stop", "checkpoint": True, "grace_s": 30.0})
            self._end((0,))
        else:
            os.kill(self._worker.pid, signal.SIGTERM)
            self._end((143,))
        trained, committed = self.record.generations[-1].steps[-1].samples.stop, self.record.committed
        assert committed is not None and committed.samples_seen == trained, "a stop loses nothing"

    def _kill(self, moment: str) -> None:
        """Kills a random rank at that moment and goes on, on as many ranks as chance wants, from what is committed. A
        trainer that came to its ordered end before the blow is started again for another."""
        while True:
            self._approach(moment)
            if self._strike(moment):
                break
            self._launch()
            self._train(1)
        self._now = self._draw(self._choice.choice(self._sizes))
        self._launch()

    def _approach(self, moment: str) -> None:
        match moment:
            case "training":
                self._pass(0.6)
            case "starting":
                self._stop()
                self._move()
                self._pass(1.5)
            case "changing layout":
                self._ask("layout")
                self._pass(0.4)
            case "saving":
                self._agent.say({"type": "checkpoint"})
                self._await_files()
            case "stopping":
                self._agent.say({"type": "stop", "checkpoint": True})
                self._await_files()

    def _await_files(self) -> None:
        """Until a checkpoint has begun and some of its files are there, or it is complete already."""
        worker = self._worker
        assert worker is not None
        home = self._folder / "saved" / f"g{len(self.record.generations)}"
        known, wanted = set(home.glob("step-*")), self._choice.randint(0, self._now.ranks())

        def reached() -> bool:
            begun = any(_files(draft) >= wanted for draft in home.glob(".step-*"))
            return begun or set(home.glob("step-*")) != known or worker.ended()

        self._agent.serve(reached, DEADLINE_S, self._hear)

    def _strike(self, moment: str) -> bool:
        """Whether it hit a trainer that was still at work."""
        worker, generation = self._worker, self.record.generations[-1]
        assert worker is not None
        configuration = self._now
        ranks = _children(worker.pid) if configuration.ranks() > 1 else [worker.pid]
        rank = self._choice.randrange(len(ranks)) if ranks else None
        if worker.ended():
            self._end((0,))
            return False
        os.kill(worker.pid if rank is None else ranks[rank], signal.SIGKILL)
        began = time.monotonic()
        self._end((0, 137, -signal.SIGKILL))
        if worker.code == 0:
            return False
        last = generation.steps[-1] if generation.steps else None
        kept = self.record.committed.samples_seen if self.record.committed else 0
        home = self._folder / "saved" / f"g{generation.number}"
        self.record.kills.append(
            Kill(
                moment,
                configuration,
                rank,
                step=last.number if last else 0,
                lost_samples=last.samples.stop - kept if last else 0,
                cut_short=any(home.glob(".step-*")),
                took_down_s=time.monotonic() - began,
            )
        )
        return True

    def _draw(self, ranks: int) -> Configuration:
        """Any configuration of so many ranks that the trainer takes."""
        pick = self._choice.choice
        while True:
            tp, pp, cp, vpp = pick((1, 1, 2)), pick((1, 1, 2, 4)), pick((1, 1, 2)), pick((1, 1, 2))
            if ranks % (tp * pp * cp):
                continue
            dp = ranks // (tp * pp * cp)
            execution = Execution(
                cp=cp,
                vpp=vpp,
                schedule=pick(SCHEDULES),
                sharding=pick(SHARDINGS),
                recompute=pick(RECOMPUTES),
                sequence_parallel=tp > 1 and pick((False, True)),
                offload=pick(("none", "host")),
                shares=Shares.of([1] * (dp - dp // 2) + [pick((1, 2, 3))] * (dp // 2)),
            )
            drawn = Configuration(Layout(dp, tp, pp), pick(MICRO_BATCHES), pick(BATCHES), execution)
            if _possible(drawn):
                return drawn


def _possible(configuration: Configuration) -> bool:
    try:
        check(OPTIONS.shape, configuration, configuration.ranks())
    except CannotRun:
        return False
    return True


def _trainer(arguments: list[str]) -> int:
    """In the forked process, whose output is the generation's log and not what pytest made of it."""
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - for the process's life
    sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    return trainer.main(arguments)


def _children(process: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def _files(directory: Path) -> int:
    try:
        return len(os.listdir(directory))
    except FileNotFoundError:  # it has got its name, or was given up
        return 0
