"""Ring attention (Liu et al. 2023) over sequences that ranks share: every rank has the queries of its positions, and
keys and values go round. What a query has gathered so far is kept with the logarithm of its weights' sum, so that parts
can be joined in any order (online softmax, Milakov and Gimelshein 2018) and there never is a whole attention matrix.

A causal mask leaves the front of a sequence with little to do. So a rank has two of 2·cp chunks, one as far from the
front as the other from the end, as in Llama 3 (Grattafiori et al. 2024, 3.3.2), and all ranks have as much to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class Ring:
    """The ranks that share sequences, each between two others."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group, self.size, self.rank = group, dist.get_world_size(group), dist.get_rank(group)
        self._next = dist.get_global_rank(group, (self.rank + 1) % self.size)
        self._previous = dist.get_global_rank(group, (self.rank - 1) % self.size)

    def positions(self, length: int) -> Tensor:
        """Which ones of a sequence this rank has."""
        chunks = torch.arange(length).chunk(2 * self.size)
        return torch.cat([chunks[self.rank], chunks[2 * self.size - 1 - self.rank]])

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Causal attention of (batch, heads, positions, size) over all positions; keys and values may have fewer
        heads."""
        attended: Tensor = _RingAttention.apply(query, key, value, self)
        return attended

    def pass_on(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Begins to send it to the next rank; waits, when called, for what the previous one has sent."""
        received = torch.empty_like(tensor)
        operations = [
            dist.P2POp(dist.isend, tensor, self._next, self._group),
            dist.P2POp(dist.irecv, received, self._previous, self._group),
        ]
        works = dist.batch_isend_irecv(operations)

        def arrived() -> Tensor:
            for work in works:
                work.wait()
            return received

        return arrived

    def pairs(self, turn: int) -> Iterator[tuple[int, int, bool]]:
        """Of this rank's two chunks and the two that have come after so many turns: those pairs of which the first has
        something to see, and whether they are the same chunk, so that it sees but a triangle."""
        source = (self.rank - turn) % self.size
        ours, theirs = (self.rank, 2 * self.size - 1 - self.rank), (source, 2 * self.size - 1 - source)
        for i, own in enumerate(ours):
            for j, other in enumerate(theirs):
                if other <= own:
                    yield i, j, other == own


class _RingAttention(torch.autograd.Function):
    """In fp32 whatever the activations are. Groups of query heads share a head of keys and values: queries are (batch,
    key heads, group, positions, size), keys and values (batch, key heads, 1, positions, size)."""

    @staticmethod
    def forward(context: Any, query: Tensor, key: Tensor, value: Tensor, ring: Ring) -> Tensor:
        with torch.autocast(query.device.type, enabled=False):
            queries = (_grouped(query, key) * query.shape[-1] ** -0.5).chunk(2, dim=-2)
            passing = torch.stack([key, value]).unsqueeze(3).float()
            outs = [torch.zeros_like(each) for each in queries]
            sums = [each.new_full((*each.shape[:-1], 1), -torch.inf) for each in queries]
            for turn in range(ring.size):
                arrived = ring.pass_on(passing) if turn + 1 < ring.size else None
                chunks = passing.chunk(2, dim=-2)
                for i, j, same in ring.pairs(turn):
                    keys, values = chunks[j]
                    scores = _scores(queries[i], keys, same)
                    total = torch.logaddexp(sums[i], scores.logsumexp(-1, keepdim=True))
                    outs[i] = outs[i] * (sums[i] - total).exp() + (scores - total).exp() @ values
                    sums[i] = total
                if arrived is not None:
                    passing = arrived()
            out, total = torch.cat(outs, dim=-2), torch.cat(sums, dim=-2)
        context.save_for_backward(query, key, value, out, total)
        context.ring = ring
        return out.flatten(1, 2).to(query.dtype)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """As in FlashAttention (Dao et al. 2022, appendix B.2): weights are computed again from the sums that were
        kept. Keys and values go round with their gradients, to which every rank adds, and which come home last."""
        query, key, value, out, total = context.saved_tensors
        ring = context.ring
        with torch.autocast(query.device.type, enabled=False):
            scale = query.shape[-1] ** -0.5
            queries = (_grouped(query, key) * scale).chunk(2, dim=-2)
            incoming = _grouped(gradients[0], key)
            means = (incoming * out).sum(-1, keepdim=True).chunk(2, dim=-2)
            incomings, sums = incoming.chunk(2, dim=-2), total.chunk(2, dim=-2)
            of_queries = [torch.zeros_like(each) for each in queries]
            kept = torch.stack([key, value]).unsqueeze(3).float()
            passing = torch.cat([kept, torch.zeros_like(kept)])
            for turn in range(ring.size):
                chunks = passing.chunk(2, dim=-2)
                for i, j, same in ring.pairs(turn):
                    keys, values, of_keys, of_values = chunks[j]
                    weights = (_scores(queries[i], keys, same) - sums[i]).exp()
                    of_scores = weights * (incomings[i] @ values.mT - means[i])
                    of_queries[i] += of_scores @ keys
                    of_keys += (of_scores.mT @ queries[i]).sum(2, keepdim=True)
                    of_values += (weights.mT @ incomings[i]).sum(2, keepdim=True)
                passing = ring.pass_on(passing)()
            of_query = torch.cat(of_queries, dim=-2).flatten(1, 2) * scale
            of_key, of_value = passing[2:].squeeze(3)
        return of_query.to(query.dtype), of_key.to(key.dtype), of_value.to(value.dtype), None


def _scores(queries: Tensor, keys: Tensor, same: bool) -> Tensor:
    scores = queries @ keys.mT
    if not same:
        return scores
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(later, -torch.inf)


def _grouped(queries: Tensor, keys: Tensor) -> Tensor:
    """The query heads by the head of keys and values that they share."""
    batch, heads, length, size = queries.shape
    return queries.float().reshape(batch, keys.shape[1], heads // keys.shape[1], length, size)
