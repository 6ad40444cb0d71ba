"""Gradient accumulation that owns the step's gradients, reduces them over replicas and measures the noise on the way.

Each micro-batch's gradient is squared as autograd delivers it, parameter by parameter, before it joins a flat buffer in
single precision (in double where any parameter has that); so a step of K micro-batches yields K small batches however
replicas share them out, and the same sample in every layout with the same micro-batch. It replaces
DistributedDataParallel, whose reducer hides the micro-batches. Parameters under `fully_shard` are reduced by FSDP2 and
only measured here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from headway import numbers, said
from headway.noise import NoiseSample
from headway.torch.agreement import Agreement, Amiss
from headway.torch.portion import Portion
from headway.torch.ranks import Ranks, UnknownLayout, as_dtensor, local, named, placed_like, unique
from headway.torch.sizes import Inputs, unequal
from headway.torch.spans import Span, views
from headway.torch.squares import (
    EVERY,
    ONE_SMALL_BATCH,
    PRECONDITIONED,
    RAW,
    Piece,
    Preconditioner,
    Squares,
    Unmeasured,
    sample_of,
)
from headway.torch.summed import Summed, all_summed, copies_once_summed
from headway.torch.unsharded import Rows, sharded_parameters, watch

PENDING_BYTES = 64 << 20
COMPLAINTS = {
    Unmeasured.ONE_SMALL_BATCH: ONE_SMALL_BATCH,
    Unmeasured.UNEQUAL: "micro-batches are of unequal sizes. Give all of a step equally many sequences (a DataLoader's"
    " drop_last=True), or have DistributedDataParallel reduce and tell NoiseMeter or StepReporter those of each",
    Unmeasured.NO_COPIES: "ranks that are said to hold copies of parameters do not, though they did at the first step."
    " Give the groups as ranks=Ranks(data, tensor, pipeline)",
}


@dataclass(frozen=True)
class Reduced:
    """What one optimizer step's gradients came to, the same on all ranks. The mean gradient is in `p.grad`."""

    loss: float
    # Squared norm of the mean gradient over the whole model.
    gradient_sqr: float
    # None where the step has none; `unmeasured` says why.
    noise: NoiseSample | None
    # The sums over ranks of the extra values given to `reduce`.
    extra: list[float]
    unmeasured: Unmeasured | None = None
    # The same of the gradient as Adam scales it, where a preconditioner was given and has seen a step.
    preconditioned: NoiseSample | None = None


@dataclass
class _Slot:
    """Where one parameter's gradient goes."""

    parameter: nn.Parameter
    view: Tensor
    copies: int
    expert: bool = False
    group: torch.distributed.ProcessGroup | None = None
    terms: list[Tensor] = field(default_factory=list)


