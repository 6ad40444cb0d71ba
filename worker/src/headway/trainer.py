"""The reference trainer's entry: `python -m headway.trainer`, once per node. It reads the options, imports torch, forks
one rank per GPU and hands over to `training`. Under torchrun, or with one process per GPU, give `--no-fork`; it also
runs alone."""

from __future__ import annotations

import argparse
import sys
import time

from headway.environment import process_started_at
from headway.launch import Termination, one_thread_per_library, run_ranks
from headway.options import add_training, complete


def options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line. Batches given here serve only outside Headway."""
    parser = argparse.ArgumentParser(prog="headway.trainer", description="Train a small Llama-style decoder on text.")
    add_training(parser)
    run = parser.add_argument_group("run")
    run.add_argument("--max-samples", type=int, default=1 << 62, help="sequences after which training is complete")
    run.add_argument("--report-every", type=float, default=1.0, help="seconds of steps per report")
    run.add_argument("--no-fork", action="store_true", help="this process is one rank, as under torchrun")
    return complete(parser, parser.parse_args(arguments))


def main(arguments: list[str] | None = None) -> int:
    """Exit codes: 0 complete or stopped as ordered over the socket, 2 cannot run as configured, 3 diverged, 143 stopped
    by SIGTERM alone, else a crash."""
    chosen = options(arguments)
    one_thread_per_library()
    # Torch comes in only now, after the options are known good.
    import headway.training as training
    from headway.batches import read_corpus

    training.preload(chosen)
    corpus = read_corpus(chosen)
    import_s = time.time() - process_started_at()

    def rank(termination: Termination) -> int:
        return training.run(chosen, corpus, termination, import_s)

    return run_ranks(rank, fork=not chosen.no_fork)


if __name__ == "__main__":
    sys.exit(main())
