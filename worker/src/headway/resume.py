"""Which checkpoint a rank starts from, the same on all ranks. A broken one is never read: if the one named is broken,
the job's newest whole one of an earlier generation takes its place, and that is said loudly."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist

from headway import sharded
from headway.checkpoint import CheckpointError, Manifest, earlier, read_manifest, verify
from headway.environment import Environment
from headway.flops import ModelShape
from headway.parallel import Parallel
from headway.saver import PROGRESS_FILE

Item = TypeVar("Item")
_UNTOLD = {"experts": 0, "active_experts": 0}
"""Of models whose checkpoints say nothing of it."""


def choose(environment: Environment, group: dist.ProcessGroup | None) -> tuple[str, Manifest] | None:
    """None on a first start. Raises CheckpointError, on every rank, where nothing may be resumed from."""
    named = environment.resume_path
    if named is None:
        return None
    rank = 0 if group is None else dist.get_rank(group)
    manifest, complaint = _together(named, environment.resume_manifest_sha256, group)
    if manifest is not None:
        if manifest.samples_seen != environment.samples_seen:
            raise CheckpointError(f"{named} holds {manifest.samples_seen} samples, not {environment.samples_seen}")
        return named, manifest
    substitute = _gather(_substitute(environment) if rank == 0 else None, group)[0]
    if substitute is None:
        raise CheckpointError(complaint)
    if rank == 0:
        path, found = substitute
        print(
            f"CHECKPOINT BROKEN: {complaint}\nresuming from the earlier {path} instead: "
            f"{environment.samples_seen - found.samples_seen} samples are trained again",
            file=sys.stderr,
            flush=True,
        )
    return substitute


def verified(path: str, group: dist.ProcessGroup | None) -> Manifest:
    """The manifest of a checkpoint whose files all match it; raises CheckpointError, on every rank, if they do not."""
    manifest, complaint = _together(path, None, group)
    if manifest is None:
        raise CheckpointError(complaint)
    return manifest


def fill(path: str, parallel: Parallel, shape: ModelShape, group: dist.ProcessGroup | None) -> dict[str, Any]:
    """Reads model and optimizer from a checkpoint that was verified; returns what it holds beside tensors."""
    state = _scalars(path)
    model = state.get("model")
    if not isinstance(model, dict) or _UNTOLD | model != asdict(shape):
        raise CheckpointError(f"{path} is of another model")
    sharded.read(path, parallel.tiles(), group)
    parallel.optimizer_steps = int(state["optimizer_steps"])
    return state


def _scalars(path: str) -> dict[str, Any]:
    """What beside tensors a checkpoint holds."""
    try:
        state = json.loads((Path(path) / PROGRESS_FILE).read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is no checkpoint of this trainer: {error}") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{path} is no checkpoint of this trainer")
    return state


def _together(
    path: str, committed_sha256: str | None, group: dist.ProcessGroup | None
) -> tuple[Manifest | None, str | None]:
    """The manifest, or what some rank found wrong; every rank checks its share of the files."""
    rank, world = (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))
    manifest, complaint = _checked(path, committed_sha256, rank, world)
    complaints = [each for each in _gather(complaint, group) if each is not None]
    return (None, complaints[0]) if complaints else (manifest, None)


def _checked(path: str, committed_sha256: str | None, rank: int, world: int) -> tuple[Manifest | None, str | None]:
    """The manifest, and what is wrong with this rank's share of the files."""
    try:
        manifest = read_manifest(path, committed_sha256)
        verify(path, manifest, slice(rank, None, world))
    except CheckpointError as error:
        return None, str(error)
    return manifest, None


def _substitute(environment: Environment) -> tuple[str, Manifest] | None:
    """The latest earlier checkpoint that is whole."""
    if environment.checkpoint_dir is None:
        return None
    for path, manifest in earlier(
        environment.checkpoint_dir, environment.job_id, environment.generation, environment.samples_seen
    ):
        try:
            verify(path, manifest)
        except CheckpointError as error:
            print(f"passed over: {error}", file=sys.stderr, flush=True)
            continue
        return path, manifest
    return None


def _gather(mine: Item, group: dist.ProcessGroup | None) -> list[Item]:
    if group is None:
        return [mine]
    gathered = [mine] * dist.get_world_size(group)
    dist.all_gather_object(gathered, mine, group=group)
    return gathered
