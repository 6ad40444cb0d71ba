"""Ends gloo's process group of a script that leaves it to the interpreter.

Threads of gloo hold the tensors of their last collective for a moment after the collective is done. A thread that lets
such a tensor go while the interpreter ends aborts the process ("terminate called without an active exception"), and the
agent reports a failed rank of a job that was done (pytorch/pytorch#179291, #190489). `atexit` runs while the
interpreter is whole. Destroying the group is not enough: a DistributedDataParallel that still exists keeps the group's
threads alive. Therefore the exit also waits until these threads hold nothing.

Imports no torch: scripts that never import it pay nothing.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from pathlib import Path

THREAD = "pt_gloo_runloop"
"""The name that PyTorch gives to a thread that carries out collectives."""
TASKS = Path("/proc/self/task")
PAUSE_S = 0.002
PATIENCE_S = 5.0
"""A machine that is so busy may abort a process after all: an exit does not wait for ever."""

_registered = False


def end_groups_at_exit() -> None:
    """Registers the end of gloo's process group at the end of this process. Further calls do nothing."""
    global _registered
    if not _registered:
        _registered = True
        atexit.register(_end_groups, os.getpid())


def _end_groups(process: int) -> None:
    """Leaves the group alone after an uncaught exception: other ranks may wait in a collective of it. Leaves other
    backends alone too: their destruction may wait for peers that have ended. A forked child has none of the threads."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or os.getpid() != process:
        return
    failed = getattr(sys, "last_value", None) is not None
    if failed or not distributed.is_initialized() or distributed.get_backend() != "gloo":
        return
    _await_idle_threads()
    distributed.destroy_process_group()


def _await_idle_threads() -> None:
    """Returns once every thread has slept through a pause in which it could have had the interpreter's lock. A thread
    that waits for another rank sleeps too, and is not waited for."""
    deadline = time.monotonic() + PATIENCE_S
    before = _observe_threads()
    while before and time.monotonic() < deadline:
        time.sleep(PAUSE_S)
        after = _observe_threads()
        if after == before and all(state == "S" for state, _ in after.values()):
            return
        before = after


def _observe_threads() -> dict[str, tuple[str, str]]:
    """The state of each thread of gloo, and how often it has gone to sleep. Empty where the kernel is not Linux."""
    observed = {}
    for task in TASKS.iterdir() if TASKS.is_dir() else ():
        try:
            if (task / "comm").read_text().strip() != THREAD:
                continue
            status = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
        except OSError:  # the thread has just ended
            continue
        observed[task.name] = status.get("State", "?").split()[0], status.get("voluntary_ctxt_switches", "")
    return observed
