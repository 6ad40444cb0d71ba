"""Checkpoints on disk."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path

import pytest
import torch

from headway import checkpoint, sharded
from headway.checkpoint import CheckpointError
from headway.saver import Saver
from headway.tiles import Tile, stretch, tile_of

VALUES = torch.arange(12.0).view(4, 3)


def tiles() -> list[Tile]:
    return [tile_of("model.w", VALUES.clone()), tile_of("first.w", VALUES + 1)]


def save(directory: Path, step: int, generation: int = 3) -> Path:
    saver = Saver(str(directory), "job", generation, rank=0, world=1)
    saver.start(step, 64 * step, tiles, {"optimizer_steps": step})
    assert saver.wait()
    (finished,) = saver.take()
    return Path(finished.saved.path)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    path = save(tmp_path, 120)
    assert path == tmp_path / "g3" / "step-000000120"
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest.keys() == {"job", "generation", "step", "samples_seen", "files"}
    assert {file.name for file in path.iterdir()} == {each["name"] for each in manifest["files"]} | {"manifest.json"}
    found = checkpoint.read_manifest(path)
    assert (found.step, found.samples_seen) == (120, 7680)
    checkpoint.verify(path, found)
    wanted = Tile("first.w", (4, 3), (1, 0), torch.zeros(2, 2))
    sharded.read(str(path), [wanted], None)
    assert torch.equal(wanted.tensor, VALUES[1:3, :2] + 1)
    assert json.loads((path / "progress.json").read_text()) == {"optimizer_steps": 120}


def test_the_manifest_is_told_by_its_checksum(tmp_path: Path) -> None:
    saver = Saver(str(tmp_path), "job", 3, rank=0, world=1)
    saver.start(1, 64, tiles, {})
    assert saver.wait()
    saved = saver.take()[0].saved
    assert saved.manifest_sha256 == hashlib.sha256((Path(saved.path) / "manifest.json").read_bytes()).hexdigest()


def test_another_manifest_than_the_committed_one_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    committed = hashlib.sha256((path / "manifest.json").read_bytes()).hexdigest()
    assert checkpoint.read_manifest(path, committed).step == 1
    with pytest.raises(CheckpointError, match="not the one the scheduler has committed"):
        checkpoint.read_manifest(path, "0" * 64)


def test_training_that_goes_on_does_not_change_what_is_saved(tmp_path: Path) -> None:
    values = VALUES.clone()
    saver = Saver(str(tmp_path), "job", 3, rank=0, world=1)
    saver.start(1, 64, lambda: [tile_of("model.w", values)], {})
    values.zero_()
    assert saver.wait()
    wanted = tile_of("model.w", torch.zeros(4, 3))
    sharded.read(saver.take()[0].saved.path, [wanted], None)
    assert torch.equal(wanted.tensor, VALUES)


def test_a_save_does_not_keep_training_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = threading.Event()
    write = sharded.write
    monkeypatch.setattr(sharded, "write", lambda *given: (disk.wait(30.0), write(*given)))
    saver = Saver(str(tmp_path), "job", 3, rank=0, world=1)
    saver.start(1, 64, tiles, {})
    assert saver.busy and not saver.take(), "the disk has not even begun"
    disk.set()
    assert saver.wait() and len(saver.take()) == 1 and not saver.busy


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata", "progress.json"])
def test_a_flipped_bit_is_refused(tmp_path: Path, name: str) -> None:
    path = save(tmp_path, 1)
    data = bytearray((path / name).read_bytes())
    data[len(data) // 2] ^= 1
    (path / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{name} does not match"):
        checkpoint.verify(path, checkpoint.read_manifest(path))


@pytest.mark.parametrize("missing", ["manifest.json", "__0_0.distcp"])
def test_a_missing_file_is_refused(tmp_path: Path, missing: str) -> None:
    path = save(tmp_path, 1)
    (path / missing).unlink()
    with pytest.raises(CheckpointError):
        checkpoint.verify(path, checkpoint.read_manifest(path))


def test_a_tensor_that_was_not_saved_is_missed(tmp_path: Path) -> None:
    path = str(save(tmp_path, 1))
    with pytest.raises(CheckpointError, match=r"no tensor second\.w"):
        sharded.read(path, [tile_of("second.w", torch.zeros(4, 3))], None)
    with pytest.raises(CheckpointError, match=r"\(4, 3\) in the checkpoint and \(5, 3\) here"):
        sharded.read(path, [tile_of("first.w", torch.zeros(5, 3))], None)


def test_saving_removes_no_earlier_checkpoint(tmp_path: Path) -> None:
    paths = [save(tmp_path, step) for step in (1, 2, 3, 4)]
    assert sorted((tmp_path / "g3").iterdir()) == paths


def test_a_failed_save_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saver = Saver(str(tmp_path), "job", 3, rank=0, world=1)
    saver.start(1, 64, tiles, {"broken": lambda: None})
    assert not saver.wait() and not saver.take()
    assert not list((tmp_path / "g3").iterdir())
    assert "checkpoint at step 1 failed" in capsys.readouterr().err


def test_saving_a_step_twice_gives_the_same_checkpoint(tmp_path: Path) -> None:
    assert save(tmp_path, 1) == save(tmp_path, 1)


def test_only_earlier_checkpoints_of_the_job_stand_in_for_a_broken_one(tmp_path: Path) -> None:
    paths = {(generation, step): save(tmp_path, step, generation) for generation, step in [(1, 1), (2, 2), (2, 3)]}
    (tmp_path / "g2" / "step-000000009").mkdir()
    found = [path for path, _ in checkpoint.earlier(str(tmp_path), "job", 3, 64 * 3)]
    assert found == [str(paths[2, 2]), str(paths[1, 1])]
    assert not list(checkpoint.earlier(str(tmp_path), "another", 3, 64 * 3))
    assert [path for path, _ in checkpoint.earlier(str(tmp_path), "job", 2, 64 * 3)] == [str(paths[1, 1])]


def test_any_stretch_of_a_matrix_is_a_few_rectangles() -> None:
    whole = torch.arange(20.0).view(5, 4)
    place = Tile("w", (10, 9), (3, 2), whole)
    for first in range(20):
        for last in range(first, 21):
            pieces = list(stretch(place, first, last, whole.view(-1)[first:last]))
            assert len(pieces) <= 3
            covered = torch.zeros(10, 9)
            for piece in pieces:
                covered[piece.slices] += piece.tensor + 1
            expected = torch.zeros(20)
            expected[first:last] = whole.view(-1)[first:last] + 1
            assert torch.equal(covered[3:8, 2:6].reshape(-1), expected) and covered.sum() == expected.sum()
