"""Gradients of micro-batches, put together from what plain tensors and chunks of a loss give."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from gang import gang
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from headway.integrations.torchtitan_gradients import Gradients


class Heard:
    """A meter's ears."""

    def __init__(self) -> None:
        self.pieces: list[tuple[int, list[float], int]] = []

    def hear(self, parameter: nn.Parameter, key: int, piece: Tensor, copies: int) -> None:
        self.pieces.append((key, piece.flatten().tolist(), copies))


def meter() -> Any:
    return SimpleNamespace(_heard=Heard())


def test_the_chunks_of_a_loss_are_one_gradient_of_its_head() -> None:
    head, body = nn.Linear(2, 1, bias=False), nn.Parameter(torch.zeros(1))
    gradients, told = Gradients([head], None, head, chunks=2), meter()
    heard = told._heard
    gradients.attach(told)
    gradients.deaf_to(heard.hear)(head.weight, 7, torch.full((1, 2), 100.0), 1)
    for micro_batch in (1.0, 10.0):
        for chunk in (1.0, 2.0):
            heard.hear(head.weight, 7, torch.full((1, 2), micro_batch * chunk), 1)
        heard.hear(body, 8, torch.tensor([micro_batch]), 1)
    gradients.end_step()
    assert heard.pieces == [(7, [3.0, 3.0], 1), (8, [1.0], 1), (7, [30.0, 30.0], 1), (8, [10.0], 1)]


def two_ranks() -> list[tuple[int, list[float], int]]:
    rank = torch.distributed.get_rank()
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("fsdp", "tp"))
    gradients, told = Gradients([], mesh["tp"].get_group()), meter()
    heard = told._heard
    gradients.attach(told)
    matrix, gain, whole = (nn.Parameter(torch.zeros(1)) for _ in range(3))
    for parameter, over_tensor in ((matrix, Shard(0)), (gain, Replicate()), (whole, Replicate())):
        placed = distribute_tensor(torch.zeros(2), mesh, [Replicate(), over_tensor])
        gradients._note(parameter, nn.Parameter(placed))
    for micro_batch in (1.0, 10.0):
        heard.hear(matrix, id(matrix), torch.tensor([micro_batch + rank]), 2)
        heard.hear(gain, id(gain), torch.tensor([micro_batch * (rank + 1)]), 2)
        heard.hear(whole, id(whole), torch.tensor([micro_batch]), 2)
    gradients.end_step()
    names = {id(matrix): 0, id(gain): 1, id(whole): 2}
    return [(names[key], piece, copies) for key, piece, copies in heard.pieces]


def test_shards_are_nobodys_copies_and_terms_are_summed_over_tensor_parallel_ranks(tmp_path: Path) -> None:
    for rank, pieces in enumerate(gang(tmp_path, 2, two_ranks)):
        shards = [(0, [1.0 + rank], 1), (0, [10.0 + rank], 1)]
        assert pieces == [*shards, (1, [3.0], 2), (1, [30.0], 2), (2, [1.0], 2), (2, [10.0], 2)]
