"""Samples of the corpus as tokens on a rank's device."""

from __future__ import annotations

import argparse

import torch

from headway.data import Corpus

_TOKENS = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32}


def read_corpus(options: argparse.Namespace) -> Corpus:
    """Before the fork, so that the ranks of a node share its pages."""
    if options.token_bytes == 1:
        return Corpus.read(options.corpus, options.seq_len)
    return Corpus.map(options.corpus, options.seq_len, options.token_bytes)


class Batches:
    """Both methods give (samples, seq_len + 1) tokens."""

    def __init__(self, corpus: Corpus, device: torch.device) -> None:
        self._corpus, self._device = corpus, device

    def training(self, samples: range) -> torch.Tensor:
        return self._tokens([self._corpus.sample(index) for index in samples])

    def held_out(self, samples: range) -> torch.Tensor:
        return self._tokens([self._corpus.held_out_sample(index) for index in samples])

    def _tokens(self, samples: list[bytes]) -> torch.Tensor:
        flat = torch.frombuffer(bytearray(b"".join(samples)), dtype=_TOKENS[self._corpus.token_bytes])
        return flat.view(len(samples), -1).to(self._device, torch.long)
