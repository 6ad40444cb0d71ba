"""A script for `accelerate launch` that has never heard of Headway. It keeps its own checkpoints: one every
--save-every steps and one at SIGTERM, and goes on from the last whole one, on as many ranks as it is given."""

import argparse
import json
import os
import shutil
import signal
import sysconfig
from pathlib import Path

import torch
from accelerate import Accelerator
from transformers import LlamaConfig, LlamaForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--per-device-batch", type=int, default=2)
parser.add_argument("--accumulation", type=int, default=1)
parser.add_argument("--length", type=int, default=64)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--save-every", type=int, default=100)
parser.add_argument("--resume-from", type=Path, required=True, help="where its checkpoints lie")
options = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
accelerator = Accelerator(gradient_accumulation_steps=options.accumulation)
sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:40]
text = torch.frombuffer(bytearray(b"".join(path.read_bytes() for path in sources)), dtype=torch.uint8)
shape = LlamaConfig(
    vocab_size=256,
    hidden_size=64,
    intermediate_size=176,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=options.length,
)
model = LlamaForCausalLM(shape)
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=3e-3))

stopping = False


def stop(*_: object) -> None:
    global stopping
    stopping = True


def any_stops() -> bool:
    """A signal comes to each rank at its own time; all leave after the same step."""
    return bool(accelerator.reduce(torch.tensor(float(stopping), device=accelerator.device)).item())


def batch(first: int) -> torch.Tensor:
    """The samples are numbered, so that any number of ranks sees each once."""
    starts = [(first + i) * 7919 % (len(text) - options.length - 1) for i in range(options.per_device_batch)]
    return torch.stack([text[start : start + options.length] for start in starts]).long().to(accelerator.device)


def save(step: int) -> None:
    """Under a temporary name first: whoever is killed meanwhile leaves the last checkpoint whole."""
    unfinished = options.resume_from / "unfinished"
    accelerator.save_state(str(unfinished))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        (unfinished / "step.json").write_text(json.dumps(step))
        os.replace(unfinished, options.resume_from / f"step-{step:09}")
        for old in sorted(options.resume_from.glob("step-*"))[:-2]:
            shutil.rmtree(old)
    accelerator.wait_for_everyone()


signal.signal(signal.SIGTERM, stop)
if accelerator.is_main_process:
    shutil.rmtree(options.resume_from / "unfinished", ignore_errors=True)
    options.resume_from.mkdir(parents=True, exist_ok=True)
accelerator.wait_for_everyone()
first_step = 0
if saved := sorted(options.resume_from.glob("step-*")):
    accelerator.load_state(str(saved[-1]))
    first_step = json.loads((saved[-1] / "step.json").read_text())
    accelerator.print(f"resumed from step {first_step}", flush=True)

per_step = options.per_device_batch * options.accumulation * accelerator.num_processes
for step in range(first_step + 1, options.steps + 1):
    for index in range(options.accumulation):
        place = accelerator.process_index * options.accumulation + index
        rows = batch((step - 1) * per_step + place * options.per_device_batch)
        with accelerator.accumulate(model):
            loss = model(input_ids=rows, labels=rows).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0) if accelerator.sync_gradients else None
            optimizer.step()
            optimizer.zero_grad()
    if step % 10 == 0:
        mean = accelerator.reduce(loss.detach(), reduction="mean").item()
        accelerator.print(f"step {step} loss {mean:.4f} on {accelerator.num_processes} ranks", flush=True)
    stopped = any_stops()
    if stopped or step % options.save_every == 0 or step == options.steps:
        save(step)
    if stopped:
        accelerator.print(f"stopped at step {step}", flush=True)
        break
accelerator.end_training()
