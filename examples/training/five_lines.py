"""A torchrun script as its author wrote it, with five lines for Headway, marked. They report each step with its
gradient noise, follow the scheduler's orders on all ranks at once, and save and resume in its checkpoints."""

import argparse
import sys
import sysconfig
from pathlib import Path

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import headway.torch  # 1

parser = argparse.ArgumentParser()
parser.add_argument("--micro-batch", type=int, default=8)
parser.add_argument("--global-batch", type=int, default=32)
parser.add_argument("--length", type=int, default=64)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--resume", default="")
options = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
accumulation = options.global_batch // options.micro_batch // world

sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:40]
text = torch.frombuffer(bytearray(b"".join(path.read_bytes() for path in sources)), dtype=torch.uint8)


def batch(first: int) -> torch.Tensor:
    """The samples are numbered, so that any number of ranks sees each once."""
    starts = [(first + i) * 7919 % (len(text) - options.length - 1) for i in range(options.micro_batch)]
    return torch.stack([text[start : start + options.length + 1] for start in starts]).long()


model = DistributedDataParallel(
    nn.Sequential(nn.Embedding(256, 64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256))
)
optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
first_step = 0
if options.resume:
    saved = torch.load(f"{options.resume}/state.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first_step = saved["step"]


def write(directory: Path) -> None:
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
    torch.save(state, directory / "state.pt")


reporter = headway.torch.StepReporter(model, micro_batch=options.micro_batch, sequence_length=options.length)  # 2
for step in range(first_step, options.steps):
    optimizer.zero_grad()
    for index in range(accumulation):
        rows = batch(step * options.global_batch + (rank * accumulation + index) * options.micro_batch)
        loss = nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        (loss / accumulation).backward()
    asked = reporter.end_step(loss, accumulation)  # 3
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if rank == 0 and (step + 1) % 50 == 0:
        print(f"step {step + 1} loss {loss.item():.4f} on {world} ranks", flush=True)
    if asked.save and rank == 0:
        reporter.save(write)  # 4
    if asked.stop:
        sys.exit(reporter.stopped())  # 5
torch.distributed.destroy_process_group()
