"""Gradients of micro-batches, put together from what plain tensors and chunks of a loss give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gang import gang
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from headway import said
from headway.integrations.torchtitan_gradients import Gradients
from headway.torch import NoiseMeter
from headway.torch.squares import Unmeasured


class Ears:
    """A meter's."""

    def __init__(self) -> None:
        self.pieces: list[tuple[int, list[float], int]] = []
        self.dtypes: set[torch.dtype] = set()
        self.hear: Any = self._keep

    def hear_through(self, listener: Any) -> Any:
        heard, self.hear = self.hear, listener
        return heard

    def _keep(self, parameter: nn.Parameter, key: int, piece: Tensor, copies: int) -> None:
        self.dtypes.add(piece.dtype)
        self.pieces.append((key, piece.flatten().tolist(), copies))


def test_the_chunks_of_a_loss_are_one_gradient_of_its_head() -> None:
    head, body = nn.Linear(2, 1, bias=False), nn.Parameter(torch.zeros(1))
    gradients, heard = Gradients([head], None, head, chunks=2), Ears()
    gradients.attach(heard)
    gradients.deaf_to(heard.hear)(head.weight, 7, torch.full((1, 2), 100.0), 1)
    for micro_batch in (1.0, 10.0):
        for chunk in (1.0, 2.0):
            heard.hear(head.weight, 7, torch.full((1, 2), micro_batch * chunk), 1)
        heard.hear(body, 8, torch.tensor([micro_batch]), 1)
    gradients.end_step(2)
    assert heard.pieces == [(7, [3.0, 3.0], 1), (8, [1.0], 1), (7, [30.0, 30.0], 1), (8, [10.0], 1)]


def test_chunks_are_summed_in_single_precision() -> None:
    head = nn.Linear(1, 1, bias=False, dtype=torch.bfloat16)
    gradients, heard = Gradients([head], None, head, chunks=3), Ears()
    gradients.attach(heard)
    for chunk in (256.0, 1.0, 1.0):
        heard.hear(head.weight, 7, torch.full((1, 1), chunk, dtype=torch.bfloat16), 1)
    assert heard.dtypes == {torch.float32}
    assert heard.pieces == [(7, [258.0], 1)], "256 + 1 is 256 in bfloat16"


def test_other_chunks_than_were_said_are_miscounted_and_do_not_carry_over() -> None:
    head = nn.Linear(1, 1, bias=False)
    gradients = Gradients([head], None, head, chunks=2)
    noise = NoiseMeter(head, every=1)
    gradients.attach(noise)
    for chunks, why in ((3, Unmeasured.MISCOUNTED), (4, None)):
        head.zero_grad()
        for each in range(chunks):
            head(torch.full((1, 1), float(each + 1))).sum().backward()
        gradients.end_step(2)
        measured = noise.measure(1, 0.5, 2)
        assert measured.unmeasured is why
    assert measured.noise is not None
    assert measured.noise.small_sqr == pytest.approx(((1 + 2) ** 2 + (3 + 4) ** 2) / 0.5 / 2 / 0.5)


def test_a_head_that_is_tied_under_a_loss_in_chunks_has_no_noise_which_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said.forget()
    embedding, head = nn.Embedding(4, 2), nn.Linear(2, 4, bias=False)
    head.weight = embedding.weight
    model = nn.Sequential(embedding, head)
    gradients, noise = Gradients([model], None, head, chunks=2), NoiseMeter(model, every=1)
    gradients.attach(noise)
    for _ in range(3):
        assert not noise.measuring
        for chunk in torch.tensor([[0, 1], [2, 3]]):
            model(chunk).sum().backward()
        assert noise.measure(1, 0.5, 2).noise is None
    (line,) = [each for each in caplog.messages if "weight tying" in each]
    assert "ChunkedLossWrapper" in line


def test_a_head_that_is_not_tied_is_measured() -> None:
    model = nn.Sequential(nn.Embedding(4, 2), nn.Linear(2, 4, bias=False))
    gradients, noise = Gradients([model], None, model[1], chunks=2), NoiseMeter(model, every=1)
    gradients.attach(noise)
    assert noise.measuring


def two_ranks() -> list[tuple[int, list[float], int]]:
    rank = torch.distributed.get_rank()
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("fsdp", "tp"))
    gradients, heard = Gradients([], mesh["tp"].get_group()), Ears()
    gradients.attach(heard)
    matrix, gain, whole = (nn.Parameter(torch.zeros(1)) for _ in range(3))
    for parameter, over_tensor in ((matrix, Shard(0)), (gain, Replicate()), (whole, Replicate())):
        placed = distribute_tensor(torch.zeros(2), mesh, [Replicate(), over_tensor])
        gradients._note(parameter, nn.Parameter(placed))
    for micro_batch in (1.0, 10.0):
        heard.hear(matrix, id(matrix), torch.tensor([micro_batch + rank]), 2)
        heard.hear(gain, id(gain), torch.tensor([micro_batch * (rank + 1)]), 2)
        heard.hear(whole, id(whole), torch.tensor([micro_batch]), 2)
    gradients.end_step(2)
    names = {id(matrix): 0, id(gain): 1, id(whole): 2}
    return [(names[key], piece, copies) for key, piece, copies in heard.pieces]


def test_shards_are_nobodys_copies_and_terms_are_summed_over_tensor_parallel_ranks(tmp_path: Path) -> None:
    for rank, pieces in enumerate(gang(tmp_path, 2, two_ranks)):
        shards = [(0, [1.0 + rank], 1), (0, [10.0 + rank], 1)]
        assert pieces == [*shards, (1, [3.0], 2), (1, [30.0], 2), (2, [1.0], 2), (2, [10.0], 2)]
