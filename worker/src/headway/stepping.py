"""The part of an optimizer step that the trainer and its probes share: this replica's samples, forward, backward and
the mean gradient."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from headway.batches import Batches
from headway.pacing import Pacer
from headway.parallel import Parallel
from headway.torch import Reduced


def mean_gradient(
    parallel: Parallel, batches: Batches, samples_seen: int, pacer: Pacer, ask: Callable[[float], list[float]]
) -> Reduced | None:
    """Of the step that begins at sample `samples_seen`; None, with nothing changed, if loss or gradient is no finite
    number on any rank. `ask` hears how many seconds this rank has worked, and gives what rides in the step's
    all-reduce."""
    started = time.monotonic()
    configuration = parallel.configuration
    own = configuration.samples(parallel.replica)
    first = samples_seen + own.start
    # This replica's share: consecutive samples of the global order.
    parallel.train(batches.training(range(first, samples_seen + own.stop)), first, pacer.after_micro_batch)
    if configuration.layout.pp > 1:
        pacer.after_pipeline(started, len(own), len(own) // configuration.micro_batch)
    reducing = time.monotonic()
    reduced = parallel.reduce(ask(reducing - started))
    pacer.after_reduce(reducing)
    if not (math.isfinite(reduced.loss) and math.isfinite(reduced.gradient_sqr)):
        return None
    return reduced