class GradientAccumulator:
    """Owns the gradients of the parameters given, or of the modules': after `reduce`, `p.grad` is the mean gradient.

    Per micro-batch: backward of the mean loss (not divided by the accumulation), then `end_micro_batch`; with a
    pipeline schedule (`scale_grads=False`) that once per micro-batch after the schedule's step. Per step: `reduce`,
    then clipping and the optimizer, then `clear`.
    """

    def __init__(
        self,
        parts: Iterable[nn.Parameter | nn.Module],
        ranks: Ranks | None = None,
        *,
        shard: bool = False,
        every: int = EVERY,
        summed: Sequence[Summed] = (),
        preconditioner: Preconditioner | None = None,
        experts: Iterable[nn.Parameter] = (),
        shares: Sequence[int] | None = None,
    ) -> None:
        """`shard`: each replica keeps only its slice of the mean gradient (`mean`, `shard_range`), as a distributed
        optimizer wants it. `every`: noise is measured at each so manieth step. `experts`: parameters of which other
        ranks hold others (`Ranks.experts`); they are used by way of `apart`. `shares`: each replica's weight where
        they do not all do equally many micro-batches of a step (`Configuration.shares()`)."""
        self.ranks = ranks if ranks is not None else Ranks()
        self.ranks.check()
        parts = list(parts)
        _refuse_wrapped(parts)
        self._modules = [part for part in parts if isinstance(part, nn.Module)]
        self._named = named(parts)
        self._given = list(self._named.values())
        self.shard, self._every, self._preconditioner, self._summed = shard, every, preconditioner, summed
        self._experts = {id(parameter) for parameter in experts}
        self._pending: dict[int, Tensor] = {}
        self._pending_bytes = 0
        self._count = self._steps = 0
        self.not_finite = 0
        self._hooks: list[RemovableHandle] = []
        self._portion = Portion.of(shares, self.ranks)
        self._portion.check(self._modules)
        self._attach()
        if preconditioner is not None and (shard or self._fully_sharded) and not preconditioner.gathers:
            self.close()
            raise UnknownLayout("the second moment is sharded over replicas, but micro-batches' gradients are whole")
        self._squares = Squares(self._device)
        self._losses = torch.zeros((), dtype=torch.float64, device=self._device)
        self._reset()

    def _attach(self) -> None:
        """Takes the gradients of what is trained now."""
        self._trained = self._trained_now()
        everything = unique(self._given)
        sharded = sharded_parameters(self._modules)
        self._fully_sharded = [parameter for parameter in everything if id(parameter) in sharded]
        self._device = local(self._given[0]).device
        self.spans = self._allocate([parameter for parameter in everything if id(parameter) not in sharded])
        self.parameters = [parameter for span in self.spans for parameter in span.parameters]
        summed = all_summed(self.parameters, self.ranks, self._summed)
        self._slots = {id(slot.parameter): slot for slot in self._slot(summed)}
        self._pieces = self._runs()
        trained = {
            name: parameter
            for name, parameter in self._named.items()
            if parameter.requires_grad and id(parameter) not in self._experts
        }
        self._agreement = Agreement(trained, self.ranks, self._device)
        self._hooks = [
            each.register_post_accumulate_grad_hook(self._take)  # type: ignore[no-untyped-call]
            for each in self.parameters
        ]
        self._hooks += watch(self._modules, self._listen)
        self._inputs = Inputs(self._modules[0], lambda: self.measuring) if self._modules else None
        self._hooks += [] if self._inputs is None else [self._inputs.handle]

    def _trained_now(self) -> list[bool]:
        return [parameter.requires_grad for parameter in self._given]

    @torch.no_grad()
    def _look_again(self) -> None:
        """Follows the script where it has frozen or unfrozen parameters since: at the end of a step's first
        micro-batch, when the gradients of what is new have come to lie in `p.grad`."""
        if self._trained_now() == self._trained:
            return
        if self.shard:
            raise RuntimeError(
                "parameters were frozen or unfrozen since the accumulator was made, and its slices with the optimizer's"
                " states are of what was trained then: make both anew"
            )
        self._flush()
        before = self._slots
        self.close()
        self._attach()
        for key, slot in self._slots.items():
            if key in before:
                slot.view.copy_(before[key].view)
                slot.terms = before[key].terms
            elif slot.parameter.grad is not None:
                self._take(slot.parameter)
        for key, slot in before.items():
            if key not in self._slots:
                slot.parameter.grad = None

    def close(self) -> None:
        """Lets go of the parameters, so that another accumulator may take them."""
        while self._hooks:
            self._hooks.pop().remove()

    @property
    def measuring(self) -> bool:
        """Whether this step's noise is measured."""
        return self._steps % self._every == 0

    def end_micro_batch(self, loss: Tensor | None = None) -> None:
        """One more micro-batch is done. `loss` is its mean loss, on the ranks that know it."""
        self._require_cleared()
        if self._count == 0:
            self._look_again()
            self._require_ownership()
        self._flush()
        if loss is not None:
            self._losses += local(loss.detach()) / self.ranks.loss_copies
        self._count += 1

    @torch.no_grad()
    def reduce(self, micro_batch: int, extra: Sequence[float] = (), gradient_scale: float = 1.0) -> Reduced:
        """Averages over all micro-batches of all replicas and measures, before any clipping.

        `gradient_scale`: the factor every loss was multiplied by, as for half precision. `extra` rides along in the one
        small all-reduce of the whole world; all ranks must give equally many. There is no noise, which is said once,
        where micro-batches are of unequal sizes, as what the first module is given shows, or a step has only one.

        Raises RuntimeError where there is nothing to reduce, as the optimizer would step on nothing, where the step
        before was not cleared, and on all ranks where they have not ended as many micro-batches as they weigh; and
        UnknownLayout at the first step where ranks that are said to hold copies of parameters do not. Later such steps
        have no noise.
        """
        micro_batch = numbers.count("micro_batch", micro_batch, least=1)
        self._flush()
        self._require_cleared()
        self._require_gradients()
        self._reduced = True
        count = self._portion.of_all(self._count)
        measuring = self.measuring
        self._sum_terms(measuring)
        self._average(count, gradient_scale)
        amiss = self._agreement.look(lambda parameter: parameter.grad) if measuring else Amiss()
        seen = self._inputs.take(self._count) if self._inputs is not None else [0.0, 0.0, 0.0]
        # Stages are given other inputs: only those of replicas may be compared.
        compared = seen if self.ranks.stages == 1 else [0.0, 0.0, 0.0]
        flags = [float(amiss != Amiss()), float(unequal(seen)), *compared]
        ended = [float(self._count), *self._portion.sums(self._count)]
        head = [self._squares.sums[RAW], self._squares.sums[PRECONDITIONED], self._losses]
        tail = self._big(measuring)
        more = torch.tensor([*flags, *ended, *extra], dtype=torch.float64).to(self._device)
        packed = torch.cat([torch.stack([*head, *tail]), more])
        if torch.distributed.is_initialized():
            torch.distributed.all_reduce(packed)
        small, small_scaled, loss, big, big_scaled, moment, elements, amiss_on, unequal_on, *others = packed.tolist()
        (*compared, ended_on_all, done, squared), extra_sums = others[:6], others[6:]
        self._require_shares(ended_on_all, (done, squared))
        if self._preconditioner is not None and measuring:
            self._preconditioner.learn(moment, elements)
            self._preconditioner.end()
        if amiss_on and self._steps == 0:
            raise UnknownLayout(amiss.parameters or amiss.gradients or Unmeasured.NO_COPIES.value)
        self._steps += 1
        unscaled = gradient_scale**2
        sample: NoiseSample | Unmeasured = Unmeasured.NOT_DUE
        scaled: NoiseSample | Unmeasured = Unmeasured.NOT_DUE
        if measuring and amiss_on:
            sample = scaled = Unmeasured.NO_COPIES
        elif measuring and (unequal_on or unequal(compared)):
            sample = scaled = Unmeasured.UNEQUAL
        elif measuring:
            batches = float(micro_batch), micro_batch * count
            sample = sample_of(small / unscaled / count, big, batches, count)
            scaled = sample_of(small_scaled / unscaled / count, big_scaled, batches, count)
            self.not_finite += sample is Unmeasured.NOT_FINITE
        self._complain(sample)
        return Reduced(
            loss=loss / (count * self.ranks.contexts),
            gradient_sqr=big,
            noise=sample if isinstance(sample, NoiseSample) else None,
            extra=extra_sums,
            unmeasured=sample if isinstance(sample, Unmeasured) else None,
            preconditioned=scaled if isinstance(scaled, NoiseSample) and big_scaled > 0.0 else None,
        )

    def _complain(self, sample: NoiseSample | Unmeasured) -> None:
        if sample in COMPLAINTS and (not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0):
            said.once(f"accumulator: {sample}", f"no noise is measured: {COMPLAINTS[sample]}")

    @torch.no_grad()
    def clip(self, reduced: Reduced, max_norm: float) -> None:
        """Scales the mean gradient of the whole model down to `max_norm`, after it has been measured."""
        norm = reduced.gradient_sqr**0.5
        if norm > max_norm:
            for span in self.spans:
                span.mean *= max_norm / norm
            for gradient in [*self._reduced_elsewhere(), *self._copied()]:
                gradient *= max_norm / norm

    def clear(self) -> None:
        """Ready for the next step's first micro-batch, once the optimizer has made its step. On all ranks."""
        self._reset()
        if self._preconditioner is not None and self.measuring:
            self._preconditioner.begin()

    def _reset(self) -> None:
        for span in self.spans:
            span.sums.zero_()
        self._squares.clear()
        self._losses.zero_()
        self._count = 0
        self._arrived = self._reduced = False
        for parameter in itertools.chain(self.parameters, self._fully_sharded):
            parameter.grad = None

    @property
    def mean(self) -> Tensor:
        """The mean gradient, or with `shard` this replica's slice; without experts."""
        return self.spans[0].mean

    def shard_range(self) -> tuple[int, int]:
        """Which elements of the parameters laid end to end `mean` holds; the last replica's slice may run past them."""
        return self.spans[0].range()

    def _allocate(self, parameters: list[nn.Parameter]) -> list[Span]:
        """Those of all ranks that train the same, and those of experts."""
        precise = any(local(parameter).dtype == torch.float64 for parameter in parameters)
        like = torch.zeros(0, dtype=torch.float64 if precise else torch.float32, device=self._device)
        common = [parameter for parameter in parameters if id(parameter) not in self._experts]
        experts = [parameter for parameter in parameters if id(parameter) in self._experts]
        spans = [Span(common, self.ranks.data, len(self.ranks.data_ranks()), self.shard, like)]
        if experts:
            spans.append(Span(experts, self.ranks.experts, self.ranks.expert_holders, self.shard, like))
        return spans

    def _slot(self, summed: Sequence[Summed]) -> list[_Slot]:
        pieces: list[Tensor] = []
        for span in self.spans:
            pieces += views(span.sums, [local(parameter) for parameter in span.parameters])
        slots = [
            _Slot(parameter, piece, self._copies(parameter), id(parameter) in self._experts)
            for parameter, piece in zip(self.parameters, pieces, strict=True)
        ]
        by_id = {id(slot.parameter): slot for slot in slots}
        for each in summed:
            for parameter in each.parameters:
                if id(parameter) not in by_id:
                    raise UnknownLayout("a parameter to be summed is not one whose gradient is accumulated here")
                slot = by_id[id(parameter)]
                slot.group = each.group
                slot.copies = copies_once_summed(parameter, self.ranks, each.group)
        return slots

    def _copies(self, parameter: nn.Parameter) -> int:
        """On how many ranks of one replica a piece of it lies, among those with the same tokens."""
        whole_expert = id(parameter) in self._experts and as_dtensor(parameter) is None
        return 1 if whole_expert else self.ranks.copies_in_replica(parameter)

    def _runs(self) -> list[tuple[Tensor, int, int, int]]:
        """Stretches of means of equally many copies over the world: of which, start, end, copies."""
        runs: list[tuple[Tensor, int, int, int]] = []
        for span in self.spans:
            for each in span.stretches():
                start, copies = each.mean.start, self._copies_of_mean(self._slots[id(each.parameter)])
                if runs and runs[-1][0] is span.mean and runs[-1][3] == copies:
                    start = runs.pop()[1]
                runs.append((span.mean, start, each.mean.stop, copies))
        return runs

    def _copies_of_mean(self, slot: _Slot) -> int:
        """On how many ranks of the world a piece of the mean gradient lies."""
        return slot.copies if self.shard else self._copies_whole(slot)

    def _copies_whole(self, slot: _Slot) -> int:
        """On how many ranks of the world a parameter, or a shard of it by tensor parallelism, lies."""
        holders = self.ranks.expert_holders if slot.expert else len(self.ranks.data_ranks())
        return slot.copies * holders

    def _copies_joined(self, slot: _Slot) -> int:
        """On how many ranks of one replica a micro-batch's gradient lies once its parts are put together."""
        return slot.copies * (self.ranks.expert_contexts if slot.expert else self.ranks.contexts)

    def _take(self, parameter: nn.Parameter) -> None:
        """Autograd has the parameter's gradient of one micro-batch complete."""
        self._arrived = True
        gradient = parameter.grad
        assert gradient is not None, "the hook runs after accumulation"
        parameter.grad = None
        slot = self._slots[id(parameter)]
        piece = local(placed_like(gradient, slot.parameter))
        if id(parameter) in self._pending:
            self._flush()
        self._pending[id(parameter)] = piece
        self._pending_bytes += piece.nbytes
        if self._pending_bytes >= PENDING_BYTES:
            self._flush()

    @torch.no_grad()
    def _flush(self) -> None:
        """Squares what has arrived and adds it to the step's sums, many parameters in one sweep."""
        if not self._pending:
            return
        slots = [self._slots[key] for key in self._pending]
        arrived = list(self._pending.values())
        if self.measuring:
            pairs = zip(slots, arrived, strict=True)
            whole = [(slot, piece) for slot, piece in pairs if slot.group is None and not slot.expert]
            joined = self._joined([piece for _, piece in whole], self.ranks.context)
            pieces = zip(whole, joined, strict=True)
            self._squares.add([self._piece(slot, piece, self._copies_joined(slot)) for (slot, _), piece in pieces])
            for slot, piece in zip(slots, arrived, strict=True):
                if slot.group is not None:
                    slot.terms.append(piece)
        torch._foreach_add_([slot.view for slot in slots], arrived)
        self._pending.clear()
        self._pending_bytes = 0

    def apart(self, parameter: nn.Parameter) -> Tensor:
        """An expert's parameter for one micro-batch's tokens: those of several ranks meet in it, and each micro-batch's
        gradient is squared by itself on its way."""
        if not self.measuring:
            return parameter
        slot, alias = self._slots[id(parameter)], parameter.view_as(parameter)

        def hook(gradient: Tensor) -> None:
            (joined,) = self._joined([local(placed_like(gradient, parameter))], self.ranks.expert_context)
            self._squares.add([self._piece(slot, joined, self._copies_joined(slot))])

        alias.register_hook(hook)  # type: ignore[no-untyped-call]
        return alias

    def _joined(self, pieces: list[Tensor], group: torch.distributed.ProcessGroup | None) -> list[Tensor]:
        """A micro-batch's gradients, of the parts that a group's ranks have which share its sequences. They all come by
        here with the same ones at the same time."""
        if (group is None and self.ranks.contexts == 1) or not pieces:
            return pieces
        packed = torch.cat([piece.reshape(-1).to(self.mean.dtype) for piece in pieces])
        if group is not None:
            torch.distributed.all_reduce(packed, group=group)
        packed /= self.ranks.contexts
        return views(packed, pieces)

    def _piece(self, slot: _Slot, values: Tensor, copies: int) -> Piece:
        scale = None if self._preconditioner is None else self._preconditioner.scale(slot.parameter)
        return Piece(values, copies, scale)

    def _listen(self, gathered: nn.Parameter, sharded: nn.Parameter) -> RemovableHandle:
        """Squares the gradients of a gathered FSDP2 parameter as they come."""
        copies = self.ranks.copies_in_replica(gathered) * self.ranks.contexts

        def hook(gradient: Tensor) -> None:
            if self.measuring:
                scale = None if self._preconditioner is None else self._preconditioner.scale(sharded)
                (joined,) = self._joined([local(placed_like(gradient, gathered))], self.ranks.context)
                self._squares.add([Piece(joined, copies, scale)])

        handle: RemovableHandle = gathered.register_hook(hook)  # type: ignore[no-untyped-call]
        return handle

    def _sum_terms(self, measuring: bool) -> None:
        """Completes the gradients of which this rank has only a term."""
        for slot in self._slots.values():
            if slot.group is None:
                continue
            torch.distributed.all_reduce(slot.view, group=slot.group)
            if measuring and slot.terms:
                terms = torch.stack(slot.terms).float()
                torch.distributed.all_reduce(terms, group=slot.group)
                (terms,) = self._joined([terms], self.ranks.context)
                self._squares.add([self._piece(slot, term, self._copies_joined(slot)) for term in terms])
            slot.terms.clear()

    def _average(self, count: float, gradient_scale: float) -> None:
        """The mean over so many micro-batches of all replicas, into `mean` and `p.grad`."""
        for span in self.spans:
            span.average(count * self.ranks.contexts * gradient_scale)
        for gradient in self._reduced_elsewhere():
            gradient /= count / self.ranks.replicas * gradient_scale  # FSDP2 has taken the mean over replicas
        if self.shard:
            return
        for slot in self._slots.values():
            # Autograd wants a gradient in the parameter's own numbers: half-precision parameters have a copy.
            slot.parameter.grad = _as_placed(slot.view.to(local(slot.parameter).dtype), slot.parameter)

    def _require_cleared(self) -> None:
        if self._reduced:
            raise RuntimeError("the step before is not cleared: call clear once the optimizer has made its step")

    def _require_ownership(self) -> None:
        """What was taken is put back by whoever reduces gradients too, and the next would be added to it."""
        if any(parameter.grad is not None for parameter in self.parameters):
            raise RuntimeError(
                "somebody else puts gradients into p.grad, as DistributedDataParallel does with"
                " gradient_as_bucket_view: keep it and use NoiseMeter or StepReporter, or give the accumulator a model"
                " that is not wrapped"
            )

    def _require_shares(self, total: float, sums: Sequence[float]) -> None:
        """By what all have ended: each rank has divided by what it takes that to be."""
        world = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        if not self._portion.kept(sums, world):
            wanted = f"as many as it weighs: {self._portion}" if self._portion.uneven else "equally many"
            raise RuntimeError(
                f"ranks have ended different numbers of micro-batches in this step: {self._count} here, {total:g} on"
                f" all {world}. Give every rank {wanted}"
            )

    def _require_gradients(self) -> None:
        if self._count == 0:
            raise RuntimeError("no micro-batch has ended since the last step: call end_micro_batch after each backward")
        if not self._arrived and not self._reduced_elsewhere() and (self.parameters or self._fully_sharded):
            raise RuntimeError(
                "no gradient has arrived: backward did not reach the parameters that were given, or they were taken by"
                " another accumulator since"
            )

    def _copied(self) -> list[Tensor]:
        """Gradients that are no views of `mean`."""
        if self.shard:
            return []
        grads = [slot.parameter.grad for slot in self._slots.values() if slot.parameter.dtype != slot.view.dtype]
        return [local(gradient) for gradient in grads if gradient is not None]

    def _reduced_elsewhere(self) -> list[Tensor]:
        return [local(parameter.grad) for parameter in self._fully_sharded if parameter.grad is not None]

    def _big(self, measuring: bool) -> list[Tensor]:
        """This rank's share of the mean gradient's squares, and of the second moment's mean."""
        squares = Squares(self._device)
        squares.add([Piece(mean[start:end], copies) for mean, start, end, copies in self._pieces])
        squares.add([Piece(gradient, copies) for _, gradient, copies in self._sharded_gradients()])
        raw = squares.sums[RAW]
        if self._preconditioner is None or not measuring:
            return [raw, *torch.zeros(3, dtype=torch.float64, device=self._device)]
        scaled = Squares(self._device)
        scaled.add(list(self._preconditioned(self._preconditioner)))
        # Whole on every replica, also where the gradient is not.
        whole = [(slot.parameter, self._copies_whole(slot)) for slot in self._slots.values()]
        whole += [(parameter, self._copies_gathered(parameter)) for parameter in self._fully_sharded]
        return [raw, scaled.sums[PRECONDITIONED], *self._preconditioner.total(whole, self._device)]

    def _preconditioned(self, by: Preconditioner) -> Iterator[Piece]:
        """This rank's pieces of the mean gradient with what each element is divided by."""
        for span in self.spans:
            for each in span.stretches():
                scale = by.scale(each.parameter)
                if scale is not None:
                    copies = self._copies_of_mean(self._slots[id(each.parameter)])
                    yield Piece(span.mean[each.mean], copies, scale.reshape(-1)[each.first : each.last])
        for parameter, gradient, copies in self._sharded_gradients():
            scale = by.scale(parameter)
            if scale is not None:
                yield Piece(gradient, copies, Rows.of(parameter, self.ranks.data_ranks()).own(scale))

    def _sharded_gradients(self) -> Iterator[tuple[nn.Parameter, Tensor, int]]:
        """What FSDP2 has reduced."""
        for parameter in self._fully_sharded:
            if parameter.grad is not None:
                piece = local(placed_like(parameter.grad, parameter))
                yield parameter, piece, self.ranks.copies_in_world(parameter)

    def _copies_gathered(self, parameter: nn.Parameter) -> int:
        """On how many ranks of the world the gathered parameter lies."""
        shards = torch.distributed.get_world_size(Rows.of(parameter, self.ranks.data_ranks()).group)
        return self.ranks.copies_in_world(parameter) * shards


def _refuse_wrapped(parts: Sequence[nn.Parameter | nn.Module]) -> None:
    """Their gradients would be reduced twice, and measured after the first time."""
    for part in parts:
        if isinstance(part, DistributedDataParallel):
            raise UnknownLayout(
                "DistributedDataParallel reduces gradients by itself: give its .module before it is wrapped, or keep it"
                " and use NoiseMeter or StepReporter"
            )


def _as_placed(piece: Tensor, parameter: nn.Parameter) -> Tensor:
    """This rank's piece as the parameter's gradient."""
    placed = as_dtensor(parameter)
    if placed is None:
        return piece
    return type(placed).from_local(
        piece, placed.device_mesh, placed.placements, run_check=False, shape=placed.shape, stride=placed.stride()
    )
