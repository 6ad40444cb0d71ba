"""What measuring the noise scale adds to a step: steps of a plain loop, of one with a meter and of one with the
accumulator in turn, in one process, so that whatever else the machine does falls on all. Three models of the same
parameters; clipping, the optimizer and, with several ranks, DistributedDataParallel included. Prints medians over the
rounds: what is spent within the measuring itself, and what whole steps take beyond the plain ones, which scatters more.

    python benchmarks/noise_overhead.py --device cuda --width 4096 --blocks 8 --tokens 4096 --dtype bfloat16
    python benchmarks/noise_overhead.py --model decoder --ranks 2 --accumulation 1
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed
import torch.multiprocessing
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from headway.flops import ModelShape
from headway.model import Decoder, cross_entropy
from headway.torch import GradientAccumulator, NoiseMeter, Ranks
from headway.torch.agreement import SELDOM, Agreement
from headway.torch.squares import EVERY

Step = Callable[[], None]
CLIP = 1.0


class Clock:
    """CPU time spent within some methods."""

    def __init__(self, *methods: tuple[object, str]) -> None:
        self.seconds = 0.0
        for owner, name in methods:
            setattr(owner, name, self._timed(getattr(owner, name)))

    def _timed(self, method: Callable[..., object]) -> Callable[..., object]:
        def timed(*arguments: object, **keywords: object) -> object:
            began = time.thread_time()
            try:
                return method(*arguments, **keywords)
            finally:
                self.seconds += time.thread_time() - began

        return timed


class Stack(nn.Module):
    """The matrices of a decoder's feed-forward layers, which are most of its parameters and of its arithmetic."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.RMSNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(blocks)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return hidden.float().square().mean()


class Language(nn.Module):
    """A whole decoder: much of it is an embedding and a projection, whose gradients cost little to make."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.decoder = Decoder(ModelShape(blocks, width, width // 64, width // 64, 11 * width // 4, 8192, 256))

    def forward(self, tokens: Tensor) -> Tensor:
        return cross_entropy(self.decoder(tokens[:, :-1]), tokens[:, 1:])


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what measuring the noise scale costs.")
    parser.add_argument("--model", choices=["stack", "decoder"], default="stack")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=512, help="per micro-batch")
    parser.add_argument("--accumulation", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=1, help="processes of one replica each, over gloo")
    parser.add_argument("--rounds", type=int, default=12, help=f"{EVERY} steps of each kind in each")
    options = parser.parse_args()
    if options.ranks == 1:
        return measure(0, options)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "GLOO_SOCKET_IFNAME": "lo"}
    torch.multiprocessing.spawn(measure, (options,), options.ranks)


def measure(rank: int, options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    if options.ranks > 1:
        torch.distributed.init_process_group("gloo", rank=rank, world_size=options.ranks)
    torch.manual_seed(rank)
    if options.model == "stack":
        shape = (options.tokens, options.width)
        inputs = torch.randn(shape, device=options.device, dtype=getattr(torch, options.dtype))
    else:
        inputs = torch.randint(8192, (options.tokens // 256, 257), device=options.device)
    plain, listened, owned = (model(options) for _ in range(3))
    meter, gradients = NoiseMeter(wrapped := distributed(listened, options)), GradientAccumulator([owned])
    steps = {
        "plain": step(distributed(plain, options), inputs, options, None),
        "meter": step(wrapped, inputs, options, meter),
        "accumulator": accumulated(owned, inputs, options, gradients),
    }
    clocks = {
        "meter": Clock((meter, "_hear"), (meter, "measure")),
        "accumulator": Clock((gradients._squares, "add"), (gradients._agreement, "look"), (gradients._inputs, "take")),
    }
    seconds, within = in_turn(steps, clocks, options)
    if rank == 0:
        parameters = sum(parameter.numel() for parameter in plain.parameters())
        each = 1e3 * statistics.median(seconds["plain"])
        print(
            f"{options.model}, {parameters / 1e6:.1f} M parameters, {options.ranks} x {options.accumulation} x"
            f" {options.tokens} tokens a step, {options.device}: {each:.1f} ms"
        )
        for kind in ("meter", "accumulator"):
            tell(kind, seconds[kind], seconds["plain"], within[kind])
    look = agreement(plain, options)
    if rank == 0 and options.ranks > 1:
        share = look / each / SELDOM / EVERY
        print(f"  a look whether copies agree: {look:.1f} ms at each {SELDOM * EVERY}th step, so {share:.3%}")


def model(options: argparse.Namespace) -> nn.Module:
    torch.manual_seed(0)
    made = (Stack if options.model == "stack" else Language)(options.width, options.blocks)
    return made.to(options.device, getattr(torch, options.dtype))


def distributed(module: nn.Module, options: argparse.Namespace) -> nn.Module:
    return DistributedDataParallel(module) if options.ranks > 1 else module


def step(module: nn.Module, inputs: Tensor, options: argparse.Namespace, meter: NoiseMeter | None) -> Step:
    """Of a plain loop, with or without a meter."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)

    def run() -> None:
        for index in range(options.accumulation):
            last = index + 1 == options.accumulation
            alone = isinstance(module, DistributedDataParallel) and not last
            with module.no_sync() if alone else contextlib.nullcontext():
                (module(inputs) / options.accumulation).backward()
        if meter is not None:
            meter.measure(1, 1 / options.accumulation)
        nn.utils.clip_grad_norm_(module.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()

    return run


def accumulated(module: nn.Module, inputs: Tensor, options: argparse.Namespace, gradients: GradientAccumulator) -> Step:
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)

    def run() -> None:
        for _ in range(options.accumulation):
            loss = module(inputs)
            loss.backward()
            gradients.end_micro_batch(loss)
        gradients.clip(gradients.reduce(1), CLIP)
        optimizer.step()
        gradients.clear()

    return run


