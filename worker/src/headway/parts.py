"""The parts of a decoder that one rank holds under a layout: its chunks of layers, cut by tensor parallelism and, where
asked, shared out by FSDP2. Only builds; running them is `parallel`'s."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from headway.dropout import Dropout
from headway.experts import Experts, Spread
from headway.flops import ModelShape
from headway.gang import DATA, Gang
from headway.message import Configuration, Execution
from headway.model import Decoder
from headway.ring import Ring
from headway.torch.ranks import as_dtensor, local

SCHEDULES = ("1f1b", "gpipe", "breadth_first")
SHARDINGS = ("none", "optimizer", "gradients", "parameters")
RECOMPUTES = ("none", "selective", "full")
OFFLOADS = ("none", "host", "disk")


class CannotRun(Exception):
    """The job as configured makes no sense for this trainer."""


def check(shape: ModelShape, configuration: Configuration, world: int) -> None:
    """Raises CannotRun where this trainer cannot train the model so."""
    layout, execution = configuration.layout, configuration.execution
    if min(layout.dp, layout.tp, layout.pp, execution.cp, execution.ep, execution.vpp) < 1:
        raise CannotRun(f"{configuration} has a degree below 1")
    tp, cp, ep, stages = layout.tp, execution.cp, execution.ep, layout.pp * execution.vpp
    shares = execution.shares
    uneven = shares.weight(layout.dp) is None
    wrong = {
        f"{configuration} is not for {world} ranks": configuration.ranks() != world,
        f"{shares} are not those of {layout.dp} replicas": not shares.fit(layout.dp),
        f"replicas of uneven shares cannot be pipelines (pp {layout.pp})": uneven and layout.pp > 1,
        f"experts are spread (ep {ep}) over replicas of even shares only": uneven and ep > 1,
        f"replicas of uneven shares cannot share out {execution.sharding}, which they gather in every micro-batch"
        " together": uneven and execution.sharding not in ("none", "optimizer"),
        f"{configuration} does not divide": configuration.cycles() is None,
        f"ep {ep} does not divide {shape.experts} experts and dp x cp x tp {layout.dp * cp * tp}": ep > 1
        and (shape.experts == 0 or shape.experts % ep != 0 or layout.dp * cp * tp % ep != 0),
        f"neither of ep {ep} and cp x tp {cp * tp} divides the other": ep > 1
        and ep % (cp * tp) != 0
        and cp * tp % ep != 0,
        "experts that are spread (ep) are not sharded by FSDP2 besides": ep > 1
        and execution.sharding in ("gradients", "parameters"),
        f"cp {cp} does not divide the sequence into two chunks for each rank": cp > 1 and shape.seq_len % (2 * cp) != 0,
        "this trainer takes optimizer states to the host and not to disks": execution.offload == "disk",
        f"tp {tp} does not divide heads, key-value heads, feed-forward and vocabulary": any(
            size % tp for size in (shape.heads, shape.kv_heads, shape.ffn_hidden, shape.vocab)
        ),
        f"tp {tp} does not divide the sequence": (execution.sequence_parallel or ep > 1)
        and shape.seq_len // cp % tp != 0,
        f"{shape.layers} layers are too few for {stages} stages": shape.layers < stages,
        "chunks of layers need a pipeline, and a schedule that interleaves": execution.vpp > 1
        and (layout.pp == 1 or execution.schedule == "gpipe"),
        f"unknown words in {execution}": execution.schedule not in SCHEDULES
        or execution.sharding not in SHARDINGS
        or execution.recompute not in RECOMPUTES
        or execution.offload not in OFFLOADS,
        "a tied model's pipeline cannot be fully sharded": shape.tied
        and layout.pp > 1
        and fully_sharded(configuration),
    }
    for complaint, holds in wrong.items():
        if holds:
            raise CannotRun(complaint)
    accumulation = configuration.accumulation() or 0
    if layout.pp == 1:
        return
    rounds = max(1, accumulation // layout.pp)
    if execution.vpp > 1 and accumulation % rounds:
        raise CannotRun(f"{accumulation} micro-batches do not interleave in {rounds} rounds")


def import_for(configurations: Iterable[Configuration]) -> None:
    """Imports what they need beyond plain data parallelism, before the ranks are forked."""
    modules = []
    for each in configurations:
        if each.layout.pp > 1:
            modules.append("headway.pipeline")
        if each.layout.tp > 1 or each.execution.cp > 1 or each.execution.sharding in ("gradients", "parameters"):
            # Taking a part of a mesh imports the compiler, though nothing here is compiled.
            modules += ["torch.distributed.tensor.parallel", "torch.distributed.fsdp", "torch._dynamo"]
    for module in modules:
        importlib.import_module(module)


def fully_sharded(configuration: Configuration) -> bool:
    """Whether FSDP2 reduces the gradients, instead of the accumulator."""
    layout, execution = configuration.layout, configuration.execution
    return layout.dp * execution.cp > 1 and execution.sharding in ("gradients", "parameters")


def stage_layers(layers: int, stages: int) -> list[range]:
    """Consecutive layers for each stage; the first ones take what is left over, since the last one also projects."""
    each, over = divmod(layers, stages)
    starts = [stage * each + min(stage, over) for stage in range(stages + 1)]
    return [range(start, end) for start, end in zip(starts, starts[1:], strict=False)]


def build(
    shape: ModelShape, configuration: Configuration, gang: Gang, bf16: bool, dropout: Dropout
) -> dict[int, Decoder]:
    """This rank's parts by stage, their parameters on the device and not yet set."""
    layout, execution = configuration.layout, configuration.execution
    stages = stage_layers(shape.layers, layout.pp * execution.vpp)
    stream = torch.bfloat16 if bf16 else torch.float32
    parts = {}
    # Memory for a parameter is taken only once its share is known. A tied parameter is one through two modules, and
    # would be two after that.
    device = gang.device if shape.tied else "meta"
    spread = None if gang.spread is None else Spread(gang.spread, min(execution.ep, execution.cp * layout.tp))
    for stage in range(gang.coordinate("pp"), len(stages), layout.pp):
        parts[stage] = Decoder(shape, None, stages[stage], execution.recompute, stream, device, dropout, spread)
    shared = gang.group("cp")
    ring = Ring(shared) if execution.cp > 1 and shared is not None else None
    positions = between = torch.arange(shape.seq_len) if ring is None else ring.positions(shape.seq_len)
    if execution.sequence_parallel:
        between = positions.chunk(layout.tp)[gang.coordinate("tp")]
    for part in parts.values():
        part.place(positions, between, ring)
        if layout.tp > 1:
            _cut(part, gang, execution)
            part.tie()
        if fully_sharded(configuration):
            _share_out(part, gang, execution, bf16)
        if not shape.tied:
            part.to_empty(device=gang.device)
    return parts


