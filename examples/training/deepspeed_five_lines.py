"""A DeepSpeed script (ZeRO stage 1) with five lines for Headway, marked. Run it with torchrun."""

import argparse
import sys
import sysconfig
from functools import partial
from pathlib import Path

import deepspeed
import torch
import torch.distributed
from torch import nn

import headway.torch  # 1

parser = argparse.ArgumentParser()
parser.add_argument("--micro-batch", type=int, default=8)
parser.add_argument("--global-batch", type=int, default=32)
parser.add_argument("--stage", type=int, default=1)
parser.add_argument("--length", type=int, default=64)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--resume", default="")
options = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
deepspeed.init_distributed()
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
accumulation = options.global_batch // options.micro_batch // world

sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:40]
text = torch.frombuffer(bytearray(b"".join(path.read_bytes() for path in sources)), dtype=torch.uint8)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Embedding(256, 64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.layers(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def batch(first: int) -> torch.Tensor:
    """The samples are numbered, so that any number of ranks sees each once."""
    starts = [(first + i) * 7919 % (len(text) - options.length - 1) for i in range(options.micro_batch)]
    return torch.stack([text[start : start + options.length + 1] for start in starts]).long()


engine, _, _, _ = deepspeed.initialize(
    model=(model := Model()),
    model_parameters=model.parameters(),
    config={
        "train_micro_batch_size_per_gpu": options.micro_batch,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "torch_adam": True}},
        "zero_optimization": {"stage": options.stage},
    },
)
first_step = 0
if options.resume:
    _, client = engine.load_checkpoint(options.resume, tag="deepspeed")
    first_step = client["step"]

module = engine.module
reporter = headway.torch.StepReporter(module, micro_batch=options.micro_batch, sequence_length=options.length)  # 2
for step in range(first_step, options.steps):
    for index in range(accumulation):
        rows = batch(step * options.global_batch + (rank * accumulation + index) * options.micro_batch)
        loss = engine(rows.to(engine.device))
        engine.backward(loss)
        engine.step()
    # DeepSpeed divides by the accumulation, reduces, clips and steps by itself; it tells the norm before clipping.
    asked = reporter.end_step(loss, accumulation, gradient_norm=engine.get_global_grad_norm())  # 3
    if rank == 0 and (step + 1) % 50 == 0:
        print(f"step {step + 1} loss {loss.item():.4f} on {world} ranks", flush=True)
    if asked.save:
        progress = {"step": step + 1}
        reporter.save_together(partial(engine.save_checkpoint, tag="deepspeed", client_state=progress))  # 4
    if asked.stop:
        sys.exit(reporter.stopped())  # 5
