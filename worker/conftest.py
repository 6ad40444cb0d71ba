"""Torch is imported once, here; tests fork trainers from this process, which must therefore own no thread."""

import os
from pathlib import Path

import pytest

for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
for name in [name for name in os.environ if name.startswith("HEADWAY_")]:
    del os.environ[name]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=1, help="of the random lives in soak/test_kills.py")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Writes down what passed on a retry only (scripts/flaky.sh), and shows how it had failed: nothing else does."""
    flaky_list = os.environ.get("FLAKY_LIST")
    reruns = terminalreporter.stats.get("rerun", [])
    for report in reruns:
        terminalreporter.write_sep("_", f"failed, then tried again: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
    retried = {report.nodeid for report in reruns}
    failed = {report.nodeid for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])}
    if flaky_list and retried - failed:
        with Path(flaky_list).open("a") as file:
            file.writelines(f"worker {test}\n" for test in sorted(retried - failed))
