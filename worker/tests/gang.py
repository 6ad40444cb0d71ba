"""Forks ranks that talk over gloo and hands back what each returned. Torch is imported before: a rank costs little."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed

Result = TypeVar("Result")


def gang(folder: Path, world: int, main: Callable[[], Result]) -> list[Result]:
    """Runs `main` in `world` ranks of a process group; a rank that fails fails the test with its traceback."""
    store = folder / f"store-{len(list(folder.iterdir()))}"
    children = [_fork(store, rank, world, main) for rank in range(world)]
    outcomes = [_outcome(pipe) for _, pipe in children]
    for process, _ in children:
        os.waitpid(process, 0)
    for rank, (good, value) in enumerate(outcomes):
        assert good, f"rank {rank}: {value}"
    return [value for _, value in outcomes]


def _fork(store: Path, rank: int, world: int, main: Callable[[], Result]) -> tuple[int, int]:
    read, write = os.pipe()
    process = os.fork()
    if process:
        os.close(write)
        return process, read
    os.close(read)
    gc.freeze()  # a collection would copy all the memory that is shared with the parent
    try:
        signal.alarm(120)
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.set_num_threads(1)
        torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
        outcome = (True, main())
    except BaseException:
        outcome = (False, traceback.format_exc())
    with os.fdopen(write, "wb") as pipe:
        pickle.dump(outcome, pipe)
    sys.stdout.flush()
    os._exit(0)


def _outcome(pipe: int) -> tuple[bool, object]:
    with os.fdopen(pipe, "rb") as stream:
        data = stream.read()
    return pickle.loads(data) if data else (False, "ended without a word")
