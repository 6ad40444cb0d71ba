"""What of a framework's configuration cannot be followed, named before anything is built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.environment import Environment
from headway.message import Shares
from headway.torch import UnknownLayout


def refuse(framework: str, refused: Mapping[str, object]) -> None:
    """ValueError with the first of the reasons that holds."""
    for why, holds in refused.items():
        if holds:
            raise ValueError(f"headway cannot follow this {framework}: {why}")


def refuse_shares(framework: str, environment: Environment | None) -> None:
    """ValueError where the job was told uneven shares: frameworks weigh gradients and deal out data as if all
    replicas did as much."""
    configuration = environment.configuration if environment else None
    uneven = configuration is not None and configuration.execution.shares != Shares()
    refuse(framework, {"its replicas do uneven shares: take uneven_shares out of the job's layouts": uneven})


def refuse_degrees(framework: str, degrees: Any, *names: str) -> None:
    """UnknownLayout where a degree of parallelism is above 1 whose noise cannot be measured."""
    for name in names:
        if getattr(degrees, name) > 1:
            raise UnknownLayout(
                f"the noise under {framework}'s {name} cannot be measured: run it untouched by headway.watch"
            )
