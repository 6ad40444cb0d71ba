"""From what was measured of a node's GPUs to an entry of a hardware catalog. Pure: rates in, TOML out.

The scheduler takes the entry's memory, link and network rates as achieved (`measured = true`), its matrix rate as the
best of any shape. Three digits: what differs less is the same hardware, and only nodes with equal entries are alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

HALF = ("bf16", "fp16")
_GIB = float(1 << 30)
_FAMILIES = (
    ("GB300", "GB300"),
    ("GB200", "GB200"),
    ("B200", "B200"),
    ("H100", "H100"),
    ("H200", "H100"),
    ("H800", "H100"),
    ("A100", "A100"),
    ("A800", "A100"),
    ("V100", "V100"),
    ("Instinct", "AMD"),
)
"""Parts of drivers' names; the first match counts."""


@dataclass(frozen=True)
class Rates:
    """Of one GPU while all of its node work, the slowest GPU's. FLOP/s, bytes/s and bytes."""

    device: str
    """What the driver calls it."""
    matmul: dict[str, float]
    """By precision; only what the device can do."""
    memory_rate: float
    memory: float
    multiprocessors: int
    link: float | None
    """Of an all-reduce within the node; None for a GPU alone."""
    network: float | None
    """Of an all-reduce between nodes, per GPU; None unless several were probed."""


@dataclass(frozen=True)
class Network:
    """Bytes per second and GPU, and who says so."""

    rate: float
    source: str


def network_of(rates: Rates, told: float | None, ports: list[float], ranks: int) -> Network:
    """Measured between nodes, else told, else what the node's network ports promise, else an assumption that says
    so."""
    if rates.network is not None:
        return Network(rates.network, "measured between nodes")
    if told is not None:
        return Network(told, "as told")
    if ports:
        promised = f"not measured: {len(ports)} network port(s) promise it; probe two nodes at once"
        return Network(sum(ports) / ranks, promised)
    return Network(1.25e9 / ranks, "not known, assumed: 10 Gbit/s per node; give --network or probe two nodes")


def family_of(device: str) -> str:
    """Whose fitted factors fit best; `other` has none."""
    for part, family in _FAMILIES:
        if part in device:
            return family
    return "other"


def type_of(device: str) -> str:
    """As the agent names a GPU that the built-in catalog does not know."""
    return device.removeprefix("NVIDIA ").strip().replace(" ", "-")


def entry(rates: Rates, network: Network, gpu_type: str, peak: float | None) -> str:
    """The TOML entry. `peak`: the data sheet's dense half-precision FLOP/s, if anybody knows."""
    half = max(rates.matmul[each] for each in HALF if each in rates.matmul)
    sheet = peak if peak is not None else half
    values: list[tuple[str, str, str]] = [
        ("family", f'"{family_of(rates.device)}"', ""),
        ("peak", _digits(max(sheet, half) / 1e12), "" if peak is not None else "not known: the best measured rate"),
        ("matmul", _digits(half / 1e12, down=True), ""),
    ]
    # Eight bits that are no faster are only emulated.
    if rates.matmul.get("fp8", 0.0) > half:
        values.append(("matmul_8bit", _digits(rates.matmul["fp8"] / 1e12), ""))
    if "fp32" in rates.matmul:
        values.append(("matmul_32bit", _digits(rates.matmul["fp32"] / 1e12), ""))
    link = rates.link if rates.link is not None else network.rate
    values += [
        ("memory", _digits(rates.memory / _GIB), ""),
        ("bandwidth", _digits(rates.memory_rate / 1e12), ""),
        ("link", _digits(link / 1e9), "" if rates.link is not None else "a GPU alone has none to measure"),
        ("network", _digits(network.rate / 1e9), network.source),
        ("multiprocessors", str(rates.multiprocessors), ""),
        ("measured", "true", ""),
    ]
    lines = [f"{name} = {value}" + (f"  # {note}" if note else "") for name, value, note in values]
    return "\n".join([f'["{gpu_type}"]  # {rates.device}, by python -m headway.probe hardware', *lines]) + "\n"


def _digits(value: float, down: bool = False) -> str:
    """Three significant digits, never in exponential form. `down`: of a rate that must not exceed its peak."""
    if value <= 0.0:
        raise ValueError("a rate must be positive")
    places = 2 - math.floor(math.log10(value))
    scale = 10.0**places
    rounded = (math.floor(value * scale) if down else round(value * scale)) / scale
    return f"{rounded:.{max(places, 0)}f}"
