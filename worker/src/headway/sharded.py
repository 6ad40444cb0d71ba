"""Tiles to and from files by torch.distributed.checkpoint, which finds for every rectangle wanted the saved ones it
overlaps: that is all it takes to read state back under another layout."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import LoadPlan, SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from headway.checkpoint import CheckpointError
from headway.tiles import Tile

INDEX_FILE = ".metadata"

# A process that trains alone means to.
warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")


def write(path: Path, tiles: list[Tile], group: dist.ProcessGroup | None) -> None:
    """Every rank of the group calls it with what it holds; copies are written once."""
    writer = FileSystemWriter(path, single_file_per_rank=True, sync_files=True, thread_count=1)
    with _told_plainly():
        save(_by_name(tiles), storage_writer=writer, planner=_SavePlanner(), process_group=group, no_dist=group is None)


def read(path: str, tiles: list[Tile], group: dist.ProcessGroup | None) -> None:
    """Fills every tile, whatever layout wrote the files."""
    reader = FileSystemReader(path)
    with _told_plainly():
        load(_by_name(tiles), storage_reader=reader, planner=_LoadPlanner(), process_group=group, no_dist=group is None)


def files_of(path: Path, rank: int) -> list[str]:
    """What a rank has written."""
    return sorted(file.name for file in path.glob(f"__{rank}_*"))


@contextlib.contextmanager
def _told_plainly() -> Iterator[None]:
    """The library's exception is no `Exception`, and carries a traceback of every rank: one rank's reason will do."""
    try:
        yield
    except CheckpointException as error:
        rank, (reason, _) = min(error.failures.items())
        raise CheckpointError(f"rank {rank}: {reason}") from error


def _by_name(tiles: list[Tile]) -> dict[str, list[Tile]]:
    named: dict[str, list[Tile]] = defaultdict(list)
    for tile in tiles:
        if tile.tensor.numel():
            named[tile.name].append(tile)
    return dict(named)


def _by_index(named: Mapping[str, list[Tile]]) -> dict[MetadataIndex, Tile]:
    return {_index(tile): tile for tiles in named.values() for tile in tiles}


def _index(tile: Tile, number: int | None = None) -> MetadataIndex:
    return MetadataIndex(tile.name, torch.Size(tile.offset), number)


def _chunk(tile: Tile) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(torch.Size(tile.offset), tile.tensor.shape)


class _SavePlanner(DefaultSavePlanner):
    """Offers this rank's tiles; the base class settles between ranks who writes which."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def create_local_plan(self) -> SavePlan:
        self._tiles = _by_index(self.state_dict)
        self.plan = SavePlan([self._item(tile) for tile in self._tiles.values()])
        return self.plan

    def lookup_object(self, index: MetadataIndex) -> torch.Tensor:
        return self._tiles[index].tensor

    def _item(self, tile: Tile) -> WriteItem:
        properties = dataclasses.replace(TensorProperties.create_from_tensor(tile.tensor), requires_grad=False)
        data = TensorWriteData(_chunk(tile), properties, torch.Size(tile.shape))
        return WriteItem(_index(tile), WriteItemType.SHARD, tensor_data=data)


class _LoadPlanner(DefaultLoadPlanner):
    """Asks for this rank's tiles."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def set_up_planner(self, state_dict: dict[str, Any], metadata: Any = None, is_coordinator: bool = False) -> None:
        self.state_dict, self.metadata, self.is_coordinator = state_dict, metadata, is_coordinator

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None, "set up before planning"
        items = []
        self._tiles = _by_index(self.state_dict)
        for name, tiles in self.state_dict.items():
            saved = self.metadata.state_dict_metadata.get(name)
            if saved is None or isinstance(saved, BytesStorageMetadata):
                raise ValueError(f"the checkpoint holds no tensor {name}")
            if tuple(saved.size) != tiles[0].shape:
                raise ValueError(f"{name} is {tuple(saved.size)} in the checkpoint and {tiles[0].shape} here")
            items += create_read_items_for_chunk_list(name, saved, [_chunk(tile) for tile in tiles])
        return LoadPlan(items)

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        return self._tiles[index].tensor
