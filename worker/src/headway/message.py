"""What the agent may ask of a worker, read from the protocol's JSON. Never fails on what a newer agent sends."""

from __future__ import annotations

from collections.abc import Mapping
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


@dataclass(frozen=True)
class Configuration:
    """Layout, micro-batch, global batch and how they are carried out; batches in sequences."""

    layout: Layout
    micro_batch: int
    global_batch: int
    execution: Execution = Execution()

    def ranks(self) -> int:
        return self.layout.ranks() * self.execution.cp

    def accumulation(self) -> int | None:
        """Micro-batches each replica accumulates per step, or None where the batch does not divide."""
        per_round = self.layout.dp * self.micro_batch
        if per_round <= 0 or self.global_batch <= 0 or self.global_batch % per_round:
            return None
        return self.global_batch // per_round

    def to_json(self) -> dict[str, Any]:
        layout = {"dp": self.layout.dp, "tp": self.layout.tp, "pp": self.layout.pp}
        value: dict[str, Any] = {
            "layout": layout,
            "micro_batch": self.micro_batch,
            "global_batch": self.global_batch,
        }
        if self.execution != Execution():
            value["execution"] = asdict(self.execution)
        return value

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Configuration:
        layout, execution = value["layout"], value.get("execution") or {}
        known = {name: type(plain) for name, plain in asdict(Execution()).items()}
        return Configuration(
            Layout(int(layout["dp"]), int(layout["tp"]), int(layout["pp"])),
            int(value["micro_batch"]),
            int(value["global_batch"]),
            Execution(**{name: kind(execution[name]) for name, kind in known.items() if name in execution}),
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
