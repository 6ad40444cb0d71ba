"""What a rank was asked between two steps, in numbers that can ride in the step's own all-reduce, so that all ranks act
at the same step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.message import Configuration, Configure, Execution, Layout, Shares
from headway.parts import OFFLOADS, RECOMPUTES, SCHEDULES, SHARDINGS

_FLAGS = 4


@dataclass
class Orders:
    """Of one rank, or (once summed) of all."""

    stop: bool = False
    stop_ordered: bool = False
    """Over the socket; otherwise only a signal came, and the work is wanted still."""
    stop_saves: bool = False
    save: bool = False
    configuration: Configuration | None = None
    """Only rank 0 takes one."""
    lr_scale: float = 0.0

    def take(self, order: Configure) -> None:
        self.configuration, self.lr_scale = order.configuration, order.lr_scale

    def encode(self) -> list[float]:
        """Numbers whose sum over ranks is what `decode` wants: every rank's flags, one rank's configuration."""
        flags = [float(flag) for flag in (self.stop, self.stop_ordered, self.stop_saves, self.save)]
        if self.configuration is None:
            return flags + [0.0] * 17
        layout, execution = self.configuration.layout, self.configuration.execution
        numbers = (
            self.configuration.micro_batch,
            self.configuration.global_batch,
            layout.dp,
            layout.tp,
            layout.pp,
            execution.cp,
            execution.ep,
            execution.vpp,
            SCHEDULES.index(execution.schedule),
            SHARDINGS.index(execution.sharding),
            RECOMPUTES.index(execution.recompute),
            execution.sequence_parallel,
            OFFLOADS.index(execution.offload),
            execution.shares.slower,
            execution.shares.faster,
            execution.shares.of_faster,
        )
        return [*flags, *map(float, numbers), self.lr_scale]

    @staticmethod
    def decode(summed: Sequence[float]) -> Orders:
        flags = [value > 0.0 for value in summed[:_FLAGS]]
        *numbers, lr_scale = summed[_FLAGS:]
        micro, batch, dp, tp, pp, cp, ep, vpp, schedule, sharding, recompute, sequence, offload, *shares = map(
            round, numbers
        )
        configuration = None
        if batch:
            execution = Execution(
                cp,
                ep,
                vpp,
                SCHEDULES[schedule],
                SHARDINGS[sharding],
                RECOMPUTES[recompute],
                bool(sequence),
                OFFLOADS[offload],
                Shares(*shares),
            )
            configuration = Configuration(Layout(dp, tp, pp), micro, batch, execution)
        stop, stop_ordered, stop_saves, save = flags
        return Orders(stop, stop_ordered, stop_saves, save, configuration, lr_scale)
