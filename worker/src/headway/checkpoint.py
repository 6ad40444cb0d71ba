"""Fenced checkpoints: each generation writes below its own directory and nowhere else, and a directory is complete
exactly when its manifest matches its files (docs/worker-protocol.md, "Checkpoint on disk")."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

MANIFEST = "manifest.json"


class CheckpointError(Exception):
    """A directory that must not be resumed from, and why."""


@dataclass(frozen=True)
class Saved:
    path: str
    manifest_sha256: str


@dataclass(frozen=True)
class Loaded:
    step: int
    samples_seen: int
    states: dict[str, Any]


def save(directory: str, job: str, generation: int, step: int, samples_seen: int, states: Mapping[str, Any]) -> Saved:
    """Writes `states` as `<name>.pt` each, on one rank only. Complete or invisible, whenever the machine dies.

    Older checkpoints stay: only the scheduler knows which of them it has committed as the one to resume from.
    """
    home = Path(directory) / f"g{generation}"
    home.mkdir(parents=True, exist_ok=True)
    final = home / f"step-{step:09d}"
    if final.exists():
        return Saved(str(final), _sha256(final / MANIFEST))
    temporary = home / f".step-{step:09d}.{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        files = []
        for name, state in states.items():
            path = temporary / f"{name}.pt"
            torch.save(state, path)
            _sync(path)
            files.append({"name": path.name, "bytes": path.stat().st_size, "sha256": _sha256(path)})
        manifest = {"job": job, "generation": generation, "step": step, "samples_seen": samples_seen, "files": files}
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
        _sync(temporary / MANIFEST)
        _sync(temporary)
        temporary.rename(final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)  # a full disk is not to be kept full by what it cut short
        raise
    _sync(home)
    return Saved(str(final), _sha256(final / MANIFEST))


def load(path: str) -> Loaded:
    """Verifies every file against the manifest and loads to CPU memory; raises CheckpointError otherwise."""
    directory = Path(path)
    try:
        manifest = json.loads((directory / MANIFEST).read_text())
        states = {}
        for entry in manifest["files"]:
            file = directory / Path(entry["name"]).name
            if file.stat().st_size != entry["bytes"] or _sha256(file) != entry["sha256"]:
                raise CheckpointError(f"{file} does not match its manifest")
            states[file.stem] = torch.load(file, map_location="cpu", weights_only=True)
        return Loaded(int(manifest["step"]), int(manifest["samples_seen"]), states)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{directory} is no complete checkpoint: {error}") from error


def _sha256(path: Path) -> str:
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
