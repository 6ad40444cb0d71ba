"""The micro-batch gradients that FSDP2 hides: it reduces them before anybody sees `p.grad`.

Its parameters exist twice: sharded, for the optimizer, and gathered, in forward and backward, as parameters of the same
modules. The gathered ones live as long as the model and take hooks like any leaf, so a micro-batch's whole local
gradient passes here just before it is accumulated, reduced or not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle


def is_fully_sharded(module: nn.Module) -> bool:
    """Whether `fully_shard` was applied to the module itself. Only who imported it can have done so."""
    package: Any = sys.modules.get("torch.distributed.fsdp")
    return package is not None and isinstance(module, package.FSDPModule)


def sharded_parameters(modules: Iterable[nn.Module]) -> set[int]:
    """The ids of the parameters that FSDP2 reduces by itself, in the state the optimizer knows."""
    groups = (each for module in modules for each in module.modules() if is_fully_sharded(each))
    return {id(parameter) for group in groups for parameter in _own_parameters(group)}


def watch(
    modules: Iterable[nn.Module], attach: Callable[[nn.Parameter], RemovableHandle | None]
) -> list[RemovableHandle]:
    """Calls `attach` with each gathered parameter at its first forward; returns the hooks, which grow meanwhile."""
    handles: list[RemovableHandle] = []
    attached: set[int] = set()

    def gathered(group: nn.Module, _: object) -> None:
        for parameter in _own_parameters(group):
            if parameter.requires_grad and id(parameter) not in attached:
                attached.add(id(parameter))
                handle = attach(parameter)
                if handle is not None:
                    handles.append(handle)

    for module in modules:
        for each in module.modules():
            if is_fully_sharded(each):
                # Registered after FSDP2's own, which gathers.
                handles.append(each.register_forward_pre_hook(gathered))
    return handles


def _own_parameters(group: nn.Module) -> Iterator[torch.nn.Parameter]:
    """Those that are gathered with this module and not with one below."""
    yield from group.parameters(recurse=False)
    for child in group.children():
        if not is_fully_sharded(child):
            yield from _own_parameters(child)
