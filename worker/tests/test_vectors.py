"""The protocol's test vectors for implementations in other languages hold for this one (docs/worker-protocol.jsonl)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent import FakeAgent, environment

import headway
from headway.message import Configuration, parse_directive

VECTORS = [
    json.loads(line) for line in (Path(__file__).parents[2] / "docs" / "worker-protocol.jsonl").read_text().splitlines()
]
LINES: dict[str, dict[str, Any]] = {vector["name"]: vector["line"] for vector in VECTORS}


def report(line: dict[str, Any], loss: float | None) -> None:
    noise, preconditioned = (
        headway.NoiseSample(**line[name]) if name in line else None for name in ("noise", "preconditioned")
    )
    fields = ("step", "steps", "samples_seen", "tokens", "duration_s")
    headway.report(
        **{field: line[field] for field in fields},
        configuration=Configuration.from_json(line["configuration"]),
        loss=loss,
        noise=noise,
        preconditioned=preconditioned,
    )


def offer(line: dict[str, Any]) -> None:
    fields = ("step", "samples_seen", "path", "manifest_sha256", "duration_s")
    headway.checkpoint_done(**{field: line[field] for field in fields})


SAID: dict[str, Callable[[dict[str, Any]], None]] = {
    "steps with their noise": lambda line: report(line, line["loss"]),
    "steps with the noise of Adam's gradients too": lambda line: report(line, line["loss"]),
    "a step with one small batch has no noise": lambda line: report(line, line["loss"]),
    "a loss that is not finite is left out": lambda line: report(line, math.nan),
    "what a start took": lambda line: headway.phases(line["phases"]),
    "a checkpoint is offered": offer,
    "the last line of a worker that stops": lambda line: headway.stopped(
        step=line["step"], samples_seen=line["samples_seen"]
    ),
}


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAgent]:
    fake = FakeAgent(tmp_path / "agent.sock")
    for name, value in environment(fake, 4, 4, 16, HEADWAY_GENERATION="3").items():
        monkeypatch.setenv(name, value)
    yield fake
    fake.hang_up()
    headway.close(timeout_s=0.0)


@pytest.mark.parametrize("name", SAID)
def test_a_worker_says_it_so(agent: FakeAgent, name: str) -> None:
    """Every field of the vector, to the digit; a newer worker may add some of its own."""
    headway.init()
    SAID[name](LINES[name])
    agent.serve(lambda: bool(agent.of(LINES[name]["type"])))
    (said,) = agent.of(LINES[name]["type"])
    assert without_execution(said) == LINES[name]
    hello, expected = agent.of("hello")[0], LINES["the first line of a connection"]
    assert hello.keys() >= expected.keys()
    assert {**hello, "pid": expected["pid"]}.items() >= expected.items()


def without_execution(line: dict[str, Any]) -> dict[str, Any]:
    """How a layout is carried out may be told beside it; by default it need not be."""
    if "configuration" not in line:
        return line
    configuration = {key: value for key, value in line["configuration"].items() if key != "execution"}
    return {**line, "configuration": configuration}


@pytest.mark.parametrize("vector", [each for each in VECTORS if each["from"] == "agent"], ids=lambda each: each["name"])
def test_an_agents_line_is_understood_so(vector: dict[str, Any]) -> None:
    directive = parse_directive(vector["line"])
    match directive:
        case None:
            asks = None
        case headway.Stop(checkpoint=saves, grace_s=grace):
            asks = {"stop": {"checkpoint": saves, "grace_s": grace, "exit_code": directive.exit_code}}
        case headway.Checkpoint():
            asks = {"checkpoint": {}}
        case headway.Configure(configuration=configuration):
            layout = configuration.layout
            batches = {"micro_batch": configuration.micro_batch, "global_batch": configuration.global_batch}
            degrees = {"dp": layout.dp, "tp": layout.tp, "pp": layout.pp}
            asks = {"configure": {"revision": directive.revision, **degrees, **batches, "lr_scale": directive.lr_scale}}
    assert asks == vector.get("asks")
    assert (asks is None) == vector.get("ignored", False)
