"""A training script that has never heard of Headway. It learns to continue Python source, byte by byte, and prints."""

import argparse
import sysconfig
import time
from pathlib import Path

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--length", type=int, default=64)
parser.add_argument("--steps", type=int, default=400)
options = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:40]
text = torch.frombuffer(bytearray(b"".join(path.read_bytes() for path in sources)), dtype=torch.uint8)
model = nn.Sequential(nn.Embedding(256, 64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(1, options.steps + 1):
    began = time.perf_counter()
    starts = torch.randint(len(text) - options.length - 1, (options.batch,))
    rows = torch.stack([text[start : start + options.length + 1] for start in starts]).long()
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        seconds = time.perf_counter() - began
        print(f"step {step}/{options.steps} | loss {loss.item():.4f} | {seconds:.4f} s/it", flush=True)
