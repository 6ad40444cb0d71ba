"""Training state as rectangles of named global tensors: what a checkpoint stores and a change of layout moves about.

A layout decides which rectangles a rank holds and nothing else does, so state saved under one layout can be read back
under any other. Copies are allowed; gaps are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

Extent = tuple[int, ...]


@dataclass(frozen=True)
class Tile:
    """This rank's rectangle of a tensor: `tensor` holds the elements from `offset` on, in the rectangle's own shape."""

    name: str
    shape: Extent
    """Of the whole tensor."""
    offset: Extent
    tensor: Tensor

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where it lies in the whole tensor."""
        return tuple(slice(at, at + size) for at, size in zip(self.offset, self.tensor.shape, strict=True))

    def renamed(self, name: str, tensor: Tensor) -> Tile:
        """Another tensor of the same place, such as a moment of a parameter."""
        return Tile(name, self.shape, self.offset, tensor.view(self.tensor.shape))


def tile_of(name: str, parameter: Tensor) -> Tile:
    """What this rank holds of a parameter, which may be a DTensor."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if not isinstance(parameter, DTensor):
        return Tile(name, tuple(parameter.shape), (0,) * parameter.dim(), parameter.detach())
    _, offset = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
    return Tile(name, tuple(parameter.shape), tuple(offset), parameter.to_local().detach())


def stretch(tile: Tile, first: int, last: int, values: Tensor) -> Iterator[Tile]:
    """The rectangles that elements `first` to `last` of a tile make up when it is read row by row: the end of a row,
    whole rows, the beginning of a row. `values` holds those elements, end to end."""
    size = tile.tensor.shape
    if len(size) < 2:
        if first < last:
            yield Tile(tile.name, tile.shape, (tile.offset[0] + first,), values)
        return
    width = size[1:].numel()
    at = first
    while at < last:
        row, column = divmod(at, width)
        if column or last - at < width:
            # A piece of one row; deeper tensors than matrices do not occur in a decoder.
            end = min(last, (row + 1) * width)
            sizes: Extent = (1, end - at)
        else:
            end = at + (last - at) // width * width
            sizes = ((end - at) // width, width)
        offset = (tile.offset[0] + row, tile.offset[1] + column)
        yield Tile(tile.name, tile.shape, offset, values[at - first : end - first].view(sizes))
        at = end


def overlap(offset: Extent, size: Extent, other_offset: Extent, other_size: Extent) -> tuple[slice, ...] | None:
    """Where two rectangles of the same tensor meet, in coordinates of the whole tensor."""
    met = []
    for at, length, other_at, other_length in zip(offset, size, other_offset, other_size, strict=True):
        start, end = max(at, other_at), min(at + length, other_at + other_length)
        if start >= end:
            return None
        met.append(slice(start, end))
    return tuple(met)


def within(tile: Tile, met: tuple[slice, ...]) -> Tensor:
    """The part of a tile at these coordinates of the whole tensor, as a view."""
    return tile.tensor[tuple(slice(m.start - at, m.stop - at) for m, at in zip(met, tile.offset, strict=True))]


def staged(tiles: list[Tile]) -> list[Tile]:
    """A copy in CPU memory, which training that goes on does not touch."""
    return [
        Tile(each.name, each.shape, each.offset, torch.empty_like(each.tensor, device="cpu").copy_(each.tensor))
        for each in tiles
    ]


def restore(held: list[Tile], tiles: list[Tile]) -> None:
    """Sets tiles to what `staged` copied from them."""
    for copy, tile in zip(held, tiles, strict=True):
        tile.tensor.copy_(copy.tensor)
