"""Torch is imported once, here; tests fork trainers from this process, which must therefore own no thread."""

import os

for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
for name in [name for name in os.environ if name.startswith("HEADWAY_")]:
    del os.environ[name]
