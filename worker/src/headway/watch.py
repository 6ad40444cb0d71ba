"""Runs a training script that knows nothing of Headway, and reports what it prints.

    python -m headway.watch --line 'step (?P<step>\\d+).* loss (?P<loss>[\\d.]+)' -- torchrun train.py --batch 8

Every line of the script's output is passed on, and searched. Named groups say what is in it: `step` (which must be
there), `loss`, `seconds` or `milliseconds` (per step), `tokens` and `samples` (per step), `consumed` (samples since the
beginning). What no group says is worked out: time from the clock, samples from `--samples-per-step` or the job's global
batch, tokens from `--tokens-per-step` or the samples and `--sequence-length`. Such a job measures no noise and takes no
live change. A stop reaches the script as SIGTERM. With `--resumes` the script finds its own last checkpoint when it is
started again, and numbers its steps on; only then may the scheduler change its layout.

It needs no PyTorch, and it never ends the script because of what it printed.
"""

from __future__ import annotations

import argparse
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

import headway
from headway.environment import Environment
from headway.message import Configuration, Layout

CANNOT_RUN, NOT_FOUND, KILLED = 2, 127, 128
TICK_S = 0.5
GROUPS = {"step", "loss", "seconds", "milliseconds", "tokens", "samples", "consumed"}


@dataclass(frozen=True)
class Sizes:
    """What a step amounts to, where the script does not print it."""

    samples: int
    tokens: int | None
    sequence_length: int
    # Steps are numbered over all starts of the script, so that the number tells the samples.
    resumes: bool = False


class Reader:
    """Turns lines into reports. Steps may be skipped between lines, and repeat after a restart of the script."""

    def __init__(self, pattern: re.Pattern[str], sizes: Sizes, samples_seen: int, started: float) -> None:
        self._pattern, self._sizes = pattern, sizes
        self._samples_seen = samples_seen
        self._step: int | None = None
        self._at = started
        self.samples = sizes.samples

    def read(self, line: str, now: float) -> dict[str, float | int] | None:
        """What `headway.report` is to be told of this line; None if it tells of no new step."""
        found = self._pattern.search(line)
        if found is None:
            return None
        groups = found.groupdict()
        step = _number(groups, "step")
        if step is None or (self._step is not None and int(step) <= self._step):
            return None
        # How long the steps before the first line took is not known, only how long the start took as well.
        steps = 1 if self._step is None else int(step) - self._step
        first, self._step = self._step is None, int(step)
        samples = int(_number(groups, "samples") or self._sizes.samples)
        self.samples = samples
        tokens = _number(groups, "tokens") or self._sizes.tokens or samples * self._sizes.sequence_length
        seconds = _number(groups, "seconds")
        if (milliseconds := _number(groups, "milliseconds")) is not None:
            seconds = milliseconds / 1000.0
        duration = steps * seconds if seconds is not None else now - self._at
        consumed = int(step) * samples if self._sizes.resumes else self._samples_seen + steps * samples
        self._samples_seen = int(_number(groups, "consumed") or consumed)
        self._at = now
        if first and seconds is None:
            return None
        told: dict[str, float | int] = {
            "step": int(step),
            "steps": steps,
            "samples_seen": self._samples_seen,
            "tokens": int(steps * tokens),
            "duration_s": duration,
        }
        loss = _number(groups, "loss")
        return told if loss is None else {**told, "loss": loss}


def main(arguments: list[str] | None = None) -> int:
    """The script's exit code; 0 where it ended because the scheduler ordered a stop, 143 where only a signal did."""
    options = _options(arguments)
    environment = headway.init(batch="never", layout="restart" if options.resumes else "never")
    if environment is not None and not _is_here(options.on):
        os.execvp(options.command[0], options.command)
    sizes = _sizes(options, environment)
    seen = environment.samples_seen if environment else 0
    try:
        child = subprocess.Popen(options.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0)
    except OSError as error:
        print(f"cannot run {options.command[0]}: {error}", file=sys.stderr)
        return NOT_FOUND
    if environment is None:
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    stop = _follow(child, Reader(options.line, sizes, seen, time.monotonic()))
    code = child.wait()
    headway.close()
    if stop is not None:
        return stop.exit_code
    return code if code >= 0 else KILLED - code


