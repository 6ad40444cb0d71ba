"""Numbers as scripts have them, of whatever library: Python's, NumPy's, a tensor of one element."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import SupportsFloat, SupportsIndex

Number = SupportsFloat | SupportsIndex


def real(name: str, value: Number) -> float:
    """As a float, finite or not. Raises TypeError with the argument's name where it is no number."""
    try:
        # A loss that still has its graph: only its value is wanted.
        return float(value.detach() if hasattr(value, "detach") else value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be a number, not {type(value).__name__}: {error}") from error


def whole(name: str, value: Number) -> int:
    """As an int. Raises TypeError where it is no number, ValueError where it is not whole."""
    if isinstance(value, int):
        return int(value)
    number = real(name, value)
    if not math.isfinite(number) or number != math.floor(number):
        raise ValueError(f"{name} must be a whole number, not {number}")
    return int(number)


def count(name: str, value: Number, least: int = 0) -> int:
    """The same, and ValueError where it is less than `least`."""
    number = whole(name, value)
    if number < least:
        raise ValueError(f"{name} must be {least} at least, not {number}")
    return number


def reals(name: str, values: Iterable[Number]) -> list[float]:
    """Each of them. Raises ValueError where one is negative or not finite."""
    numbers = [real(name, value) for value in values]
    if not all(math.isfinite(number) and number >= 0.0 for number in numbers):
        raise ValueError(f"{name} must each be finite and 0 at least, not {numbers}")
    return numbers
