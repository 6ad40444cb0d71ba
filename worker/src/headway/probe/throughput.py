"""The throughput probe of one node: a gang of fresh ranks per configuration, one after the other, so that one that runs
out of memory takes nothing with it. This process imports torch once and must never own a CUDA context."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from headway.batches import read_corpus
from headway.data import Corpus
from headway.environment import Environment
from headway.launch import TERMINATED, fork_ranks
from headway.message import Configuration
from headway.options import first_configuration
from headway.parts import CannotRun, check, import_for
from headway.probe.rows import Outcome, Setting, Timed, table, to_csv, to_json, varied
from headway.probe.timing import DEVICE, FOUND, OUT_OF_MEMORY, time_steps
from headway.probe.told import write_json
from headway.training import CANNOT_RUN


def run(options: argparse.Namespace) -> int:
    """Times every configuration in turn; the node with rank 0 tells what came of them."""
    ranks = int(os.environ.get("GPUS_PER_NODE", "1"))
    world, first_rank = int(os.environ.get("WORLD_SIZE", ranks)), int(os.environ.get("RANK", "0"))
    if "TORCHELASTIC_RUN_ID" in os.environ:
        print("cannot probe: it forks its ranks itself; start it once per node, not by torchrun", file=sys.stderr)
        return CANNOT_RUN
    base = first_configuration(options, Environment.read(os.environ), world)
    try:
        configurations = [varied(base, changes, world) for changes in options.tried or [""]]
    except ValueError as error:
        print(f"cannot probe: {error}", file=sys.stderr)
        return CANNOT_RUN
    import_for(configurations)
    corpus = read_corpus(options)
    port = int(os.environ.get("MASTER_PORT", "29500"))
    outcomes, device, stopped = [], "unknown", False
    for number, configuration in enumerate(configurations):
        with tempfile.TemporaryDirectory(prefix="headway-probe-") as name:
            # A port each: a rank of another node must not meet the gang before.
            os.environ["MASTER_PORT"] = str(port + number)
            outcome = _time(options, corpus, configuration, ranks, world, Path(name))
            named = Path(name) / DEVICE
            device = named.read_text() if named.exists() else device
        if outcome is None:
            stopped = True  # what was measured before is told all the same
            break
        outcomes.append(outcome)
    if first_rank == 0:
        model = options.name or f"decoder-{options.shape.parameters() / 1e6:.3g}M"
        gpu_type = options.gpu_type or device
        _tell(options, Setting(options.shape, model, options.precision, gpu_type, min(ranks, world)), outcomes)
    if stopped:
        return TERMINATED
    return 0 if any(each.status in ("ok", "oom") for each in outcomes) else CANNOT_RUN


def _time(
    options: argparse.Namespace, corpus: Corpus, configuration: Configuration, ranks: int, world: int, folder: Path
) -> Outcome | None:
    """None if the probe was asked to end."""
    try:
        check(options.shape, configuration, world)
    except CannotRun as error:
        return Outcome(configuration, "refused", why=str(error))
    code = fork_ranks(ranks, lambda termination: time_steps(options, corpus, configuration, folder, termination))
    if code == TERMINATED:
        return None
    if (folder / OUT_OF_MEMORY).exists():
        return Outcome(configuration, "oom", why=(folder / OUT_OF_MEMORY).read_text())
    if code:
        return Outcome(configuration, "failed", why=f"exit code {code}")
    if not (folder / FOUND).exists():
        return Outcome(configuration, "ok", why="told by the node with rank 0")
    found = json.loads((folder / FOUND).read_text())
    return Outcome(configuration, "ok", Timed(tuple(found["seconds"]), found["memory_peak"]))


def _tell(options: argparse.Namespace, setting: Setting, outcomes: list[Outcome]) -> None:
    print(f"{setting.name}, {setting.precision}, {setting.gpu_type}: {options.timed} steps each")
    print(table(setting, outcomes), flush=True)
    write_json(options.json, to_json(setting, outcomes))
    if options.csv is not None:
        Path(options.csv).write_text(to_csv(setting, outcomes))
