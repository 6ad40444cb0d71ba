"""Checkpoints of scripts that write their own files: what they put into a directory becomes a fenced checkpoint
(docs/worker-protocol.md, "Checkpoint on disk") and is offered to the scheduler.

    with headway.saving(step=step, samples_seen=seen) as directory:    # on one rank
        torch.save(model.state_dict(), directory / "model.pt")

Never call it outside a Headway job that has a checkpoint directory: `headway.joined()` tells.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from headway import sdk
from headway.checkpoint import Draft
from headway.numbers import Number, count


class NothingWritten(Exception):
    """A checkpoint would have no file: who resumed from it would begin anew."""


@contextlib.contextmanager
def saving(*, step: Number, samples_seen: Number) -> Iterator[Path]:
    """An empty directory to write to; complete or invisible, whenever the machine dies. Raises whatever the
    block raises, and then keeps nothing; `NothingWritten` where the block has written elsewhere, or nothing."""
    environment = sdk.joined()
    if environment is None or environment.checkpoint_dir is None:
        raise RuntimeError("this process has no checkpoint directory of a Headway job")
    began = time.monotonic()
    at, seen = count("step", step), count("samples_seen", samples_seen)
    draft = Draft(environment.checkpoint_dir, environment.generation, at)
    draft.prepare()
    try:
        yield draft.path
        written = sorted(each for each in draft.path.rglob("*") if each.is_file())
        if not written:
            raise NothingWritten(f"no file was written to {draft.path}: write into the directory that is given")
        files = [draft.entry(str(each.relative_to(draft.path))) for each in written]
        saved = draft.existing() or draft.commit(environment.job_id, seen, files)
    except BaseException:
        draft.abandon()
        raise
    draft.abandon()  # nothing is left of it unless the step was saved before
    sdk.checkpoint_done(
        step=at,
        samples_seen=seen,
        path=saved.path,
        manifest_sha256=saved.manifest_sha256,
        duration_s=time.monotonic() - began,
    )
