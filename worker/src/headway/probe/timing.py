"""One rank that times one configuration and ends. What it found lies in a folder that its node's parent gave it."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist

from headway.batches import Batches
from headway.data import Corpus
from headway.environment import Environment
from headway.gang import Gangs, control_group, device_of, join
from headway.launch import TERMINATED, Termination
from headway.learning_rate import LearningRate
from headway.message import Configuration
from headway.pacing import Pacer
from headway.parallel import Parallel
from headway.parts import CannotRun
from headway.probe.rows import Timed
from headway.stepping import mean_gradient
from headway.training import CANNOT_RUN, recipe_of

FOUND, DEVICE, OUT_OF_MEMORY = "found.json", "device", "out-of-memory"


def time_steps(
    options: argparse.Namespace,
    corpus: Corpus,
    configuration: Configuration,
    folder: Path,
    termination: Termination,
) -> int:
    """Exit codes: 0 timed, 1 out of memory, 2 cannot be run, 143 stopped by SIGTERM."""
    try:
        timed = _timed(options, corpus, configuration, folder, termination)
    except torch.OutOfMemoryError as error:
        # The peers wait for this rank in a collective; its end is theirs.
        (folder / OUT_OF_MEMORY).write_text(str(error).split(". ")[0])
        return 1
    except CannotRun as error:
        print(f"cannot run: {error}", file=sys.stderr, flush=True)
        return CANNOT_RUN
    if timed is None:
        return TERMINATED
    if os.environ.get("RANK", "0") == "0":
        (folder / FOUND).write_text(json.dumps(asdict(timed)))
    return 0


def _timed(
    options: argparse.Namespace,
    corpus: Corpus,
    configuration: Configuration,
    folder: Path,
    termination: Termination,
) -> Timed | None:
    """None if asked to end."""
    environment = Environment.read(os.environ)
    flops = environment.device_flops if environment else None
    device = device_of(options.device, flops is not None)
    cuda = device.type == "cuda"
    if os.environ.get("LOCAL_RANK", "0") == "0":
        (folder / DEVICE).write_text(torch.cuda.get_device_name(device) if cuda else "CPU")
    join(device)
    control = control_group(device)
    batches = Batches(corpus, device)
    parallel = Parallel(recipe_of(options), configuration, Gangs(device).of(configuration))
    parallel.initialise()
    pacer = Pacer(options.shape, configuration, flops, environment.link_bytes_per_second if environment else None)
    schedule = LearningRate(options.rate, 1.0)
    seconds = []
    for step in range(options.untimed + options.timed):
        began = time.monotonic()
        first = step * configuration.global_batch
        reduced = mean_gradient(parallel, batches, first, pacer, lambda _: [float(termination.requested)])
        if reduced is None:
            raise CannotRun(f"step {step + 1} has no finite loss")
        if reduced.extra[0] > 0.0:
            return None
        parallel.update(reduced, schedule.next(first + configuration.global_batch))
        if cuda:
            torch.cuda.synchronize(device)
        seconds.append(time.monotonic() - began)
    memory = torch.cuda.max_memory_reserved(device) if cuda else 0
    found = torch.tensor([*seconds[options.untimed :], float(memory)], dtype=torch.float64)
    if control is not None:
        dist.all_reduce(found, dist.ReduceOp.MAX, control)
    *slowest, fullest = found.tolist()
    return Timed(tuple(slowest), int(fullest) if cuda else None)
