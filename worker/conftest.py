"""Torch is imported once, here; tests fork trainers from this process, which must therefore own no thread."""

import os

import pytest

for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
for name in [name for name in os.environ if name.startswith("HEADWAY_")]:
    del os.environ[name]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=1, help="of the random lives in soak/test_kills.py")
