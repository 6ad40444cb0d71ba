"""One process per node becomes one per GPU: torch is imported once, then the ranks are forked, because the import is
nearly all of a restart's cost. The parent does nothing but watch. Must be called before any thread or CUDA context
exists."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable

from headway.environment import process_started_at

_PR_SET_PDEATHSIG = 1
# Exit code of a rank that stopped in good order because of SIGTERM, without an order over the socket: its work is not
# done, and whoever reads the code (perhaps an agent that was away) must not take it for success.
TERMINATED = 128 + signal.SIGTERM


def one_thread_per_library() -> None:
    """As torchrun does, unless the job says otherwise. Before the imports: the libraries start their threads there."""
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")


class Termination:
    """Whether this process was asked to end by SIGTERM."""

    def __init__(self) -> None:
        self.requested = False

    def catch(self) -> None:
        signal.signal(signal.SIGTERM, self._request)

    def _request(self, *_: object) -> None:
        self.requested = True


def run_ranks(main: Callable[[Termination], int], fork: bool) -> int:
    """Runs `main` in the ranks of this node, or in this process where it is told to or is alone; returns the exit
    code."""
    ranks = int(os.environ.get("GPUS_PER_NODE", "1"))
    if fork and (ranks > 1 or int(os.environ.get("WORLD_SIZE", "1")) > 1):
        return fork_ranks(ranks, main)
    termination = Termination()
    termination.catch()
    return main(termination)


def fork_ranks(count: int, main: Callable[[Termination], int]) -> int:
    """Runs `main` in `count` ranks of this node; returns the exit code of the first that failed, else
    `TERMINATED` if they stopped because of SIGTERM, else 0.

    One rank's death ends all: its peers would wait for it in a collective until their timeout.
    """
    first_rank = int(os.environ.get("RANK", "0"))
    os.environ.setdefault("WORLD_SIZE", str(count))
    # A SIGTERM between fork and handler must neither get lost nor kill half the ranks.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    gc.freeze()
    sys.stdout.flush()
    os.environ["HEADWAY_STARTED_AT"] = repr(process_started_at())
    children = set()
    for local in range(count):
        child = os.fork()
        if child == 0:
            os._exit(_rank(local, first_rank, count, main))
        children.add(child)

    def forward(number: int, _: object) -> None:
        for child in children:
            _kill(child, number)

    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C reaches the ranks by itself
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    code = 0
    while children:
        child, status = os.wait()
        children.discard(child)
        ended = os.waitstatus_to_exitcode(status)
        if ended in (0, TERMINATED):
            code = code or ended  # all ranks stop at the same step; the others may still be saving
        elif code in (0, TERMINATED):
            code = ended if ended > 0 else 128 - ended
            print(f"a rank ended with {code}, ending the others", file=sys.stderr, flush=True)
            for other in children:
                _kill(other, signal.SIGKILL)
    return code


def _rank(local: int, first_rank: int, count: int, main: Callable[[Termination], int]) -> int:
    """A child's whole life; never returns into the parent's stack."""
    try:
        parent = os.getppid()
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return 1
        os.environ.update(RANK=str(first_rank + local), LOCAL_RANK=str(local), LOCAL_WORLD_SIZE=str(count))
        termination = Termination()
        termination.catch()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        return main(termination)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _kill(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)
