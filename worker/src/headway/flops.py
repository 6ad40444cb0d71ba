"""Parameters and FLOPs of a decoder: the scheduler's own formulas (core/goodput/src/architecture.rs), so that an
emulated device takes the time the scheduler's model is about. Pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelShape:
    """Dimensions of a decoder-only transformer."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn_hidden: int
    vocab: int
    seq_len: int
    gated: bool = True
    tied: bool = False
    experts: int = 0
    """Of each layer, each as wide as `ffn_hidden`; 0 is one feed-forward for all tokens."""
    active_experts: int = 0
    """Those that a token passes."""

    def __post_init__(self) -> None:
        sizes = (self.layers, self.hidden, self.heads, self.kv_heads, self.ffn_hidden, self.vocab, self.seq_len)
        if min(sizes) < 1:
            raise ValueError("model dimensions must be at least 1")
        if self.hidden % self.heads or self.heads % self.kv_heads:
            raise ValueError("hidden must be divisible by heads, and heads by kv_heads")
        if self.experts < 0 or not min(1, self.experts) <= self.active_experts <= self.experts:
            raise ValueError("a token passes at least one of the experts, and no more than there are")

    def layer_weights(self) -> float:
        """Matrix parameters of one layer."""
        return self._layer_weights(self.experts)

    def active_layer_weights(self) -> float:
        """Those that a token passes."""
        return self._layer_weights(self.active_experts)

    def _layer_weights(self, experts: int) -> float:
        attention = 2 * self.hidden**2 * (1 + self.kv_heads / self.heads)
        router = self.hidden * self.experts
        return attention + router + (2 + self.gated) * self.hidden * self.ffn_hidden * max(1, experts)

    def parameters(self) -> int:
        """All parameters, norms included."""
        embeddings = self.vocab * self.hidden * (1 if self.tied else 2)
        return round(self.layers * (self.layer_weights() + 2 * self.hidden) + embeddings + self.hidden)

    def forward_flops_per_token(self) -> float:
        """Causal attention counted once, as kernels do it."""
        attention = 2 * self.layers * self.seq_len * self.hidden
        return 2 * self.layers * self.active_layer_weights() + attention + 2 * self.hidden * self.vocab

    def training_flops_per_token(self) -> float:
        """The backward pass costs twice the forward pass."""
        return 3 * self.forward_flops_per_token()
