"""The probes themselves, on the tiny model."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from agent import Worker
from layouts import ALONE, SMALL, TINY, Trainee, tokens

from headway.message import Configuration, Layout
from headway.parallel import Parallel
from headway.probe.__main__ import main
from headway.probe.critical import smoothed
from headway.saver import Saver

SIZES = "--layers 4 --hidden 16 --heads 4 --kv-heads 2 --ffn 44 --seq-len 16 --lr 1e-2 --warmup-samples 1".split()
BATCHES = ["--micro-batch", str(SMALL), "--global-batch", "8", "--device", "cpu"]
TRAINED = 4
BUDGET = 64
Probe = Callable[..., tuple[int, str]]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """The one of `layouts`."""
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "text").write_bytes(b"".join(b"line %d says %d\n" % (i, i * i) for i in range(4000)))
    return tmp_path / "corpus"


@pytest.fixture
def probe(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Probe:
    """Runs the command, without another import of torch; gives exit code and output."""

    def run(arguments: list[str], **variables: str) -> tuple[int, str]:
        worker = Worker(lambda: main(arguments), variables, tmp_path / "log")
        _, status = os.waitpid(worker.pid, 0)
        return os.waitstatus_to_exitcode(status), "".join(capfd.readouterr())

    return run


def saved(folder: Path, trainee: Trainee) -> str:
    """As trainers wrote it that knew nothing of experts."""
    model = {name: size for name, size in asdict(TINY).items() if "experts" not in name}
    state: dict[str, object] = {
        "optimizer_steps": trainee.parallel.optimizer_steps,
        "learning_rate": {"scale": 1.0, "target": 1.0, "left": 0},
        "model": model,
    }
    saver = Saver(str(folder), "job", 1, 0, 1)
    saver.start(TRAINED, trainee.samples_seen, trainee.parallel.tiles, state)
    assert saver.wait()
    (finished,) = saver.take()
    return finished.saved.path


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {str(file): (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.rglob("*") if file.is_file()}


def continued(trainee: Trainee, k: int) -> list[float]:
    """What training goes through if it simply goes on at k times the batch and √k times the rate."""
    trainee.parallel.configure(Configuration(Layout(1), SMALL, 8 * k))
    losses = []
    for first in range(trainee.samples_seen, trainee.samples_seen + BUDGET, 8 * k):
        trainee.parallel.train(tokens(range(first, first + 8 * k)), first)
        reduced = trainee.parallel.reduce([])
        trainee.parallel.update(reduced, 1e-2 * math.sqrt(k))
        losses.append(reduced.loss)
    return losses


def test_branches_are_trained_from_one_checkpoint_which_stays_as_it_is(
    corpus: Path, tmp_path: Path, probe: Probe
) -> None:
    trainee = Trainee(TINY, ALONE)
    trainee.train(TRAINED)
    path = saved(tmp_path / "saved", trainee)
    before = contents(tmp_path / "saved")
    asked = ["kappa", *SIZES, *BATCHES, "--corpus", str(corpus), "--checkpoint", path, "--limit", "2"]
    asked += ["--tokens", str(BUDGET * TINY.seq_len), "--tolerance", "100"]
    found = []
    for ranks in ("1", "2"):
        told = tmp_path / f"{ranks}.json"
        code, output = probe([*asked, "--json", str(told)], GPUS_PER_NODE=ranks)
        assert code == 0, output
        assert "kappa: " in output and "k = 2: loss" in output
        found.append(json.loads(told.read_text()))
    assert contents(tmp_path / "saved") == before
    alone, two = ([branch["loss"] for branch in each["branches"]] for each in found)
    assert two == pytest.approx(alone, abs=1e-5)
    expected = [smoothed(continued(_again(path), k)) for k in (1, 2)]
    assert alone == pytest.approx(expected, abs=1e-5), "each branch begins where the checkpoint ends"
    judgement = found[0]["judgement"]
    assert judgement["largest_accepted"] == 2 and judgement["smallest_refused"] is None
    assert [branch["steps"] for branch in found[0]["branches"]] == [8, 4]


def _again(path: str) -> Trainee:
    from headway import sharded

    trainee = Trainee(TINY, ALONE)
    sharded.read(path, trainee.parallel.tiles(), None)
    trainee.parallel.optimizer_steps, trainee.samples_seen = TRAINED, 8 * TRAINED
    return trainee


def test_a_checkpoint_that_is_broken_or_too_few_tokens_are_refused(corpus: Path, tmp_path: Path, probe: Probe) -> None:
    trainee = Trainee(TINY, ALONE)
    path = Path(saved(tmp_path / "saved", trainee))
    asked = ["kappa", *SIZES, *BATCHES, "--corpus", str(corpus), "--checkpoint", str(path), "--limit", "2"]
    code, output = probe([*asked, "--tokens", "100"])
    assert code == 2 and "--tokens must be at least 1024" in output
    (path / "progress.json").write_text("something else")
    code, output = probe([*asked, "--tokens", "1024"])
    assert code == 2 and "does not match its manifest" in output


def test_configurations_are_timed_one_after_the_other_whatever_becomes_of_each(
    corpus: Path, tmp_path: Path, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = Parallel.train

    def short_of_memory(self: Parallel, batch: torch.Tensor, first: int, pace: Callable[[float, int], None]) -> None:
        if self.configuration.micro_batch == 4 and self.replica == 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8 GiB.")
        train(self, batch, first, pace)

    monkeypatch.setattr(Parallel, "train", short_of_memory)
    asked = ["throughput", *SIZES, *BATCHES, "--corpus", str(corpus), "--untimed", "1", "--timed", "3"]
    for changes in ("micro_batch=2", "micro_batch=4", "tp=8", "micro_batch=1,sharding=optimizer"):
        asked += ["--try", changes]
    asked += ["--json", str(tmp_path / "told.json"), "--csv", str(tmp_path / "told.csv"), "--gpu-type", "H200"]
    code, output = probe(asked, GPUS_PER_NODE="2", MASTER_PORT="29731")
    assert code == 0, output
    told = json.loads((tmp_path / "told.json").read_text())
    assert [each["status"] for each in told] == ["ok", "oom", "refused", "ok"]
    assert len(told[0]["step_seconds"]) == 3 and told[0]["tokens_per_second"] > 0.0
    rows = list(csv.DictReader((tmp_path / "told.csv").open()))
    assert [(row["status"], row["micro_batch"], row["dp_mode"]) for row in rows] == [
        ("ok", "2", "ddp"),
        ("oom", "4", "ddp"),
        ("ok", "1", "zero1"),
    ]
    assert "oom: CUDA out of memory" in output
