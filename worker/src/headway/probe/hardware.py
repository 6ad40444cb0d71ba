"""The hardware probe: what this node's GPUs, or its processor, can do, as an entry for a hardware catalog. On one node,
or started on several at once (as a job is), which measures the network between them too. This process must never own
a CUDA context."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from headway.launch import TERMINATED, fork_ranks
from headway.probe.entry import HALF, Rates, entry, network_of, type_of
from headway.probe.told import write_json
from headway.training import CANNOT_RUN

_SYS = Path("/sys/class")


def run(options: argparse.Namespace) -> int:
    """Exit codes: 0 measured, 2 nothing to measure, 143 stopped by SIGTERM, else a rank's."""
    import torch

    from headway.probe.rates import FOUND, measure

    cuda = options.device != "cpu" and torch.cuda.is_available()
    if options.device == "cuda" and not cuda:
        print("cannot probe: there is no CUDA device", file=sys.stderr)
        return CANNOT_RUN
    ranks = options.ranks or int(os.environ.get("GPUS_PER_NODE", torch.cuda.device_count() if cuda else 1))
    world = int(os.environ.get("WORLD_SIZE", ranks))
    if world % ranks:
        print(f"cannot probe: {world} ranks are not {ranks} on each node", file=sys.stderr)
        return CANNOT_RUN
    memory = host_memory() / ranks
    with tempfile.TemporaryDirectory(prefix="headway-probe-") as name:
        folder = Path(name)
        device = "cuda" if cuda else "cpu"
        code = fork_ranks(
            ranks, lambda stopped: measure(device, options.seconds, world // ranks, memory, folder, stopped)
        )
        if code:
            return TERMINATED if code == TERMINATED else code
        rates = Rates(**json.loads((folder / FOUND).read_text()))
    if not any(precision in rates.matmul for precision in HALF):
        print("cannot probe: the device multiplies in no half precision", file=sys.stderr)
        return CANNOT_RUN
    told = None if options.network is None else options.network * 1e9
    network = network_of(rates, told, ports(_SYS), ranks)
    peak = None if options.peak is None else options.peak * 1e12
    text = entry(rates, network, options.gpu_type or type_of(rates.device), peak)
    print(text, end="", flush=True)
    if options.out is not None:
        Path(options.out).write_text(text)
    write_json(options.json, {"rates": asdict(rates), "network": asdict(network), "ranks": ranks, "world": world})
    return 0


def ports(root: Path) -> list[float]:
    """Bytes per second of the network ports that are up: InfiniBand's, else Ethernet's that belong to hardware."""
    found = []
    for port in sorted(root.glob("infiniband/*/ports/*")):
        if "ACTIVE" in _text(port / "state"):
            found.append(_number(_text(port / "rate")) * 1e9 / 8.0)
    if not found:
        for card in sorted(root.glob("net/*")):
            if (card / "device").exists() and _text(card / "operstate") == "up":
                found.append(_number(_text(card / "speed")) * 1e6 / 8.0)
    return [rate for rate in found if rate > 0.0]


def host_memory() -> float:
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _number(text: str) -> float:
    """The number that a text begins with; 0 without one."""
    try:
        return float(text.split()[0])
    except (IndexError, ValueError):
        return 0.0
