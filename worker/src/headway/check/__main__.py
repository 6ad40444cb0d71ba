"""Runs a training script for a few steps as Headway would, twice, and says what works.

    python -m headway.check train.py --micro-batch={micro_batch} --resume={resume_path}
    python -m headway.check --line 'step (?P<step>\\d+).*loss (?P<loss>\\S+)' untouched.py --steps 100000
    python -m headway.check --per node -m headway.trainer
    python -m headway.check -- ./train.sh

The script's arguments may have the placeholders of `run.command` (docs/worker-protocol.md). The first launch is given
another batch (where it says live), told to save and told to stop; the second resumes from that checkpoint on other
ranks, and gets SIGTERM alone. It exits 0 where all that is claimed works, 1 where something does not, 2 where it cannot
be tried.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from headway.check.findings import Claims, Verdict, judge
from headway.check.launch import Command, Order, UnknownPlaceholder, default_ranks
from headway.check.page import as_json, as_text
from headway.check.trial import Seen, Trial
from headway.message import Configuration, Execution, Layout, Shares
from headway.watch import pattern_of

DOES_NOT_WORK, CANNOT_TRY = 1, 2


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    command, name = _command(parser, options)
    with tempfile.TemporaryDirectory(prefix="headway-check.") as folder:
        try:
            trials = try_out(options, command, Path(folder))
        except (UnknownPlaceholder, OSError) as error:
            print(f"headway.check: {error}", file=sys.stderr)
            return CANNOT_TRY
    claims = Claims(options.batch, options.layout, options.line is not None, options.resumes)
    found = judge(trials, claims)
    if options.verbose:
        sys.stderr.write("".join(seen.output for seen in trials))
    if options.o == "json":
        print(json.dumps(as_json(name, trials, found), indent=1))
    else:
        print(as_text(name, trials, found), end="")
    return DOES_NOT_WORK if any(each.verdict is Verdict.FAILS for each in found) else 0


def try_out(options: argparse.Namespace, command: Command, folder: Path) -> list[Seen]:
    """One launch or two."""
    ranks = options.ranks or default_ranks()
    if options.shares is not None:
        ranks = [ranks[0], len(options.shares)]
    configuration = Configuration(Layout(ranks[0]), options.micro_batch, options.global_batch)
    order = Order(command, configuration, 1, folder / "agent.sock", folder, options.grace)
    first = _first(options, order)
    if not first.steps or first.end is None:
        return [first]
    offers = [offer for offer in (first.end.offer, first.offer) if offer is not None and offer.error is None]
    fixed = (options.layout or first.claims("layout")) == "never"
    layout = configuration.layout if fixed else Layout(ranks[-1])
    again = replace(
        order,
        generation=2,
        configuration=replace(configuration, layout=layout) if options.shares is None else _uneven(options),
        resume=offers[0].resume() if offers else None,
    )
    return [first, _second(options, again)]


def _uneven(options: argparse.Namespace) -> Configuration:
    """The batch is the next that divides."""
    execution = Execution(shares=Shares.of(options.shares))
    per_cycle = options.micro_batch * sum(options.shares)
    global_batch = -(-options.global_batch // per_cycle) * per_cycle
    return Configuration(Layout(len(options.shares)), options.micro_batch, global_batch, execution)


def _first(options: argparse.Namespace, order: Order) -> Seen:
    with closing(Trial(order, options.patience)) as trial:
        seen = trial.seen
        training = trial.train(want_noise=options.line is None)
        if training and (options.batch or seen.claims("batch")) == "live":
            trial.batch(order.grace_s)
        if training and seen.ended_itself is None and options.line is None:
            trial.save(order.grace_s)
        if training and seen.ended_itself is None:
            trial.stop(by_order=True)
    return seen


def _second(options: argparse.Namespace, order: Order) -> Seen:
    with closing(Trial(order, options.patience)) as trial:
        seen = trial.seen
        training = trial.train(want_noise=False)
        if (
            training
            and order.ranks > 1
            and options.shares is None
            and (options.layout or seen.claims("layout")) == "live"
        ):
            trial.layout(order.grace_s)
        if training and seen.ended_itself is None:
            trial.stop(by_order=False)
    return seen


def _command(parser: argparse.ArgumentParser, options: argparse.Namespace) -> tuple[Command, str]:
    """How it is started, and what it is called."""
    watch: tuple[str, ...] = ()
    if options.line is not None:
        watch = (sys.executable, "-m", "headway.watch", "--line", options.line)
        watch += ("--resumes", "--") if options.resumes else ("--",)
    per_node = options.per == "node"
    if options.module:
        return Command((sys.executable, "-m", *options.module), per_node, watch), options.module[0]
    whole, words = options.script[:1] == ["--"], options.script
    words = words[whole:]
    if not words:
        parser.error("no script to try")
    if whole:
        return Command(tuple(words), True, watch), words[0]
    if not Path(words[0]).is_file():
        parser.error(f"there is no script {words[0]}")
    return Command((sys.executable, *words), per_node, watch), words[0]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headway.check",
        allow_abbrev=False,
        description="Run a training script for a few steps as Headway would, and say what works.",
        epilog="Exit code: 0 all that is claimed works, 1 something does not, 2 it cannot be tried.",
    )
    parser.add_argument(
        "--ranks", type=_ranks, help="of the first launch and the second (default 1,2; 1 beside one GPU)"
    )
    parser.add_argument(
        "--shares",
        type=_weights,
        help="of the second launch's replicas, such as 1,2, a rank each: where the job says layouts.uneven_shares",
    )
    parser.add_argument("--per", choices=["gpu", "node"], default="gpu", help="processes, as run.per (default gpu)")
    parser.add_argument("--micro-batch", type=int, default=4, help="sequences; what {micro_batch} is (default 4)")
    parser.add_argument("--global-batch", type=int, default=16, help="sequences a step (default 16)")
    parser.add_argument("--grace", type=float, default=30.0, help="seconds, as checkpoint.grace (default 30)")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for a first step (default 60)")
    for what in ("batch", "layout"):
        choices = ["live", "restart", "never"]
        parser.add_argument(f"--{what}", choices=choices, help=f"as reconfigure.{what}; default: what the script says")
    parser.add_argument("--line", type=_line, help="read steps from the output, as headway.watch --line")
    parser.add_argument("--resumes", action="store_true", help="with --line: it goes on from its own checkpoint")
    parser.add_argument("-o", choices=["text", "json"], default="text", help="output (default text)")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="pass on what the script printed, on standard error"
    )
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="a module instead, and its arguments")
    parser.add_argument("script", nargs=argparse.REMAINDER, help="a script or -- and a command, and its arguments")
    return parser


def _ranks(text: str) -> list[int]:
    try:
        ranks = [int(part) for part in text.split(",")]
    except ValueError:
        ranks = []
    if not 1 <= len(ranks) <= 2 or min(ranks, default=0) < 1:
        raise argparse.ArgumentTypeError("one number of ranks or two, such as 1,2")
    return ranks


def _weights(text: str) -> list[int]:
    weights = [int(part) for part in text.split(",")]
    Shares.of(weights)
    return weights


def _line(text: str) -> str:
    return pattern_of(text).pattern


if __name__ == "__main__":
    sys.exit(main())
