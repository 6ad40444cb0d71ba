"""Fenced checkpoints on disk: each generation writes below its own directory and nowhere else, and a directory is
complete exactly when its manifest matches its files (docs/worker-protocol.md, "Checkpoint on disk"). What the files
hold is their writer's business; nothing here needs PyTorch."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MANIFEST = "manifest.json"


class CheckpointError(Exception):
    """A directory that must not be resumed from, and why."""


@dataclass(frozen=True)
class Entry:
    """One file of a checkpoint."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a complete checkpoint says of itself."""

    job: str
    generation: int
    step: int
    samples_seen: int
    files: tuple[Entry, ...]


@dataclass(frozen=True)
class Saved:
    path: str
    manifest_sha256: str


class Draft:
    """A checkpoint being written: files go below `path`, and `commit` makes them one. Complete or invisible, whenever
    the machine dies.

    Earlier checkpoints stay: only the scheduler knows which of them it has committed as the one to resume from.
    """

    def __init__(self, directory: str, generation: int, step: int) -> None:
        self.generation, self.step = generation, step
        self._home = Path(directory) / f"g{generation}"
        self.final = self._home / f"step-{step:09d}"
        # Only one process group ever writes below a generation's directory, so the name needs no process id, and all
        # its ranks know it.
        self.path = self._home / f".step-{step:09d}"

    def existing(self) -> Saved | None:
        """The same step's checkpoint, if it was committed before."""
        manifest = self.final / MANIFEST
        return Saved(str(self.final), sha256(manifest)) if manifest.exists() else None

    def prepare(self) -> None:
        """Makes the empty directory, on one rank."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)

    def entry(self, name: str) -> Entry:
        """Syncs a file that is finished and takes its measure."""
        file = self.path / name
        _sync(file)
        return Entry(name, file.stat().st_size, sha256(file))

    def commit(self, job: str, samples_seen: int, files: list[Entry]) -> Saved:
        """Writes the manifest and gives the directory its name, on one rank, after every file is measured."""
        manifest = {
            "job": job,
            "generation": self.generation,
            "step": self.step,
            "samples_seen": samples_seen,
            "files": [{"name": each.name, "bytes": each.size, "sha256": each.sha256} for each in files],
        }
        (self.path / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
        _sync(self.path / MANIFEST)
        _sync(self.path)
        self.path.rename(self.final)
        _sync(self._home)
        return Saved(str(self.final), sha256(self.final / MANIFEST))

    def abandon(self) -> None:
        """A full disk is not to be kept full by what it cut short."""
        shutil.rmtree(self.path, ignore_errors=True)


def read_manifest(path: str | Path) -> Manifest:
    """Raises CheckpointError where there is none that makes sense."""
    directory = Path(path)
    try:
        manifest = json.loads((directory / MANIFEST).read_text())
        return Manifest(
            job=str(manifest["job"]),
            generation=int(manifest["generation"]),
            step=int(manifest["step"]),
            samples_seen=int(manifest["samples_seen"]),
            files=tuple(
                Entry(str(each["name"]), int(each["bytes"]), str(each["sha256"])) for each in manifest["files"]
            ),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{directory} is no complete checkpoint: {error}") from error


def verify(path: str | Path, manifest: Manifest, share: slice = slice(None)) -> None:
    """Checks the files, or a rank's share of them, against the manifest; raises CheckpointError with the first that
    differs."""
    for each in manifest.files[share]:
        file = Path(path) / each.name
        if not file.resolve().is_relative_to(Path(path).resolve()):
            raise CheckpointError(f"{path} names {each.name}, which lies elsewhere")
        try:
            good = file.stat().st_size == each.size and sha256(file) == each.sha256
        except OSError as error:
            raise CheckpointError(f"{path} is no complete checkpoint: {error}") from error
        if not good:
            raise CheckpointError(f"{file} does not match its manifest")


def earlier(directory: str, job: str, generation: int, samples_seen: int) -> Iterator[tuple[str, Manifest]]:
    """The job's complete checkpoints of earlier generations with fewer samples, the latest first; not yet verified."""
    found = []
    for path in Path(directory).glob("g*/step-*"):
        try:
            manifest = read_manifest(path)
        except CheckpointError:
            continue
        if manifest.job == job and manifest.generation < generation and manifest.samples_seen < samples_seen:
            found.append((manifest.samples_seen, manifest.generation, str(path), manifest))
    for _, _, name, manifest in sorted(found, reverse=True, key=lambda each: each[:3]):
        yield name, manifest


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
