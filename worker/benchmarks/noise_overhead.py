"""What measuring the noise scale adds to a step: steps with and without it in turn, in one process, so that whatever
else the machine does falls on both. Prints the medians, their ratio, and the ratio at a cadence.

    python benchmarks/noise_overhead.py --device cuda --width 4096 --blocks 8 --tokens 4096 --dtype bfloat16
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from headway.torch import GradientAccumulator, NoiseMeter


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


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what measuring the noise scale costs.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=512, help="per micro-batch")
    parser.add_argument("--accumulation", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=15, help="steps with and steps without")
    parser.add_argument("--every", type=int, default=4, help="the cadence to state the overhead at")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dtype = getattr(torch, options.dtype)
    model = Stack(options.width, options.blocks).to(options.device, dtype)
    inputs = torch.randn(options.tokens, options.width, device=options.device, dtype=dtype)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{parameters} parameters, {options.accumulation} x {options.tokens} tokens a step, {options.device}")
    tell("meter", alternate(listened(model, inputs, options), options), options.every)
    tell("accumulator", alternate(accumulated(model, inputs, options), options), options.every)


def accumulated(model: Stack, inputs: Tensor, options: argparse.Namespace) -> Callable[[bool], None]:
    """A step of the accumulator, which measures every other one."""
    gradients = GradientAccumulator(model.parameters(), every=2)

    def step(measuring: bool) -> None:
        assert gradients.measuring == measuring
        for _ in range(options.accumulation):
            loss = model(inputs)
            loss.backward()
            gradients.end_micro_batch(loss)
        gradients.reduce(1)
        gradients.clear()

    return step


def listened(model: Stack, inputs: Tensor, options: argparse.Namespace) -> Callable[[bool], None]:
    """A step of a plain loop, with or without a meter."""

    def step(measuring: bool) -> None:
        meter = NoiseMeter(model, every=1) if measuring else None
        model.zero_grad()
        for _ in range(options.accumulation):
            (model(inputs) / options.accumulation).backward()
        if meter is not None:
            meter.measure(1, 1 / options.accumulation)
            meter.close()

    return step


def alternate(step: Callable[[bool], None], options: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Seconds of the steps with and without, after one of each that does not count."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for index in range(2 * (options.pairs + 1)):
        measuring = index % 2 == 0
        began = now(options.device)
        step(measuring)
        if index >= 2:
            seconds[measuring].append(now(options.device) - began)
    return seconds[True], seconds[False]


def now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def tell(name: str, seconds: tuple[list[float], list[float]], every: int) -> None:
    measured, plain = (statistics.median(each) for each in seconds)
    ratios = [one / other - 1.0 for one, other in zip(*seconds, strict=True)]
    median = statistics.median(ratios)
    spread = statistics.quantiles(ratios, n=4)
    print(
        f"{name}: {1e3 * measured:.1f} ms with, {1e3 * plain:.1f} ms without; {100 * median:+.2f} % (quartiles "
        f"{100 * spread[0]:+.2f} to {100 * spread[2]:+.2f} %); at every {every}th step {100 * median / every:+.2f} %"
    )


if __name__ == "__main__":
    main()
