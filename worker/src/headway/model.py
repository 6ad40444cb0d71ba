"""A small Llama-style decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU. It can be built in part, for
one stage of a pipeline. Nothing distributed here; `parallel` lays it out over ranks."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from headway.dropout import Drop, Dropout
from headway.experts import Experts, Spread
from headway.flops import ModelShape
from headway.ring import Ring

Device: TypeAlias = torch.device | str | None

_KEPT = {
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
}


NO_DROPOUT = Dropout(0.0, 0)


class RmsNorm(nn.Module):
    """In fp32 whatever the activations are."""

    def __init__(self, size: int, device: Device = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size, device=device))

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x.float(), (x.shape[-1],), self.weight.float(), 1e-5).to(x.dtype)


class Attention(nn.Module):
    """Queries, keys and values apart, so that tensor parallelism can cut each by heads."""

    def __init__(self, shape: ModelShape, device: Device = None) -> None:
        super().__init__()
        self.size = shape.hidden // shape.heads
        self.ring: Ring | None = None
        kv_hidden = shape.kv_heads * self.size
        self.query = nn.Linear(shape.hidden, shape.hidden, bias=False, device=device)
        self.key = nn.Linear(shape.hidden, kv_hidden, bias=False, device=device)
        self.value = nn.Linear(shape.hidden, kv_hidden, bias=False, device=device)
        self.out = nn.Linear(shape.hidden, shape.hidden, bias=False, device=device)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        q, k, v = (self._by_head(project(x)) for project in (self.query, self.key, self.value))
        q, k = rotate(q, rotation), rotate(k, rotation)
        if self.ring is not None:
            y = self.ring.attend(q, k, v)
        else:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        projected: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return projected

    def _by_head(self, projected: Tensor) -> Tensor:
        """(batch, length, this rank's heads × size) to (batch, heads, length, size)."""
        return projected.view(*projected.shape[:-1], -1, self.size).transpose(1, 2)


class FeedForward(nn.Module):
    def __init__(self, shape: ModelShape, device: Device = None) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.hidden, shape.ffn_hidden, bias=False, device=device)
        self.up = nn.Linear(shape.hidden, shape.ffn_hidden, bias=False, device=device)
        self.down = nn.Linear(shape.ffn_hidden, shape.hidden, bias=False, device=device)

    def forward(self, x: Tensor) -> Tensor:
        projected: Tensor = self.down(functional.silu(self.gate(x)) * self.up(x))
        return projected


class Layer(nn.Module):
    """Recomputes itself in the backward pass if asked: wholly, or all but its matrix products and attention."""

    def __init__(
        self,
        shape: ModelShape,
        index: int,
        recompute: str,
        device: Device = None,
        spread: Spread | None = None,
    ) -> None:
        super().__init__()
        self._index, self._recompute = index, recompute
        self.attention_norm = RmsNorm(shape.hidden, device)
        self.attention = Attention(shape, device)
        self.feed_forward_norm = RmsNorm(shape.hidden, device)
        self.feed_forward = (
            Experts(shape, partial(FeedForward, shape, device), spread, device)
            if shape.experts
            else FeedForward(shape, device)
        )

    def forward(self, x: Tensor, rotation: Tensor, drop: Drop) -> Tensor:
        if self._recompute == "none" or not torch.is_grad_enabled():
            return self._compute(x, rotation, drop)
        # Dropout goes by counters, so there is no generator's state to restore.
        run = partial(checkpoint, self._compute, x, rotation, drop, use_reentrant=False, preserve_rng_state=False)
        if self._recompute == "selective":
            run = partial(run, context_fn=partial(create_selective_checkpoint_contexts, _keep_products))
        computed: Tensor = run()
        return computed

    def _compute(self, x: Tensor, rotation: Tensor, drop: Drop) -> Tensor:
        x = x + drop(self.attention(self.attention_norm(x), rotation), f"layers.{self._index}.attention")
        x = x + drop(self.feed_forward(self.feed_forward_norm(x)), f"layers.{self._index}.feed_forward")
        return x


