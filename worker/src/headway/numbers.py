"""Numbers as scripts have them, of whatever library: Python's, NumPy's, a tensor of one element."""

from __future__ import annotations

import logging
import math
from typing import SupportsFloat, SupportsIndex

log = logging.getLogger("headway")

Number = SupportsFloat | SupportsIndex
_told: set[str] = set()


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


def complain(name: str, number: float) -> None:
    """Says once per argument that a report is left out for what it holds."""
    if name not in _told:
        _told.add(name)
        log.warning("a report is left out: %s is %s (said once)", name, number)
