"""A corpus whose sample i is a pure function of i, so that every layout, batch and resume point sees each sample
exactly once and in the same order. No state, no shuffle buffer: `samples_seen` is the whole position. Tokens are the
bytes of text, or come from a file of unsigned 16- or 32-bit integers, which is mapped and not read."""

from __future__ import annotations

import mmap
import sysconfig
from pathlib import Path

HELD_OUT_SHARE = 0.02
_SKIPPED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "idlelib", "__pycache__"}
_MASK = (1 << 32) - 1


class Corpus:
    """Tokens cut into chunks of `seq_len` plus the next one; the tail is held out for evaluation."""

    def __init__(self, text: bytes | mmap.mmap, seq_len: int, token_bytes: int = 1) -> None:
        self._text = text
        self._seq_len = seq_len
        self.token_bytes = token_bytes
        tokens = len(text) // token_bytes
        chunks = (tokens - 1) // seq_len
        self.held_out = max(1, int(chunks * HELD_OUT_SHARE))
        self.training = chunks - self.held_out
        if self.training < 1:
            raise ValueError(f"the corpus has {tokens} tokens, too few for sequences of {seq_len}")

    @staticmethod
    def read(directory: str | None, seq_len: int) -> Corpus:
        """All files below a directory in path order; without one, the sources of Python's standard library."""
        if directory is None:
            root = Path(sysconfig.get_paths()["stdlib"])
            files = [path for path in root.rglob("*.py") if not _SKIPPED_FOLDERS & set(path.relative_to(root).parts)]
        else:
            files = [path for path in Path(directory).rglob("*") if path.is_file()]
        return Corpus(b"\n".join(path.read_bytes() for path in sorted(files)), seq_len)

    @staticmethod
    def map(path: str, seq_len: int, token_bytes: int) -> Corpus:
        """A file of tokens in the machine's byte order; all ranks of a node share its pages."""
        with open(path, "rb") as file:
            return Corpus(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), seq_len, token_bytes)

    def sample(self, index: int) -> bytes:
        """Training sample `index`: seq_len + 1 tokens. Each epoch is another permutation of all
        chunks."""
        epoch, position = divmod(index, self.training)
        return self._chunk(permute(position, self.training, epoch))

    def held_out_sample(self, index: int) -> bytes:
        """Evaluation sample, spread evenly over the tail."""
        return self._chunk(self.training + permute(index % self.held_out, self.held_out, 0))

    def _chunk(self, chunk: int) -> bytes:
        start = chunk * self._seq_len
        return self._text[start * self.token_bytes : (start + self._seq_len + 1) * self.token_bytes]


def permute(position: int, size: int, key: int) -> int:
    """A pseudo-random bijection of 0..size (a four-round Feistel network, walked until it lands inside)."""
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = position >> half, position & mask
        for turn in range(4):
            left, right = right, left ^ (_mix(right, 4 * key + turn) & mask)
        position = (left << half) | right
        if position < size:
            return position


def _mix(value: int, key: int) -> int:
    """Avalanche of 32 bits (the finaliser of MurmurHash3)."""
    value = (value + 0x9E3779B9 * (key + 1)) & _MASK
    value = ((value ^ (value >> 16)) * 0x85EBCA6B) & _MASK
    value = ((value ^ (value >> 13)) * 0xC2B2AE35) & _MASK
    return value ^ (value >> 16)
