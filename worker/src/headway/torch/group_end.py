"""Destroys the process group of a script that leaves it to the interpreter.

Threads of gloo hold tensors of Python. A thread that lets one go while the interpreter ends aborts the process
("terminate called without an active exception"), and the agent reports a failed rank of a job that was done
(pytorch/pytorch#179291, #190489). `atexit` runs while the interpreter is whole."""

from __future__ import annotations

import atexit
import sys

import torch.distributed

_registered = False


def destroy_group_at_exit() -> None:
    """Registers the destruction of gloo's process group at the end of this process. Further calls do nothing."""
    global _registered
    if not _registered:
        _registered = True
        atexit.register(_destroy_group)


def _destroy_group() -> None:
    """Leaves the group alone after an uncaught exception: other ranks may wait in a collective of it. Leaves other
    backends alone too: their destruction may wait for peers that have ended."""
    failed = getattr(sys, "last_value", None) is not None
    if failed or not torch.distributed.is_initialized() or torch.distributed.get_backend() != "gloo":
        return
    torch.distributed.destroy_process_group()
