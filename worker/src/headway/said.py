"""What is said once in a process: of the same mistake at each step one line is enough."""

from __future__ import annotations

import logging

log = logging.getLogger("headway")

_told: set[str] = set()


def once(about: str, words: str) -> None:
    """Warns, unless it has of the same before."""
    if about not in _told:
        _told.add(about)
        log.warning("%s (said once)", words)


def forget() -> None:
    """Another session may hear it again."""
    _told.clear()