def in_turn(
    steps: dict[str, Step], clocks: dict[str, Clock], options: argparse.Namespace
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of each kind's steps, and of them by its clock, without those of the first cadence."""
    seconds: dict[str, list[float]] = {kind: [] for kind in steps}
    within: dict[str, list[float]] = {kind: [] for kind in clocks}
    for index in range(EVERY * (options.rounds + 1)):
        for kind, run in steps.items():
            began = now(options.device)
            run()
            if index >= EVERY:
                seconds[kind].append(now(options.device) - began)
        for kind, clock in clocks.items():
            if index >= EVERY:
                within[kind].append(clock.seconds)
            clock.seconds = 0.0
    return seconds, within


def agreement(module: nn.Module, options: argparse.Namespace) -> float:
    """Milliseconds of one look."""
    found = []
    for _ in range(5):
        agreement = Agreement(dict(module.named_parameters()), Ranks(), torch.device(options.device))
        began = now(options.device)
        agreement.look(lambda parameter: parameter.detach())
        found.append(now(options.device) - began)
    return 1e3 * statistics.median(found)


def now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def tell(kind: str, seconds: list[float], plain: list[float], within: list[float]) -> None:
    step = statistics.median(plain)
    measured, others = at_cadence([each / step for each in within])
    mean = (measured + (EVERY - 1) * others) / EVERY
    ratios = [one / other - 1.0 for one, other in zip(seconds, plain, strict=True)]
    whole = statistics.quantiles([statistics.mean(ratios[i : i + EVERY]) for i in range(0, len(ratios), EVERY)], n=4)
    print(
        f"  {kind}: {measured:.2%} of a step that is measured, {others:.3%} of others, so {mean:.2%} at each {EVERY}th;"
        f" whole steps {whole[1]:+.2%} (quartiles {whole[0]:+.2%} to {whole[2]:+.2%})"
    )


def at_cadence(each: list[float]) -> tuple[float, float]:
    """Medians of the steps that are measured, and of the others."""
    others = [value for index, value in enumerate(each) if index % EVERY]
    return statistics.median(each[::EVERY]), statistics.median(others)


if __name__ == "__main__":
    main()
