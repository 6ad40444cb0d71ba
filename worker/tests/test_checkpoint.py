"""Checkpoints on disk."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch

from headway import checkpoint
from headway.checkpoint import CheckpointError

STATES = {"model": {"w": torch.arange(4.0)}, "optimizer": {"steps": 3}}


def save(directory: Path, step: int, generation: int = 3) -> Path:
    return Path(checkpoint.save(str(directory), "job", generation, step, 64 * step, STATES).path)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    saved = checkpoint.save(str(tmp_path), "job", 3, 120, 7680, STATES)
    assert saved.path == str(tmp_path / "g3" / "step-000000120")
    manifest = (Path(saved.path) / "manifest.json").read_bytes()
    assert saved.manifest_sha256 == hashlib.sha256(manifest).hexdigest()
    assert json.loads(manifest).keys() == {"job", "generation", "step", "samples_seen", "files"}
    loaded = checkpoint.load(saved.path)
    assert (loaded.step, loaded.samples_seen) == (120, 7680)
    assert torch.equal(loaded.states["model"]["w"], STATES["model"]["w"])


def test_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    data = bytearray((path / "model.pt").read_bytes())
    data[len(data) // 2] ^= 1
    (path / "model.pt").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"model\.pt does not match"):
        checkpoint.load(str(path))


@pytest.mark.parametrize("missing", ["manifest.json", "model.pt"])
def test_a_missing_file_is_refused(tmp_path: Path, missing: str) -> None:
    path = save(tmp_path, 1)
    (path / missing).unlink()
    with pytest.raises(CheckpointError):
        checkpoint.load(str(path))


def test_saving_removes_no_earlier_checkpoint(tmp_path: Path) -> None:
    paths = [save(tmp_path, step) for step in (1, 2, 3, 4)]
    assert sorted((tmp_path / "g3").iterdir()) == paths


def test_a_failed_save_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(AttributeError):
        checkpoint.save(str(tmp_path), "job", 3, 1, 64, {"model": STATES, "broken": lambda: None})
    assert not list((tmp_path / "g3").iterdir())


def test_saving_a_step_twice_gives_the_same_checkpoint(tmp_path: Path) -> None:
    assert save(tmp_path, 1) == save(tmp_path, 1)
