"""One rank that measures what its device can do, together with all others of its node, and ends."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist

from headway.gang import device_of, join
from headway.launch import Termination
from headway.probe.entry import Rates

FOUND = "rates.json"
_SIZES = {"cuda": (4096, 8192, 16384), "cpu": (512, 1024, 2048)}
"""Of square matrices; the best counts."""
_COPIED = {"cuda": 1 << 30, "cpu": 64 << 20}
_REDUCED = {"cuda": 256 << 20, "cpu": 16 << 20}
_BATCHES = 5
"""The fastest counts: what disturbs a measurement only ever slows it down."""


def measure(device_type: str, seconds: float, nodes: int, memory: float, folder: Path, _: Termination) -> int:
    """Every rank of every node calls it at once; the first of this node writes what was found."""
    device = device_of(device_type, False)
    join(device)
    rates = _rates(device, seconds, nodes, memory)
    if os.environ.get("LOCAL_RANK", "0") == "0":
        (folder / FOUND).write_text(json.dumps(asdict(rates)))
    if dist.is_initialized():
        dist.destroy_process_group()
    return 0


def _rates(device: torch.device, seconds: float, nodes: int, memory: float) -> Rates:
    matmul: dict[str, float] = {}
    for precision, operation in _multiplications(device).items():
        best = 0.0
        for size in _SIZES[device.type]:
            took = _fastest(device, operation(size), seconds)
            best = max(best, 2.0 * size**3 / took)
            if took > seconds / _BATCHES:
                break  # a processor without instructions for it: the next size would take eight times as long
        matmul[precision] = best
    copied = _copy(device, seconds)
    node_group, peers = _groups(nodes)
    link = _all_reduce(device, node_group, seconds)
    network = _all_reduce(device, peers, seconds) if nodes > 1 else None
    cuda = device.type == "cuda"
    if cuda:
        properties = torch.cuda.get_device_properties(device)
        name, processors = properties.name, properties.multi_processor_count
        memory = float(properties.total_memory)
    else:
        name, processors = "CPU", 1
    return Rates(
        name,
        {precision: _slowest(rate, device) for precision, rate in matmul.items()},
        _slowest(copied, device),
        memory,
        processors,
        None if link is None else _slowest(link, device),
        None if network is None else _slowest(network, device),
    )


def _copy(device: torch.device, seconds: float) -> float:
    """Bytes per second of device memory: a copy reads and writes."""
    source = torch.empty(_COPIED[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2.0 * source.numel() / _fastest(device, lambda: target.copy_(source), seconds)


def _multiplications(device: torch.device) -> dict[str, Callable[[int], Callable[[], object]]]:
    """By precision: from a size to the multiplication. Only what the device takes."""

    def plain(dtype: torch.dtype) -> Callable[[int], Callable[[], object]]:
        def of(size: int) -> Callable[[], object]:
            left = torch.randn(size, size, device=device).to(dtype)
            right = torch.randn(size, size, device=device).to(dtype)
            out = torch.empty(size, size, device=device, dtype=dtype)
            return lambda: torch.mm(left, right, out=out)

        return of

    def eight_bit(size: int) -> Callable[[], object]:
        left = torch.randn(size, size, device=device).to(torch.float8_e4m3fn)
        right = torch.randn(size, size, device=device).to(torch.float8_e4m3fn).t()
        one = torch.ones((), device=device)
        return lambda: torch._scaled_mm(left, right, one, one, out_dtype=torch.bfloat16)

    known = {
        "bf16": plain(torch.bfloat16),
        "fp16": plain(torch.float16),
        "fp32": plain(torch.float32),
        "fp8": eight_bit,
    }
    return {precision: operation for precision, operation in known.items() if _works(operation)}


def _works(operation: Callable[[int], Callable[[], object]]) -> bool:
    try:
        operation(64)()
    except (RuntimeError, NotImplementedError):
        return False
    return True


def _fastest(device: torch.device, operation: Callable[[], object], seconds: float) -> float:
    """Seconds of one call, from batches that together take about as long as asked."""
    _timed(device, operation, 1)
    once = _timed(device, operation, 1)
    if once > seconds:
        return once
    calls = max(1, int(seconds / _BATCHES / max(once, 1e-9)))
    return min(_timed(device, operation, calls) for _ in range(_BATCHES))


def _timed(device: torch.device, operation: Callable[[], object], calls: int) -> float:
    """Seconds per call."""
    _wait(device)
    began = time.perf_counter()
    for _ in range(calls):
        operation()
    _wait(device)
    return (time.perf_counter() - began) / calls


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _groups(nodes: int) -> tuple[dist.ProcessGroup | None, dist.ProcessGroup | None]:
    """The ranks of this node, and those of the same place on every node."""
    if not dist.is_initialized():
        return None, None
    here, world = int(os.environ["LOCAL_WORLD_SIZE"]), dist.get_world_size()
    rank = dist.get_rank()
    within, between = None, None
    for node in range(nodes):  # every rank takes part in making every group
        group = dist.new_group(list(range(node * here, (node + 1) * here)))
        if rank // here == node and here > 1 and isinstance(group, dist.ProcessGroup):
            within = group
    for place in range(here):
        group = dist.new_group(list(range(place, world, here)))
        if rank % here == place and nodes > 1 and isinstance(group, dist.ProcessGroup):
            between = group
    return within, between


def _all_reduce(device: torch.device, group: dist.ProcessGroup | None, seconds: float) -> float | None:
    """Bytes per second that each rank sends in a ring; None without a group."""
    if group is None:
        return None
    members = group.size()
    tensor = torch.zeros(_REDUCED[device.type] // 4, device=device)
    # All ranks must call it equally often, so the number of calls cannot follow each one's own clock.
    dist.all_reduce(tensor, group=group)
    dist.all_reduce(tensor, group=group)
    took = torch.tensor([_timed(device, lambda: dist.all_reduce(tensor, group=group), 1)], device=device)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    calls = max(1, int(seconds / _BATCHES / max(float(took), 1e-9)))
    best = min(_timed(device, lambda: dist.all_reduce(tensor, group=group), calls) for _ in range(_BATCHES))
    return 2.0 * (members - 1) / members * tensor.numel() * 4 / best


def _slowest(value: float, device: torch.device) -> float:
    """Among all ranks: a gang waits for its slowest."""
    if not dist.is_initialized():
        return value
    tensor = torch.tensor([value], dtype=torch.float64, device=device)
    dist.all_reduce(tensor, dist.ReduceOp.MIN)
    return float(tensor)
