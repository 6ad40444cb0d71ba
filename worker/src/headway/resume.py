"""Which checkpoint a rank starts from, the same on all ranks. A broken one is never read: if the one named is broken,
the job's newest whole one of an earlier generation takes its place, and that is said loudly."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist

from headway.checkpoint import CheckpointError, Manifest, earlier, read_manifest, verify
from headway.environment import Environment
from headway.saver import PROGRESS_FILE

Item = TypeVar("Item")


def choose(environment: Environment, group: dist.ProcessGroup | None) -> tuple[str, Manifest] | None:
    """None on a first start. Raises CheckpointError, on every rank, where nothing may be resumed from."""
    named = environment.resume_path
    if named is None:
        return None
    rank = 0 if group is None else dist.get_rank(group)
    manifest, complaint = _checked(named, rank, 1 if group is None else dist.get_world_size(group))
    complaints = [each for each in _gather(complaint, group) if each is not None]
    if not complaints:
        assert manifest is not None, "no complaint, so it was read"
        if manifest.samples_seen != environment.samples_seen:
            raise CheckpointError(f"{named} holds {manifest.samples_seen} samples, not {environment.samples_seen}")
        return named, manifest
    substitute = _gather(_substitute(environment) if rank == 0 else None, group)[0]
    if substitute is None:
        raise CheckpointError(complaints[0])
    if rank == 0:
        path, found = substitute
        print(
            f"CHECKPOINT BROKEN: {complaints[0]}\nresuming from the earlier {path} instead: "
            f"{environment.samples_seen - found.samples_seen} samples are trained again",
            file=sys.stderr,
            flush=True,
        )
    return substitute


def scalars(path: str) -> dict[str, Any]:
    """What beside tensors a checkpoint holds."""
    try:
        state = json.loads((Path(path) / PROGRESS_FILE).read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is no checkpoint of this trainer: {error}") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{path} is no checkpoint of this trainer")
    return state


def _checked(path: str, rank: int, world: int) -> tuple[Manifest | None, str | None]:
    """The manifest, and what is wrong with this rank's share of the files."""
    try:
        manifest = read_manifest(path)
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
