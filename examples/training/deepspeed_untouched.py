"""A DeepSpeed script that has never heard of Headway. It keeps its own checkpoints: one every --save-every steps and
one at SIGTERM, and goes on from the last whole one. Its batch and its ZeRO stage are those of the configuration."""

import argparse
import signal
import sys
import sysconfig
from pathlib import Path

import deepspeed
import torch
import torch.distributed
from torch import nn

parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
parser.add_argument("--length", type=int, default=64)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--save-every", type=int, default=100)
parser.add_argument("--checkpoints", required=True, help="where its checkpoints lie")
options = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
deepspeed.init_distributed()
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:40]
text = torch.frombuffer(bytearray(b"".join(path.read_bytes() for path in sources)), dtype=torch.uint8)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Embedding(256, 64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.layers(rows[:, :-1]).float().flatten(0, 1), rows[:, 1:].flatten())


stopping = False


def stop(*_: object) -> None:
    global stopping
    stopping = True


def any_stops() -> bool:
    """A signal comes to each rank at its own time; all leave after the same step."""
    flag = torch.tensor(float(stopping), device=engine.device)
    torch.distributed.all_reduce(flag)
    return bool(flag.item())


def batch(first: int, size: int) -> torch.Tensor:
    """The samples are numbered, so that each is seen once."""
    starts = [(first + i) * 7919 % (len(text) - options.length - 1) for i in range(size)]
    return torch.stack([text[start : start + options.length + 1] for start in starts]).long().to(engine.device)


engine, _, _, _ = deepspeed.initialize(args=options, model=(model := Model()), model_parameters=model.parameters())
size, accumulation = engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()
# Loads what `latest` names, which is written once a checkpoint is whole; None where there is none yet.
found, _ = engine.load_checkpoint(options.checkpoints)
if found and rank == 0:
    print(f"resumed from step {engine.global_steps}", flush=True)
signal.signal(signal.SIGTERM, stop)
while engine.global_steps < options.steps:
    step = engine.global_steps
    for index in range(accumulation):
        rows = batch(((step * world + rank) * accumulation + index) * size, size)
        loss = engine(rows)
        engine.backward(loss)
        engine.step()
    if rank == 0 and engine.global_steps % 10 == 0:
        print(f"step {engine.global_steps} loss {loss.item():.4f} on {world} ranks", flush=True)
    stopped = any_stops()
    if stopped or engine.global_steps % options.save_every == 0 or engine.global_steps == options.steps:
        engine.save_checkpoint(options.checkpoints, tag=f"step-{engine.global_steps:09}")
    if stopped:
        sys.exit(0)
