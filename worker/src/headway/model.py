"""A small Llama-style decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU. Nothing distributed here."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from headway.flops import ModelShape


class RmsNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)


class Attention(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.heads, self.kv_heads = shape.heads, shape.kv_heads
        self.size = shape.hidden // shape.heads
        kv_hidden = self.kv_heads * self.size
        self.qkv = nn.Linear(shape.hidden, shape.hidden + 2 * kv_hidden, bias=False)
        self.out = nn.Linear(shape.hidden, shape.hidden, bias=False)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        heads = self.qkv(x).view(batch, length, self.heads + 2 * self.kv_heads, self.size).transpose(1, 2)
        q, k, v = heads.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        y = functional.scaled_dot_product_attention(
            rotate(q, rotation), rotate(k, rotation), v, is_causal=True, enable_gqa=self.heads != self.kv_heads
        )
        projected: Tensor = self.out(y.transpose(1, 2).reshape(batch, length, hidden))
        return projected


class FeedForward(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.gate_up = nn.Linear(shape.hidden, 2 * shape.ffn_hidden, bias=False)
        self.down = nn.Linear(shape.ffn_hidden, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        projected: Tensor = self.down(functional.silu(gate) * up)
        return projected


class Layer(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.attention_norm = RmsNorm(shape.hidden)
        self.attention = Attention(shape)
        self.feed_forward_norm = RmsNorm(shape.hidden)
        self.feed_forward = FeedForward(shape)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotation)
        x = x + self.feed_forward(self.feed_forward_norm(x))
        return x


class Decoder(nn.Module):
    """Tokens in, logits out. Its parameter count is exactly `ModelShape.parameters()`."""

    def __init__(self, shape: ModelShape, seed: int = 0) -> None:
        super().__init__()
        if not shape.gated:
            raise ValueError("this decoder has a gated feed-forward")
        self.embedding = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = RmsNorm(shape.hidden)
        self.head = nn.Linear(shape.hidden, shape.vocab, bias=False)
        if shape.tied:
            self.head.weight = self.embedding.weight
        self.register_buffer("rotation", rotary(shape.seq_len, shape.hidden // shape.heads), persistent=False)
        self._initialise(shape, torch.Generator().manual_seed(seed))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.rotation)
        logits: Tensor = self.head(self.norm(x))
        return logits

    def loss(self, tokens: Tensor) -> Tensor:
        """Mean next-token cross-entropy of (batch, seq_len + 1) tokens."""
        logits = self(tokens[:, :-1])
        return functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())

    def _initialise(self, shape: ModelShape, generator: torch.Generator) -> None:
        """The same on every rank: no broadcast is needed. Residual outputs start smaller (GPT-2)."""
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                residual = name.endswith(("attention.out.weight", "down.weight"))
                scale = 0.02 / (2 * shape.layers) ** 0.5 if residual else 0.02
                with torch.no_grad():
                    parameter.normal_(0.0, scale, generator=generator)


def rotary(length: int, size: int) -> Tensor:
    """Cosines and sines of every position and frequency: (2, length, size / 2)."""
    frequencies = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)
    return torch.stack([angles.cos(), angles.sin()])


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    cos, sin = rotation[0, : x.shape[-2]].to(x.dtype), rotation[1, : x.shape[-2]].to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
