"""Where a probe writes what programs are to read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_json(path: str | None, value: dict[str, Any] | list[Any]) -> None:
    """Nowhere without a path."""
    if path is not None:
        Path(path).write_text(json.dumps(value, indent=1) + "\n")
