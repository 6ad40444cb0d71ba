"""The probes' command line. It takes the trainer's own options for model, recipe and layout, and imports torch only
once they are known good."""

from __future__ import annotations

import argparse
import sys

from headway.launch import Termination, one_thread_per_library, run_ranks
from headway.options import add_training, complete
from headway.probe.critical import TOLERANCE


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="headway.probe", description="Measure what the scheduler would assume.")
    probes = parser.add_subparsers(dest="probe", required=True)
    kappa = probes.add_parser("kappa", help="branch a checkpoint at several batches: the critical batch over φ")
    add_training(kappa)
    asked = kappa.add_argument_group("probe")
    asked.add_argument("--checkpoint", required=True, help="a checkpoint's directory; it is only read")
    asked.add_argument("--tokens", type=float, default=2e9, help="of each branch; rounded down to whole steps")
    asked.add_argument("--limit", type=int, default=16, help="largest multiple of the global batch")
    asked.add_argument("--tolerance", type=float, default=TOLERANCE, help="in nats over the baseline's loss")
    asked.add_argument(
        "--judge-by",
        choices=["smoothed", "held-out"],
        default="smoothed",
        help="training loss, or loss of other samples",
    )
    asked.add_argument("--lr-scaling", choices=["none", "sqrt", "linear"], default="sqrt")
    asked.add_argument("--no-fork", action="store_true", help="this process is one rank, as under torchrun")
    throughput = probes.add_parser("throughput", help="time a few steps of some configurations")
    add_training(throughput)
    asked = throughput.add_argument_group("probe")
    asked.add_argument(
        "--try",
        dest="tried",
        action="append",
        metavar="WORD=VALUE,...",
        help="a configuration, as what differs from the options above: tp, pp, cp, ep, vpp, schedule, sharding, "
        "recompute, offload, sequence_parallel, micro_batch, global_batch; may be repeated",
    )
    asked.add_argument("--untimed", type=int, default=3, help="steps before the timed ones")
    asked.add_argument("--timed", type=int, default=10)
    asked.add_argument("--csv", help="file of rows for `headway estimate --compare`")
    asked.add_argument("--gpu-type", help="the catalog's name of the GPUs; default: what the driver calls them")
    asked.add_argument("--name", help="what the rows call the model")
    hardware = probes.add_parser("hardware", help="what this node's GPUs can do, as a hardware catalog's entry")
    hardware.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    hardware.add_argument("--ranks", type=int, help="GPUs of this node; default: all, or one processor")
    hardware.add_argument("--seconds", type=float, default=0.5, help="of each measurement")
    hardware.add_argument("--gpu-type", help="what agents call the GPUs; default: what the driver calls them")
    hardware.add_argument("--peak", type=float, help="the data sheet's dense half-precision TFLOP/s, for utilisation")
    hardware.add_argument("--network", type=float, help="GB/s per GPU and direction, where one node is probed alone")
    hardware.add_argument("--out", metavar="FILE", help="write the entry there too, for `headway agent --hardware`")
    for probe in (kappa, throughput, hardware):
        probe.add_argument("--json", metavar="FILE", help="write the result there too")
    parsed = parser.parse_args(arguments)
    if parsed.probe == "hardware":
        if parsed.ranks is not None and parsed.ranks < 1:
            parser.error("--ranks must be at least 1")
        return parsed
    parsed = complete(parser, parsed)
    if parsed.probe == "kappa" and parsed.limit < 2:
        parser.error("--limit must be at least 2: the baseline alone says nothing")
    if parsed.probe == "throughput" and (parsed.untimed < 0 or parsed.timed < 1):
        parser.error("--untimed must be at least 0 and --timed at least 1")
    return parsed


def main(arguments: list[str] | None = None) -> int:
    """Exit codes: 0 measured, 2 cannot run as asked, 143 stopped by SIGTERM, else a crash."""
    chosen = options(arguments)
    one_thread_per_library()
    if chosen.probe == "hardware":
        from headway.probe import hardware

        return hardware.run(chosen)
    if chosen.probe == "throughput":
        from headway.probe import throughput

        return throughput.run(chosen)
    from headway import training
    from headway.batches import read_corpus
    from headway.probe import branches

    training.preload(chosen)
    corpus = read_corpus(chosen)

    def rank(termination: Termination) -> int:
        return branches.run(chosen, corpus, termination)

    return run_ranks(rank, fork=not chosen.no_fork)


if __name__ == "__main__":
    sys.exit(main())
