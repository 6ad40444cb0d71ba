"""What a node's devices are said to do: the entry for a hardware catalog, and the probe on this processor."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from agent import Worker

from headway.probe.__main__ import main
from headway.probe.entry import Network, Rates, entry, family_of, network_of, type_of
from headway.probe.hardware import ports

RATES = Rates(
    device="NVIDIA GeForce RTX 5090",
    matmul={"bf16": 2.0949e14, "fp16": 2.0e14, "fp32": 7.5e13, "fp8": 3.9e14},
    memory_rate=1.5512e12,
    memory=float(32 << 30),
    multiprocessors=170,
    link=2.4e10,
    network=None,
)


def read(text: str) -> dict[str, str]:
    """Values of an entry as they are written, without the notes."""
    lines = [line.split("  #")[0] for line in text.splitlines()[1:]]
    return dict(line.split(" = ", 1) for line in lines)


def test_an_entry_has_three_digits_the_best_half_precision_and_no_exponents() -> None:
    text = entry(RATES, Network(1.25e9, "as told"), type_of(RATES.device), None)
    assert text.startswith('["GeForce-RTX-5090"]')
    values = read(text)
    assert (values["matmul"], values["matmul_8bit"], values["matmul_32bit"]) == ("209", "390", "75.0")
    assert (values["memory"], values["bandwidth"], values["network"]) == ("32.0", "1.55", "1.25")
    assert (values["family"], values["multiprocessors"], values["measured"]) == ('"other"', "170", "true")


def test_the_best_rate_never_exceeds_the_peak_that_stands_beside_it() -> None:
    values = read(entry(RATES, Network(1e9, ""), "x", None))
    assert float(values["matmul"]) <= float(values["peak"])
    told = read(entry(RATES, Network(1e9, ""), "x", 3.0e14))
    assert (told["peak"], told["matmul"]) == ("300", "209")


def test_the_network_is_measured_or_told_or_promised_or_says_that_it_is_assumed() -> None:
    measured = Rates(**{**RATES.__dict__, "network": 4.0e10})
    assert network_of(measured, 1e9, [5e10], 8) == Network(4.0e10, "measured between nodes")
    assert network_of(RATES, 1e9, [5e10], 8) == Network(1e9, "as told")
    promised = network_of(RATES, None, [5e10] * 8, 8)
    assert promised.rate == 5e10 and "promise" in promised.source
    assert "assumed" in network_of(RATES, None, [], 8).source


def test_a_device_has_the_factors_of_its_family() -> None:
    devices = ["NVIDIA H200", "NVIDIA GB200", "NVIDIA B200", "AMD Instinct MI210", "CPU"]
    assert [family_of(device) for device in devices] == ["H100", "GB200", "B200", "AMD", "other"]


def test_infinibands_ports_count_before_ethernets_and_only_those_that_are_up(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    for card, state, speed in (("eth0", "up", "25000"), ("eth1", "down", "25000"), ("lo", "up", "10")):
        write(f"net/{card}/operstate", state)
        write(f"net/{card}/speed", speed)
        if card != "lo":
            write(f"net/{card}/device/vendor", "")
    assert ports(tmp_path) == [25e9 / 8]
    write("infiniband/mlx5_0/ports/1/state", "4: ACTIVE")
    write("infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)")
    write("infiniband/mlx5_1/ports/1/state", "1: DOWN")
    assert ports(tmp_path) == [50e9]


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_processor_is_measured_within_and_between_nodes(nodes: int, tmp_path: Path) -> None:
    workers = []
    for node in range(nodes):
        found = tmp_path / f"{node}.json"
        arguments = ["hardware", "--device", "cpu", "--ranks", "2", "--seconds", "0.01", "--gpu-type", "CPU"]
        arguments += ["--out", str(tmp_path / f"{node}.toml"), "--json", str(found)]
        variables = {"MASTER_PORT": str(29610 + nodes), "WORLD_SIZE": str(2 * nodes), "RANK": str(2 * node)}
        workers.append(Worker(lambda a=arguments: main(a), variables, tmp_path / f"log-{node}"))
    for worker in workers:
        _, status = os.waitpid(worker.pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    for node in range(nodes):
        found = json.loads((tmp_path / f"{node}.json").read_text())
        rates = found["rates"]
        assert rates["matmul"]["fp32"] > 1e8 and rates["matmul"]["bf16"] > 1e6
        assert rates["memory_rate"] > 1e8 and rates["link"] > 1e6
        assert (rates["network"] is not None) == (nodes > 1)
        assert (tmp_path / f"{node}.toml").read_text().startswith('["CPU"]')
