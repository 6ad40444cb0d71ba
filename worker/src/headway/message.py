"""What the agent may ask of a worker, read from the protocol's JSON. Never fails on what a newer agent sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Layout:
    """Degrees of data, tensor and pipeline parallelism."""

    dp: int
    tp: int = 1
    pp: int = 1

    def ranks(self) -> int:
        return self.dp * self.tp * self.pp


@dataclass(frozen=True)
class Shares:
    """Which weights replicas have, by which they share out the micro-batches of a step."""

    slower: int = 1
    """Of replicas on slower nodes, which come first in the order of ranks."""
    faster: int = 1
    of_faster: int = 0
    """How many replicas are on faster nodes."""

    @staticmethod
    def of(weights: Sequence[int]) -> Shares:
        """By each replica's weight. Raises ValueError where a weight is below 1 or replicas of a kind do not stand
        together."""
        if min(weights, default=0) >= 1:
            if len(set(weights)) == 1:
                return Shares()
            shares = Shares(weights[0], weights[-1], weights.count(weights[-1]))
            if shares.weights(len(weights)) == tuple(weights):
                return shares
        raise ValueError(f"{list(weights)} are no weights of replicas, of one kind of nodes and then of another")

    def weights(self, dp: int) -> tuple[int, ...]:
        return (self.slower,) * (dp - self.of_faster) + (self.faster,) * self.of_faster

    def weight(self, dp: int) -> int | None:
        """The one that all replicas have, if they have."""
        if self.slower == self.faster or self.of_faster == 0:
            return self.slower
        return self.faster if self.of_faster == dp else None

    def fit(self, dp: int) -> bool:
        return min(self.slower, self.faster) >= 1 and 0 <= self.of_faster <= dp


@dataclass(frozen=True)
class Execution:
    """How a layout is carried out, where that is not the plain way."""

    cp: int = 1
    """Degree of context parallelism."""
    ep: int = 1
    """Degree of expert parallelism."""
    vpp: int = 1
    """Chunks of layers per pipeline stage; more than one interleaves them."""
    schedule: str = "1f1b"
    """1f1b, gpipe or breadth_first."""
    sharding: str = "none"
    """What data-parallel replicas share out among them: none, optimizer, gradients or parameters (ZeRO-0 to 3)."""
    recompute: str = "none"
    """Activations computed again in the backward pass: none, selective or full."""
    sequence_parallel: bool = False
    offload: str = "none"
    """Where optimizer states lie and are updated: none (the device), host or disk."""
    shares: Shares = Shares()
    """What each replica does of a step."""


@dataclass(frozen=True)
class Configuration:
    """Layout, micro-batch, global batch and how they are carried out; batches in sequences."""

    layout: Layout
    micro_batch: int
    global_batch: int
    execution: Execution = Execution()

    def ranks(self) -> int:
        return self.layout.ranks() * self.execution.cp

    def shares(self) -> tuple[int, ...]:
        """Each replica's weight: in a cycle it does as many micro-batches."""
        return self.execution.shares.weights(self.layout.dp)

    def per_cycle(self) -> int:
        """Micro-batches of a cycle, of all replicas."""
        shares = self.execution.shares
        return shares.slower * (self.layout.dp - shares.of_faster) + shares.faster * shares.of_faster

    def cycles(self) -> int | None:
        """In how many cycles a step is done, or None where the batch does not divide into such."""
        per_cycle = self.per_cycle() * self.micro_batch
        if self.layout.dp < 1 or self.micro_batch < 1 or not self.execution.shares.fit(self.layout.dp):
            return None
        return self.global_batch // per_cycle if self.global_batch >= 1 and self.global_batch % per_cycle == 0 else None

    def accumulation(self) -> int | None:
        """Micro-batches each replica accumulates per step, or None where the batch does not divide or they do not all
        do as many."""
        cycles, weight = self.cycles(), self.execution.shares.weight(self.layout.dp)
        return None if cycles is None or weight is None else cycles * weight

    def micro_batches(self, replica: int) -> int:
        """Those that a replica accumulates per step. Raises ValueError where the batch does not divide."""
        return self._whole_cycles() * self.shares()[replica]

    def samples(self, replica: int) -> range:
        """Which of a step's samples are a replica's: consecutive ones, in the order of replicas. Raises ValueError
        where the batch does not divide."""
        each = self._whole_cycles() * self.micro_batch
        first = each * sum(self.shares()[:replica])
        return range(first, first + each * self.shares()[replica])

    def gradient_scale(self) -> float:
        """The factor on each micro-batch's mean loss where gradients are then averaged over replicas, so that every
        sequence of the step weighs alike: 1/accumulation where that is one. Raises ValueError where the batch does not
        divide."""
        return self.layout.dp / (self.per_cycle() * self._whole_cycles())

    def _whole_cycles(self) -> int:
        cycles = self.cycles()
        if cycles is None:
            raise ValueError(f"{self} does not divide into micro-batches")
        return cycles

    def to_json(self) -> dict[str, Any]:
        layout = {"dp": self.layout.dp, "tp": self.layout.tp, "pp": self.layout.pp}
        value: dict[str, Any] = {
            "layout": layout,
            "micro_batch": self.micro_batch,
            "global_batch": self.global_batch,
        }
        if self.execution != Execution():
            execution = asdict(self.execution)
            if self.execution.shares == Shares():
                del execution["shares"]
            value["execution"] = execution
        return value

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Configuration:
        layout, execution = value["layout"], dict(value.get("execution") or {})
        shares = dict(execution.pop("shares", None) or {})
        known = {name: type(plain) for name, plain in asdict(Execution()).items() if name != "shares"}
        return Configuration(
            Layout(int(layout["dp"]), int(layout["tp"]), int(layout["pp"])),
            int(value["micro_batch"]),
            int(value["global_batch"]),
            Execution(
                **{name: kind(execution[name]) for name, kind in known.items() if name in execution},
                shares=Shares(**{name: int(shares[name]) for name in asdict(Shares()) if name in shares}),
            ),
        )


@dataclass(frozen=True)
class Configure:
    """Train with another configuration from the next step on."""

    revision: int
    configuration: Configuration
    lr_scale: float


@dataclass(frozen=True)
class Checkpoint:
    """Save soon."""


@dataclass(frozen=True)
class Stop:
    """Save if asked, then exit with `exit_code`."""

    checkpoint: bool
    grace_s: float | None = None
    signalled: bool = False
    """It came as SIGTERM and not as an order over the socket: whoever reads the exit code must not take it for
    success."""

    @property
    def exit_code(self) -> int:
        """0 where the scheduler ordered the stop, 143 (128 + SIGTERM) where only a signal did."""
        return 143 if self.signalled else 0


Directive = Configure | Checkpoint | Stop


def parse_directive(message: Mapping[str, Any]) -> Directive | None:
    """The directive in a message; None for any other or malformed one, which the protocol says to ignore."""
    try:
        match message.get("type"):
            case "configure":
                configuration = Configuration.from_json(message["configuration"])
                return Configure(int(message["revision"]), configuration, float(message.get("lr_scale", 1.0)))
            case "checkpoint":
                return Checkpoint()
            case "stop":
                grace = message.get("grace_s")
                return Stop(bool(message.get("checkpoint", True)), None if grace is None else float(grace))
            case _:
                return None
    except (KeyError, TypeError, ValueError):
        return None
