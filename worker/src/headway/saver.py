"""Saves while training goes on: a step's state is copied to CPU memory, and a thread writes, measures and commits the
copy, together with the other ranks' threads over a group of their own. One save at a time."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch.distributed as dist

from headway import sharded
from headway.checkpoint import Draft, Entry, Saved
from headway.tiles import Tile, staged

PROGRESS_FILE = "progress.json"
Scalars = dict[str, object]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Finished:
    """A checkpoint that is complete, as rank 0 knows it."""

    saved: Saved
    step: int
    samples_seen: int
    duration_s: float
    staging_s: float
    """The part for which training stood still."""


class Saver:
    """All ranks call `start` at the same step. Without a directory nothing is ever saved."""

    def __init__(self, directory: str | None, job: str, generation: int, rank: int, world: int) -> None:
        self._directory, self._job, self._generation = directory, job, generation
        self._rank = rank
        # Training may use its groups meanwhile, so the threads need one of their own; NCCL cannot carry their objects.
        self._group: dist.ProcessGroup | None = None
        if world > 1 and directory:
            group = dist.new_group(backend="gloo")
            assert isinstance(group, dist.ProcessGroup), "every rank is in it"
            self._group = group
        self._thread: threading.Thread | None = None
        self._finished: list[Finished] = []
        self._failure: str | None = None
        self.began = time.monotonic()

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, step: int, samples_seen: int, tiles: Callable[[], list[Tile]], scalars: Scalars) -> None:
        """Copies the state and returns; an earlier save is waited for."""
        if self._directory is None:
            return
        self.wait()
        self.began = time.monotonic()
        copy = staged(tiles())
        staging = time.monotonic() - self.began
        draft = Draft(self._directory, self._generation, step)
        self._thread = threading.Thread(
            target=self._save, args=(draft, samples_seen, copy, scalars, staging), name="checkpoint", daemon=True
        )
        self._thread.start()

    def take(self) -> list[Finished]:
        """What has been completed since the last call; only rank 0 knows."""
        finished, self._finished = self._finished, []
        return finished

    def wait(self) -> bool:
        """Until nothing is being saved; False if the last save failed, which ends no training."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        failure, self._failure = self._failure, None
        return failure is None

    def _save(self, draft: Draft, samples_seen: int, tiles: list[Tile], scalars: Scalars, staging: float) -> None:
        try:
            saved = self._write(draft, samples_seen, tiles, scalars)
        except Exception as error:  # of whatever kind, from disk or peers: training goes on
            self._failure = f"checkpoint at step {draft.step} failed: {error}"
            print(self._failure, file=sys.stderr, flush=True)
            if self._rank == 0:
                draft.abandon()
            return
        if saved is not None:
            duration = time.monotonic() - self.began
            self._finished.append(Finished(saved, draft.step, samples_seen, duration, staging))

    def _write(self, draft: Draft, samples_seen: int, tiles: list[Tile], scalars: Scalars) -> Saved | None:
        """On rank 0 the checkpoint that all have written."""
        existing = self._together(draft.existing() if self._rank == 0 else None)[0]
        if existing is not None:
            return existing if self._rank == 0 else None
        if self._rank == 0:
            draft.prepare()
        self._together(None)
        sharded.write(draft.path, tiles, self._group)
        names = sharded.files_of(draft.path, self._rank)
        if self._rank == 0:
            (draft.path / PROGRESS_FILE).write_text(json.dumps(scalars, indent=1) + "\n")
            names += [PROGRESS_FILE, sharded.INDEX_FILE]
        every: list[list[Entry]] = self._together([draft.entry(name) for name in names])
        saved = None
        try:
            if self._rank == 0:
                saved = draft.commit(self._job, samples_seen, [entry for entries in every for entry in entries])
        finally:
            self._together(None)  # nobody is done before the checkpoint is there
        return saved

    def _together(self, mine: Item) -> list[Item]:
        """Every rank's item, in order of rank."""
        if self._group is None:
            return [mine]
        gathered: list[Item] = [mine] * dist.get_world_size(self._group)
        dist.all_gather_object(gathered, mine, group=self._group)
        return gathered
