"""Keeps the time of an emulated device: the arithmetic is real, the waiting makes it take as long as a device of the
stated speed would. It can only slow down, so the stated speed must be below what the CPU reaches."""

from __future__ import annotations

import time

from headway.flops import ModelShape
from headway.message import Configuration


class Pacer:
    """Without stated speeds it never waits."""

    def __init__(
        self,
        shape: ModelShape,
        configuration: Configuration,
        device_flops: float | None,
        link_bytes_per_second: float | None,
    ) -> None:
        layout, cp = configuration.layout, configuration.execution.cp
        shards = layout.tp * layout.pp
        self._stages = layout.pp
        self._chunks = configuration.execution.vpp
        self._seconds_per_sequence = 0.0
        self._reduce_seconds = 0.0
        if device_flops:
            self._seconds_per_sequence = shape.training_flops_per_token() * shape.seq_len / device_flops / (shards * cp)
        if link_bytes_per_second:
            # A ring all-reduce moves 2(n - 1)/n of the fp32 gradient over each link.
            ring = 2 * (layout.dp * cp - 1) / (layout.dp * cp)
            self._reduce_seconds = ring * 4 * shape.parameters() / shards / link_bytes_per_second

    def after_micro_batch(self, started: float, sequences: int) -> None:
        _sleep_until(started + sequences * self._seconds_per_sequence)

    def after_pipeline(self, started: float, sequences: int, micro_batches: int) -> None:
        """All micro-batches and the bubble of filling and draining, (p - 1)/(v m) (Narayanan et al. 2021, 2.2)."""
        bubble = (self._stages - 1) / (self._chunks * micro_batches)
        _sleep_until(started + sequences * self._seconds_per_sequence * (1.0 + bubble))

    def after_reduce(self, started: float) -> None:
        _sleep_until(started + self._reduce_seconds)


def _sleep_until(moment: float) -> None:
    left = moment - time.monotonic()
    if left > 0:
        time.sleep(left)
