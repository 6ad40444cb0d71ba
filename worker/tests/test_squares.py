"""Squares of norms that are known as numbers, as tensors, or as both."""

from __future__ import annotations

import pytest
import torch

from headway.torch.squares import sum_of_squares


@pytest.mark.parametrize(
    "norms",
    [
        [3.0, torch.tensor(4.0)],
        [torch.tensor(4.0), 3.0],
        [torch.tensor(3.0), torch.tensor(4.0, dtype=torch.float64)],
        [3.0, 4.0],
    ],
)
def test_numbers_and_tensors_are_added(norms: list[torch.Tensor | float]) -> None:
    total = sum_of_squares(norms)
    assert total.dtype == torch.float64 and total.item() == 25.0


def test_no_norms_are_no_square() -> None:
    assert sum_of_squares([]).item() == 0.0


def test_squares_beyond_single_precision_are_finite() -> None:
    assert sum_of_squares([torch.tensor(1e30), 1e30]).item() == pytest.approx(2e60)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a second device")
def test_tensors_of_several_devices_are_added_where_the_accelerator_is() -> None:
    total = sum_of_squares([torch.tensor(3.0), torch.tensor(4.0, device="cuda"), 12.0])
    assert total.device.type == "cuda" and total.item() == 169.0
