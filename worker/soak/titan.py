"""torchtitan without a GPU, for `test_torchtitan.py`: `python titan.py ARGS` runs `headway.integrations.torchtitan`.

What asks for an accelerator gets `torch.cpu`; FlexAttention, which has no backward pass there, is dense attention under
the same mask; FSDP's reduction is the sum that gloo knows. What was trained on is written below $SEEN: each rank's
sequences, and on one rank the squares of each micro-batch's gradient and of their sum. Nothing of torchtitan's own
steps, data or checkpoints is replaced.
"""

from __future__ import annotations

import json
import os
import random
import runpy
import types
from pathlib import Path
from typing import Any

import torch
import torch._utils
from torch.distributed.fsdp import FSDPModule
from torch.nn import functional


def stand_in() -> None:
    """Before anything of torchtitan is imported."""
    torch._utils._get_available_device_type = lambda: "cpu"
    capacity = types.SimpleNamespace(total_memory=2**34)
    for name, value in {
        "set_device": lambda _: None,
        "current_device": lambda: 0,
        "get_device_name": lambda _=None: "cpu",
        "get_device_properties": lambda _=None: capacity,
        "reset_peak_memory_stats": lambda: None,
        "empty_cache": lambda: None,
        "memory_stats": lambda _=None: {},
    }.items():
        setattr(torch.cpu, name, value)
    from torchtitan.models.common.attention import FlexAttention

    FlexAttention._compiled_flex_attn = staticmethod(dense)
    divide = FSDPModule.set_gradient_divide_factor

    def summed(module: FSDPModule, factor: float) -> None:
        module.set_force_sum_reduction_for_comms(True)
        divide(module, factor)

    FSDPModule.set_gradient_divide_factor = summed  # type: ignore[method-assign]


def dense(q: Any, k: Any, v: Any, *, block_mask: Any, scale: Any, enable_gqa: bool, **_: Any) -> tuple[Any, None]:
    from torch.nn.attention.flex_attention import create_mask

    mask = create_mask(block_mask.mask_mod, q.shape[0], 1, q.shape[2], k.shape[2], device="cpu")
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=enable_gqa), None


def record(folder: Path) -> None:
    """A line for each call: the sequences' tokens, and with one rank the squares."""
    from torchtitan.trainer import Trainer

    step = Trainer.forward_backward_step
    log = (folder / f"rank-{os.environ['RANK']}").open("a")
    alone = os.environ["WORLD_SIZE"] == "1"

    def recorded(trainer: Any, **given: Any) -> Any:
        labels = given["labels"] if isinstance(given["labels"], list) else [given["labels"]]
        parameters = [each for part in trainer.model_parts for each in part.parameters()]
        before = [None if each.grad is None else each.grad.to_local().clone() for each in parameters] if alone else []
        loss = step(trainer, **given)
        told: dict[str, Any] = {"step": trainer.step, "sequences": [row for each in labels for row in each.tolist()]}
        if alone:
            after = [each.grad.to_local() for each in parameters]
            own = [new if old is None else new - old for new, old in zip(after, before, strict=True)]
            told["squares"] = [sum(float(each.double().square().sum()) for each in all) for all in (own, after)]
        print(json.dumps(told), file=log, flush=True)
        return loss

    Trainer.forward_backward_step = recorded


def tie() -> None:
    """The debug model's head to its embedding."""
    from torchtitan.trainer import Trainer

    build = Trainer.__init__

    def tied(trainer: Any, config: Any) -> None:
        config.model_spec.model.enable_weight_tying = True
        build(trainer, config)

    Trainer.__init__ = tied


def make_inputs(folder: Path, documents: int = 96) -> None:
    """A tokenizer of bytes, and documents that differ from one another, below the folder."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {each: number for number, each in enumerate([*alphabet, "<bos>", "<eos>"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<bos>", "<eos>"])
    (folder / "tokenizer").mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer" / "tokenizer.json"))
    special = {"bos_token": "<bos>", "eos_token": "<eos>"}
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(special))
    (folder / "documents").mkdir()
    chance = random.Random(0)
    words = ["".join(chance.choices("etaoinshr", k=chance.randint(2, 6))) for _ in range(50)]
    with (folder / "documents" / "data.json").open("w") as data:
        for number in range(documents):
            text = f"{number} " + " ".join(chance.choices(words, k=chance.randint(30, 90)))
            print(json.dumps({"text": text}), file=data)


if __name__ == "__main__":
    torch.set_num_threads(1)
    stand_in()
    if "TIED" in os.environ:
        tie()
    from headway.torch import reporter
    from headway.window import StepWindow

    reporter.StepWindow = lambda _: StepWindow(0.0)  # each step is told by itself
    if "SEEN" in os.environ:
        record(Path(os.environ["SEEN"]))
    if "PAGE" in os.environ:  # its script, which takes no arguments but torchtitan's
        runpy.run_path(os.environ["PAGE"], run_name="__main__")
    else:
        from headway.integrations.torchtitan import main

        main()
