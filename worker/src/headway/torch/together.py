"""A call that is for every rank, made by some only, would wait in its collective for as long as the process group does.
Here the ranks meet once at the process group's store, and whoever stays away is named."""

from __future__ import annotations

import datetime

import torch.distributed
from torch.distributed import distributed_c10d

MEET_S = 600.0
"""First steps compile, and load data, at different speeds."""


def meet(what: str, wait_s: float | None = None) -> None:
    """Returns once every rank of the world has come. Raises RuntimeError after `wait_s` (`MEET_S`) with who has not."""
    if not torch.distributed.is_initialized():
        return
    wait_s = MEET_S if wait_s is None else wait_s
    store = distributed_c10d._get_default_store()
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    came = store.add(f"headway/{what}", 1)
    meeting = f"headway/{what}/{(came - 1) // world}"
    store.set(f"{meeting}/{rank}", "")
    if came % world == 0:
        store.set(meeting, "")
    try:
        store.wait([meeting], datetime.timedelta(seconds=wait_s))
    except RuntimeError as error:
        missing = [each for each in range(world) if not store.check([f"{meeting}/{each}"])]
        if not missing:
            return
        raise RuntimeError(
            f"{what} was called on rank {rank}, and not within {wait_s:g} s on rank{'s' if len(missing) > 1 else ''}"
            f" {', '.join(map(str, missing))}: it is for every rank"
        ) from error