def _follow(child: subprocess.Popen[bytes], reader: Reader) -> headway.Stop | None:
    """Until the script closes its output; returns the stop that ended it, if one did."""
    assert child.stdout is not None, "opened as a pipe"
    os.set_blocking(child.stdout.fileno(), False)
    stop: headway.Stop | None = None
    rest = b""
    while True:
        while (directive := headway.poll()) is not None:
            if isinstance(directive, headway.Stop):
                # An order counts more than the signal that may follow it.
                stop = directive if stop is None or stop.signalled else stop
                child.terminate()
        data = _available(child)
        if data == b"":
            return stop
        if data is None:
            continue
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        *lines, rest = (rest + data).replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            told = reader.read(line.decode(errors="replace"), time.monotonic())
            if told is not None:
                headway.report(configuration=_configuration(reader.samples), **told)  # type: ignore[arg-type]


def _available(child: subprocess.Popen[bytes]) -> bytes | None:
    """Output as it comes; empty at its end, None if there was none for a while, so that orders are heard meanwhile."""
    assert child.stdout is not None, "opened as a pipe"
    ready, _, _ = select.select([child.stdout], [], [], TICK_S)
    return child.stdout.read(65536) if ready else None


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="headway.watch", description="Run a script and report what it prints.")
    parser.add_argument("--line", required=True, type=pattern_of, help="regular expression with a group named step")
    parser.add_argument("--samples-per-step", type=int, help="sequences; default: the job's global batch")
    parser.add_argument("--tokens-per-step", type=int)
    parser.add_argument("--sequence-length", type=int, default=1)
    parser.add_argument("--resumes", action="store_true", help="started again, it goes on from its own checkpoint")
    parser.add_argument("--on", choices=["first", "last"], default="first", help="the node whose output has the steps")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- and the script's own command")
    options = parser.parse_args(arguments)
    options.command = [part for index, part in enumerate(options.command) if index or part != "--"]
    if not options.command:
        parser.error("no command to run")
    return options


def pattern_of(text: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"no regular expression: {error}") from error
    if "step" not in pattern.groupindex or set(pattern.groupindex) - GROUPS:
        raise argparse.ArgumentTypeError(f"one group must be named step, and the others among {sorted(GROUPS)}")
    return pattern


def _is_here(where: str) -> bool:
    """Whether this node's output is the one to read. One process per node runs this."""
    node, nodes = int(os.environ.get("NODE_RANK", "0")), int(os.environ.get("NNODES", "1"))
    return node == (0 if where == "first" else nodes - 1)


def _configuration(samples: int) -> Configuration | None:
    """A job without a model is launched without one, but a step's report needs it: all ranks share the samples."""
    environment = headway.joined()
    if environment is None or environment.configuration is not None:
        return None
    world = int(os.environ.get("NNODES", "1")) * int(os.environ.get("GPUS_PER_NODE", "1"))
    ranks = world if samples % world == 0 else 1
    return Configuration(Layout(ranks), samples // ranks, samples)


def _sizes(options: argparse.Namespace, environment: Environment | None) -> Sizes:
    configuration = environment.configuration if environment else None
    samples = options.samples_per_step or (configuration.global_batch if configuration else 1)
    return Sizes(samples, options.tokens_per_step, options.sequence_length, options.resumes)


def _number(groups: Mapping[str, str | None], name: str) -> float | None:
    """A group as a number, with or without separators; None if it is none."""
    text = groups.get(name)
    try:
        return None if text is None else float(text.replace(",", ""))
    except ValueError:
        return None


if __name__ == "__main__":
    sys.exit(main())
