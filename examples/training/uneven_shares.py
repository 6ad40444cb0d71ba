"""A torchrun script whose replicas on faster nodes do more micro-batches of a step than those on slower nodes. For jobs
with `resources: {gpus: {mix: true}}` and `layouts: {uneven_shares: true}`; where all nodes are alike it does as others.
It follows batch and micro-batch while it runs, and saves and resumes in Headway's checkpoints."""

import argparse
import contextlib
import sys
import sysconfig
from pathlib import Path

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import headway
import headway.torch

parser = argparse.ArgumentParser()
parser.add_argument("--length", type=int, default=64)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--lr", type=float, default=3e-3)
options = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:40]
text = torch.frombuffer(bytearray(b"".join(path.read_bytes() for path in sources)), dtype=torch.uint8)
data = TensorDataset(text.unfold(0, options.length + 1, options.length))
model = DistributedDataParallel(
    nn.Sequential(nn.Embedding(256, 64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256))
)
optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)

job = headway.init(batch="live", layout="restart")  # None outside Headway
alone = headway.Configuration(headway.Layout(dp=world), micro_batch=8, global_batch=16 * world)
chosen = (job and job.configuration) or alone
if job and job.resume_path:
    saved = torch.load(f"{job.resume_path}/state.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])


def write(directory: Path) -> None:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, directory / "state.pt")


samples = headway.torch.SampleBatches(len(data), chosen.micro_batch, chosen.micro_batches(rank))
rate = headway.torch.ScaledLearningRate(optimizer)
reporter = headway.torch.StepReporter(model, micro_batch=chosen.micro_batch, sequence_length=options.length)
batches = iter(DataLoader(data, batch_sampler=samples))
while reporter.step < options.steps:
    optimizer.zero_grad()
    count = chosen.micro_batches(rank)  # this replica's, not everybody's
    mean_loss = 0.0
    for index in range(count):
        rows = next(batches)[0].long()
        # Gradients are averaged with the last micro-batch alone: another replica may have no more than that.
        with contextlib.nullcontext() if index + 1 == count else model.no_sync():
            loss = nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
            (loss * chosen.gradient_scale()).backward()  # so that every sequence of the step weighs alike
        mean_loss += loss.item() / count
    asked = reporter.end_step(mean_loss, count)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if asked.configure:  # from the next step on, within the same shares
        chosen = asked.configure.configuration
        samples.configure(chosen)
        rate.aim(asked.configure.lr_scale)
    if asked.save and rank == 0:
        reporter.save(write)
    if asked.stop:
        sys.exit(reporter.stopped())
reporter.finished()
torch.distributed.destroy_process_group()
