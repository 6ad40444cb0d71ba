"""Megatron-LM without a GPU, for `test_megatron.py`: `python megatron_on_cpus.py ARGS` runs
`headway.integrations.megatron ARGS` on CPUs.

What asks for CUDA gets the CPU. Of Apex there is the AdamW below, without whose step Megatron's distributed optimizer
cannot be loaded, and PyTorch's layer norm. What was trained on is written below $SEEN: the samples that each rank drew,
and on one rank the squares of each micro-batch's gradient and of their sum. Nothing of Megatron's own steps, data,
distributed optimizer or checkpoints is replaced.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # looks at what is replaced below
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")


class OnCpus(TorchFunctionMode):
    """Whatever is asked of a GPU, by any name, is done here."""

    def __torch_function__(self, function: Any, kinds: Any, given: Any = (), named: Any = None) -> Any:
        named = dict(named or {})
        if _is_gpu(named.get("device")):
            named["device"] = CPU
        if function is torch.device and given and _is_gpu(given[0]):
            return CPU
        if function is torch.Tensor.to and len(given) > 1 and _is_gpu(given[1]):
            given = (given[0], CPU, *given[2:])
        if function in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return given[0]
        done = function(*given, **named)
        if function is torch.Tensor.type and isinstance(done, str):
            return done.replace("torch.", "torch.cuda.")
        return done


def _is_gpu(device: Any) -> bool:
    return isinstance(device, int) and not isinstance(device, bool) or str(device).startswith("cuda")


class Nothing:
    """A stream, an event or a lock that orders what is in order already."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: 0.0


class FusedLayerNorm:
    """Apex's, without which there is no sequence parallelism."""

    @staticmethod
    def apply(rows: torch.Tensor, weight: Any, bias: Any, shape: Any, eps: float, *_: Any, **__: Any) -> torch.Tensor:
        return torch.nn.functional.layer_norm(rows, shape, weight, bias, eps)

    forward = apply  # whose arguments Megatron looks at


class FusedAdam(torch.optim.Optimizer):
    """AdamW (Loshchilov and Hutter 2019, algorithm 2) with its step in the group, as Apex keeps it."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        adam_w_mode: bool = True,
        **_: Any,
    ) -> None:
        assert adam_w_mode, "decoupled weight decay is what is tried here"
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            first, second = group["betas"]
            for each in group["params"]:
                if each.grad is None:
                    continue
                state = self.state[each]
                if not state:
                    state |= {name: torch.zeros_like(each) for name in ("exp_avg", "exp_avg_sq")}
                mean, square = state["exp_avg"], state["exp_avg_sq"]
                mean.lerp_(each.grad, 1.0 - first)
                square.mul_(second).addcmul_(each.grad, each.grad, value=1.0 - second)
                root = (square / (1.0 - second ** group["step"])).sqrt_().add_(group["eps"])
                each.mul_(1.0 - group["lr"] * group["weight_decay"])
                each.addcdiv_(mean, root, value=-group["lr"] / (1.0 - first ** group["step"]))


def stand_in() -> None:
    """Before anything of Megatron is imported."""
    properties = types.SimpleNamespace(total_memory=2**34, name="cpu", major=8, minor=0)
    for name, value in {
        "is_available": lambda: True,
        "is_initialized": lambda: False,
        "device_count": lambda: 8,
        "current_device": lambda: CPU,
        "get_device_properties": lambda _=None: properties,
        "get_device_capability": lambda _=None: (8, 0),
        "get_rng_state": lambda _=None: torch.get_rng_state(),
        "set_rng_state": lambda state, _=None: torch.set_rng_state(state),
        "manual_seed": torch.manual_seed,
        "memory_stats": lambda _=None: {},
        "Stream": Nothing,
        "Event": Nothing,
        "stream": Nothing,
        "current_stream": Nothing,
        "default_stream": Nothing,
        "nvtx": Nothing(),
        "check_error": lambda _: None,
        **dict.fromkeys("set_device set_stream synchronize empty_cache".split(), lambda *_: None),
        **dict.fromkeys("memory_allocated memory_reserved device_memory_used".split(), lambda *_: 0),
        **dict.fromkeys("max_memory_allocated max_memory_reserved".split(), lambda *_: 0),
    }.items():
        setattr(torch.cuda, name, value)
    apex = {
        "apex": {},
        "apex.optimizers": {"FusedAdam": FusedAdam, "FusedSGD": FusedAdam},
        "apex.normalization": {},
        "apex.normalization.fused_layer_norm": {"FusedLayerNormAffineFunction": FusedLayerNorm},
    }
    for name, members in apex.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(members)
    torch.compile = lambda given=None, **_: given if given is not None else lambda function: function
    OnCpus().__enter__()


def record(folder: Path) -> None:
    """A line for each micro-batch: its samples by number, and with one rank the squares after its backward pass."""
    from megatron.core.distributed import DistributedDataParallel
    from megatron.core.pipeline_parallel import schedules
    from megatron.training.datasets import data_samplers

    log = (folder / f"rank-{os.environ['RANK']}").open("a")
    draw = data_samplers.MegatronPretrainingSampler.__iter__

    def drawn(sampler: Any) -> Iterator[list[int]]:
        for micro_batch in draw(sampler):
            print(json.dumps({"samples": micro_batch}), file=log, flush=True)
            yield micro_batch

    data_samplers.MegatronPretrainingSampler.__iter__ = drawn
    backward, zero = schedules.backward_step, DistributedDataParallel.zero_grad_buffer
    gradients: list[torch.Tensor] = []

    def zeroed(model: Any) -> None:
        zero(model)
        gradients[:] = [each.main_grad for each in model.parameters()]

    def stepped(*given: Any, **named: Any) -> Any:
        before = [each.clone() for each in gradients]
        done = backward(*given, **named)
        own = [new - old for new, old in zip(gradients, before, strict=True)]
        squares = [sum(float(each.double().square().sum()) for each in all) for all in (own, gradients)]
        print(json.dumps({"squares": squares}), file=log, flush=True)
        return done

    if os.environ["WORLD_SIZE"] == "1":
        schedules.backward_step, DistributedDataParallel.zero_grad_buffer = stepped, zeroed


if __name__ == "__main__":
    torch.set_num_threads(1)
    stand_in()
    sys.path.append(os.environ["MEGATRON_LM"])
    from megatron.core.datasets import utils  # of the wheel, whose helpers are built

    utils.compile_helpers = lambda: None
    from megatron.core.tensor_parallel import random
    from megatron.legacy import fused_kernels

    fused_kernels.load = lambda _: None
    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    from headway.torch import reporter
    from headway.window import StepWindow

    reporter.StepWindow = lambda _: StepWindow(0.0)  # each step is told by itself
    if "SEEN" in os.environ:
        record(Path(os.environ["SEEN"]))
    if "PAGE" in os.environ:  # its lines, before the script that is the first argument
        del sys.argv[0]
        runpy.run_path(os.environ["PAGE"])
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        from headway.integrations.megatron import main

        main()
