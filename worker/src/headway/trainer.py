"""The reference trainer's entry: `python -m headway.trainer`, once per node. It reads the options, imports torch, forks
one rank per GPU and hands over to `training`. Under torchrun, or with one process per GPU, give `--no-fork`; it also
runs alone."""

from __future__ import annotations

import argparse
import os
import sys
import time

from headway.flops import ModelShape
from headway.launch import Termination, fork_ranks

_LOADED_AT = time.time()


def options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line. Batches given here serve only outside Headway."""
    parser = argparse.ArgumentParser(prog="headway.trainer", description="Train a small Llama-style decoder on text.")
    model = parser.add_argument_group("model")
    for name, size in {
        "layers": 4,
        "hidden": 64,
        "heads": 4,
        "kv-heads": 2,
        "ffn": 176,
        "vocab": 256,
        "seq-len": 64,
    }.items():
        model.add_argument(f"--{name}", type=int, default=size)
    model.add_argument("--tied", action="store_true", help="output projection shares the embedding")
    recipe = parser.add_argument_group("recipe")
    recipe.add_argument("--lr", type=float, default=3e-3, help="learning rate at the reference batch")
    recipe.add_argument("--warmup-steps", type=int, default=20)
    recipe.add_argument("--weight-decay", type=float, default=0.1)
    recipe.add_argument("--clip", type=float, default=1.0, help="largest gradient norm")
    recipe.add_argument("--seed", type=int, default=0)
    recipe.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    recipe.add_argument("--corpus", help="directory of text; default: the sources of Python's standard library")
    recipe.add_argument(
        "--token-bytes",
        type=int,
        choices=[1, 2, 4],
        default=1,
        help="2 or 4: --corpus is a file of unsigned tokens of this size",
    )
    recipe.add_argument("--max-samples", type=int, default=1 << 62, help="sequences after which training is complete")
    recipe.add_argument("--micro-batch", type=int, default=4)
    recipe.add_argument("--global-batch", type=int, default=16)
    layout = parser.add_argument_group("layout", "only outside Headway; data parallelism takes the ranks left")
    layout.add_argument("--tp", type=int, default=1)
    layout.add_argument("--pp", type=int, default=1)
    layout.add_argument("--vpp", type=int, default=1, help="chunks of layers per stage")
    layout.add_argument("--schedule", choices=["1f1b", "gpipe", "breadth_first"], default="1f1b")
    layout.add_argument("--sharding", choices=["none", "optimizer", "gradients", "parameters"], default="none")
    layout.add_argument("--recompute", choices=["none", "selective", "full"], default="none")
    layout.add_argument("--sequence-parallel", action="store_true")
    run = parser.add_argument_group("run")
    run.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    run.add_argument("--report-every", type=float, default=1.0, help="seconds of steps per report")
    run.add_argument("--no-fork", action="store_true", help="this process is one rank, as under torchrun")
    parsed = parser.parse_args(arguments)
    if parsed.token_bytes == 1 and parsed.vocab < 256:
        parser.error("--vocab must be at least 256: the corpus is bytes")
    if parsed.token_bytes > 1 and not parsed.corpus:
        parser.error("--token-bytes needs a file of tokens as --corpus")
    try:
        parsed.shape = ModelShape(
            parsed.layers,
            parsed.hidden,
            parsed.heads,
            parsed.kv_heads,
            parsed.ffn,
            parsed.vocab,
            parsed.seq_len,
            tied=parsed.tied,
        )
    except ValueError as error:
        parser.error(str(error))
    return parsed


def main(arguments: list[str] | None = None) -> int:
    """Exit codes: 0 complete or stopped as ordered over the socket, 2 cannot run as configured, 3 diverged, 143 stopped
    by SIGTERM alone, else a crash."""
    chosen = options(arguments)
    # Before the import: one thread per rank, and none in the process that forks.
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    import headway.training as training  # torch comes in only now, after the options are known good

    training.preload(chosen)
    corpus = training.read_corpus(chosen)
    import_s = time.time() - _started_at()

    def rank(termination: Termination) -> int:
        return training.run(chosen, corpus, termination, import_s)

    ranks = int(os.environ.get("GPUS_PER_NODE", "1"))
    if chosen.no_fork or (ranks == 1 and int(os.environ.get("WORLD_SIZE", "1")) == 1):
        termination = Termination()
        termination.catch()
        return rank(termination)
    return fork_ranks(ranks, rank)


def _started_at() -> float:
    """When the kernel started this process, so that the interpreter's own start counts as import too."""
    try:
        with open("/proc/self/stat", encoding="ascii") as stat:
            ticks = int(stat.read().rsplit(")", 1)[1].split()[19])
        return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):
        return _LOADED_AT


if __name__ == "__main__":
    sys.exit(main())