def spread_experts(parts: Iterable[Decoder]) -> list[Experts]:
    """Those of which other ranks have others."""
    modules = (module for part in parts for module in part.modules())
    return [module for module in modules if isinstance(module, Experts) and module.spread is not None]


def flatten(parts: list[Decoder], shares: int, expert_shares: int) -> list[Tensor]:
    """Lays the parameters end to end in one buffer, those of spread experts in another, and makes them views of it, in
    the order of `parameters()`. The buffers' sizes are multiples of these shares."""
    experts = {id(parameter) for each in spread_experts(parts) for parameter in each.experts.parameters()}
    every = {id(parameter): parameter for part in parts for parameter in part.parameters()}
    common = [parameter for key, parameter in every.items() if key not in experts]
    flats = [_flatten(parts, common, shares)]
    if experts:
        flats.append(_flatten(parts, [every[key] for key in every if key in experts], expert_shares))
    return flats


def _flatten(parts: list[Decoder], parameters: list[nn.Parameter], multiple: int) -> Tensor:
    owners: dict[int, list[tuple[nn.Module, str]]] = {}
    for part in parts:
        for module in part.modules():
            for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
                owners.setdefault(id(parameter), []).append((module, name))
    pieces = [local(parameter).detach() for parameter in parameters]
    total = sum(piece.numel() for piece in pieces)
    flat = torch.zeros(-(-total // multiple) * multiple, device=pieces[0].device)
    at = 0
    for parameter, piece in zip(parameters, pieces, strict=True):
        view = flat[at : at + piece.numel()].view(piece.shape)
        at += piece.numel()
        placed = as_dtensor(parameter)
        if placed is not None:
            view = type(placed).from_local(
                view,
                placed.device_mesh,
                placed.placements,
                run_check=False,
                shape=placed.shape,
                stride=placed.stride(),
            )
        replacement = nn.Parameter(view)
        for module, name in owners[id(parameter)]:
            setattr(module, name, replacement)
    return flat


def _cut(part: Decoder, gang: Gang, execution: Execution) -> None:
    """Megatron's tensor parallelism (Shoeybi et al. 2019), with the sequence cut between its regions if asked
    (Korthikanti et al. 2022). Logits stay cut by vocabulary."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        PrepareModuleInputOutput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    sequence = execution.sequence_parallel
    between = Shard(1) if sequence else Replicate()
    whole = PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),))
    attended = PrepareModuleInput(input_layouts=(between, None), desired_input_layouts=(Replicate(), None))
    plan: dict[str, object] = {"layers.*.attention": attended, "layers.*.feed_forward": whole}
    for name in ("attention.query", "attention.key", "attention.value"):
        plan[f"layers.*.{name}"] = ColwiseParallel()
    plan["layers.*.attention.out"] = RowwiseParallel(output_layouts=between)
    feed_forward, fed = "feed_forward", between
    if part.shape.experts:
        # Every rank routes all tokens, by the same bits, and has a share of each expert; or, where whole experts are
        # spread over ranks, its share of the tokens.
        feed_forward, fed = "feed_forward.experts.*", Replicate()
        routed = Shard(1) if gang.spread is not None else Replicate()
        plan["layers.*.feed_forward"] = PrepareModuleInputOutput(
            input_layouts=(between,),
            desired_input_layouts=(routed,),
            use_local_input=True,
            output_layouts=routed,
            desired_output_layouts=between,
        )
    if gang.spread is not None:
        plan["layers.*.feed_forward.router"] = SequenceParallel(sequence_dim=0, use_local_output=True)
    else:
        plan[f"layers.*.{feed_forward}.gate"] = plan[f"layers.*.{feed_forward}.up"] = ColwiseParallel()
        plan[f"layers.*.{feed_forward}.down"] = RowwiseParallel(output_layouts=fed)
    if sequence:
        plan["layers.*.attention_norm"] = plan["layers.*.feed_forward_norm"] = SequenceParallel()
    if part.embeds:
        plan["embedding"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=between)
    if part.projects:
        plan["head"] = ColwiseParallel(input_layouts=between)
        if sequence:
            plan["norm"] = SequenceParallel()
    parallelize_module(part, gang.part("tp"), plan, src_data_rank=None)  # type: ignore[arg-type]


def _share_out(part: Decoder, gang: Gang, execution: Execution, bf16: bool) -> None:
    """ZeRO-2 and ZeRO-3 by FSDP2: gradients are reduced into shards at once; parameters stay gathered between forward
    and backward, or not."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if bf16 else None, reduce_dtype=torch.float32, cast_forward_inputs=False
    )
    again = execution.sharding == "parameters"
    for layer in part.layers.values():
        fully_shard(layer, mesh=gang.part(DATA), reshard_after_forward=again, mp_policy=policy)
    fully_shard(part, mesh=gang.part(DATA), reshard_after_forward=again, mp_policy=policy)
