"""A Hugging Face Trainer with two lines for Headway, marked. A small Llama over bytes, from its configuration."""

import argparse
import sysconfig
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from headway.integrations import huggingface  # 1

parser = argparse.ArgumentParser()
parser.add_argument("--micro-batch", type=int, default=4)
parser.add_argument("--global-batch", type=int, default=16)
parser.add_argument("--world", type=int, default=1)
parser.add_argument("--length", type=int, default=64)
parser.add_argument("--steps", type=int, default=300)
options = parser.parse_args()


class Text(Dataset[dict[str, torch.Tensor]]):
    """Stretches of Python's own sources."""

    def __init__(self, length: int) -> None:
        self._length = length
        sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:40]
        self._text = b"".join(path.read_bytes() for path in sources)

    def __len__(self) -> int:
        return len(self._text) // self._length

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        rows = self._text[index * self._length : (index + 1) * self._length]
        tokens = torch.frombuffer(bytearray(rows), dtype=torch.uint8).long()
        return {"input_ids": tokens, "labels": tokens}


torch.set_num_threads(1)
shape = LlamaConfig(
    vocab_size=256,
    hidden_size=64,
    intermediate_size=176,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=options.length,
)
trainer = Trainer(
    LlamaForCausalLM(shape),
    TrainingArguments(
        output_dir="out",
        max_steps=options.steps,
        per_device_train_batch_size=options.micro_batch,
        gradient_accumulation_steps=options.global_batch // options.micro_batch // options.world,
        learning_rate=3e-3,
        save_strategy="no",
        logging_steps=50,
        report_to=[],
        use_cpu=not torch.cuda.is_available(),
        ddp_backend="gloo" if options.world > 1 and not torch.cuda.is_available() else None,
        disable_tqdm=True,
    ),
    train_dataset=Text(options.length),
)
resume = huggingface.follow(trainer, sequence_length=options.length)  # 2
trainer.train(resume_from_checkpoint=resume)