class Decoder(nn.Module):
    """Tokens in, logits out; or, built from some of the layers only, what lies between.

    The part with layer 0 embeds, the part with the last layer projects. Parameters are named as in the whole model, and
    the whole model has exactly `ModelShape.parameters()` of them. Without a seed the parameters are left unset.
    """

    def __init__(
        self,
        shape: ModelShape,
        seed: int | None = 0,
        layers: range | None = None,
        recompute: str = "none",
        stream: torch.dtype = torch.float32,
        device: Device = None,
        dropout: Dropout = NO_DROPOUT,
        spread: Spread | None = None,
    ) -> None:
        """`spread`: where the other experts are; without, all are here."""
        super().__init__()
        if not shape.gated:
            raise ValueError("this decoder has a gated feed-forward")
        layers = range(shape.layers) if layers is None else layers
        self.shape, self.embeds, self.projects = shape, layers.start == 0, layers.stop == shape.layers
        self._stream, self._dropout = stream, dropout
        if self.embeds:
            # Drawing normal numbers for a tensor without memory, as its constructor would, imports torch.compile.
            unset = torch.empty(shape.vocab, shape.hidden, device=device)
            self.embedding = nn.Embedding.from_pretrained(unset, freeze=False)  # type: ignore[no-untyped-call]
        self.layers = nn.ModuleDict({str(index): Layer(shape, index, recompute, device, spread) for index in layers})
        if self.projects:
            self.norm = RmsNorm(shape.hidden, device)
            self.head = nn.Linear(shape.hidden, shape.vocab, bias=False, device=device)
        self.tie()
        self.place(torch.arange(shape.seq_len), torch.arange(shape.seq_len))
        if seed is not None:
            for name, parameter in self.named_parameters():
                with torch.no_grad():
                    parameter.copy_(initial(shape, seed, name, parameter.shape, parameter.device))

    def place(self, positions: Tensor, between: Tensor, ring: Ring | None = None) -> None:
        """Which positions of every sequence this rank computes, which of them where only elements matter, between the
        regions of tensor parallelism, and the ranks that have the others."""
        self.positions, self._between = positions, between
        self._rotation: Tensor | None = None
        for layer in self.layers.values():
            assert isinstance(layer, Layer)
            layer.attention.ring = ring

    def tie(self) -> None:
        """The output projection and the embedding are one parameter, where the shape says so and both are here."""
        if self.shape.tied and self.embeds and self.projects:
            self.head.weight = self.embedding.weight

    def forward(self, x: Tensor, samples: range | None = None) -> Tensor:
        """Tokens (batch, positions), or the hidden state of the layers before. `samples`: which ones they are in the
        order of training, for dropout; without them nothing is dropped."""
        if self._rotation is None or self._rotation.device != x.device:
            self._rotation = rotary(self.positions, self.shape.hidden // self.shape.heads).to(x.device)
            self._between = self._between.to(x.device)
        drop = self._dropout.of(samples, self._between)
        if self.embeds:
            x = drop(self.embedding(x).to(self._stream), "embedding")
        for layer in self.layers.values():
            x = layer(x, self._rotation, drop)
        if self.projects:
            x = self.head(self.norm(x))
        return x

    def loss(self, tokens: Tensor) -> Tensor:
        """Mean next-token cross-entropy of (batch, seq_len + 1) tokens, for the whole model."""
        return cross_entropy(self(tokens[:, :-1]), tokens[:, 1:])


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def initial(shape: ModelShape, seed: int, name: str, size: torch.Size, device: torch.device | None = None) -> Tensor:
    """A parameter's first value, by its name alone: the same in every layout, and no broadcast is needed. Residual
    outputs start smaller (GPT-2); a tied projection is the embedding under another name."""
    if len(size) == 1:
        return torch.ones(size, device=device)
    name = "embedding.weight" if shape.tied and name == "head.weight" else name
    number = int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:7], "big")
    residual = name.endswith(("attention.out.weight", "down.weight"))
    scale = 0.02 / (2 * shape.layers) ** 0.5 if residual else 0.02
    generator = torch.Generator(device or "cpu").manual_seed(number)
    return torch.empty(size, device=device).normal_(0.0, scale, generator=generator)


def rotary(positions: Tensor, size: int) -> Tensor:
    """Cosines and sines at every position and frequency: (2, positions, size / 2)."""
    frequencies = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
    angles = torch.outer(positions.float(), frequencies)
    return torch.stack([angles.cos(), angles.sin()])


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    cos, sin = rotation.to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def _keep_products(_: object, operation: object, *__: object, **___: object) -> CheckpointPolicy:
    """Norms, rotations and gates are cheap to do again; products and attention are not (Korthikanti et al. 2022
    recompute the attention core instead, which fused attention does by itself)."""
    return CheckpointPolicy.MUST_SAVE if operation in _KEPT else CheckpointPolicy.PREFER_RECOMPUTE
