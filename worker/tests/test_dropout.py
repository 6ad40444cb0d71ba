"""Dropout's masks: known answers, shares, and slices of one and the same mask wherever they are computed."""

from __future__ import annotations

import pytest
import torch
from rounding import assert_close_tensors

from headway import trainer
from headway.dropout import Dropout, philox
from headway.flops import ModelShape
from headway.model import Decoder

TINY = ModelShape(layers=2, hidden=16, heads=4, kv_heads=2, ffn_hidden=44, vocab=256, seq_len=16)
TOKENS = torch.arange(4 * 16).view(4, 16)
POSITIONS = torch.arange(16)


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ((0x00000000, 0x00000000), 0x00000000, (0xFF1DAE59, 0x6CD10DF2)),
        ((0xFFFFFFFF, 0xFFFFFFFF), 0xFFFFFFFF, (0x2C3F628B, 0xAB4FD7AD)),
        ((0x243F6A88, 0x85A308D3), 0x13198A2E, (0xDD7CE038, 0xF62A4C12)),
    ],
)
def test_philox_gives_the_answers_of_its_authors(counter: tuple[int, int], key: int, answer: tuple[int, int]) -> None:
    """`kat_vectors` of Random123."""
    first, second = philox(torch.tensor([counter[0]]), torch.tensor([counter[1]]), key)
    assert (int(first), int(second)) == answer


def test_the_share_is_dropped_and_the_rest_makes_up_for_it() -> None:
    ones = torch.ones(64, 16, 256)
    kept = Dropout(0.25, seed=1).of(range(64), POSITIONS)(ones, "somewhere")
    assert kept.unique().tolist() == pytest.approx([0.0, 4 / 3])
    # 262,144 draws: five standard deviations.
    assert float((kept == 0.0).float().mean()) == pytest.approx(0.25, abs=5 * (0.25 * 0.75 / kept.numel()) ** 0.5)
    assert abs(float((kept[1:] * kept[:-1]).mean()) - 1.0) < 0.01, "one sample's mask says nothing of the next's"


def test_any_slice_of_samples_and_positions_has_its_part_of_the_mask() -> None:
    dropout, x = Dropout(0.5, seed=3), torch.randn(4, 16, 8)
    whole = dropout.of(range(100, 104), POSITIONS)(x, "place")
    part = dropout.of(range(102, 104), POSITIONS[[4, 5, 14, 15]])(x[2:, [4, 5, 14, 15]], "place")
    assert torch.equal(part, whole[2:, [4, 5, 14, 15]])
    for other in (
        dropout.of(range(100, 104), POSITIONS)(x, "another place"),
        Dropout(0.5, seed=4).of(range(100, 104), POSITIONS)(x, "place"),
        dropout.of(range(101, 105), POSITIONS)(x, "place"),
    ):
        assert not torch.equal(other, whole)


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_what_is_recomputed_is_dropped_again(recompute: str) -> None:
    gradients = []
    for how in ("none", recompute):
        model = Decoder(TINY, recompute=how, dropout=Dropout(0.3, 5))
        model(TOKENS, range(7, 11)).square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for kept, recomputed in zip(*gradients, strict=True):
        assert kept is not None and recomputed is not None
        assert torch.allclose(kept, recomputed, rtol=1e-4, atol=1e-6)


def test_evaluation_drops_nothing() -> None:
    plain, dropping = Decoder(TINY), Decoder(TINY, dropout=Dropout(0.3, 5))
    assert_close_tensors([dropping(TOKENS)], [plain(TOKENS)])
    assert not torch.allclose(dropping(TOKENS, range(4)), plain(TOKENS))


@pytest.mark.parametrize("share", ["-0.1", "1"])
def test_a_share_that_is_none_is_refused(share: str) -> None:
    with pytest.raises(SystemExit):
        trainer.options(["--dropout", share])
