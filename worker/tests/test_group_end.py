"""Scripts that leave gloo's process group to the interpreter, in each way in which Headway takes part in them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway import group_end

SCRIPT = """
import atexit, sys, torch.distributed
atexit.register(lambda: print("left behind:", torch.distributed.is_initialized()))
torch.distributed.init_process_group("gloo", init_method="file://{store}", rank=0, world_size=1)
model = torch.nn.Linear(2, 2)
{joins}
{ends}
"""
REPORTER = "import headway.torch; headway.torch.StepReporter(model, micro_batch=1, sequence_length=1)"
INIT = "import headway; headway.init()"
LAUNCHED = {
    "HEADWAY_JOB_ID": "3f0c1a52",
    "HEADWAY_GENERATION": "1",
    "HEADWAY_SOCKET": "/nowhere",
    "HEADWAY_SECRET": "s",
}


@pytest.mark.parametrize(
    ("launcher", "joins", "ends", "left_behind"),
    [
        ([], REPORTER, "sys.exit(0)", False),
        ([], REPORTER, "pass", False),
        ([], REPORTER, "raise OSError('disk')", True),
        ([], INIT, "sys.exit(0)", False),
        # What `headway.run` registers comes after everything of the script, and so after the line that is printed.
        (["-m", "headway.run"], "import headway", "sys.exit(0)", True),
        ([], "import headway", "sys.exit(0)", True),
    ],
)
def test_a_script_that_forgets_its_process_group_ends_without_it(
    tmp_path: Path, launcher: list[str], joins: str, ends: str, left_behind: bool
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(store=tmp_path / "store", joins=joins, ends=ends))
    command = [sys.executable, *launcher, str(script)]
    ended = subprocess.run(command, env={**os.environ, **LAUNCHED}, capture_output=True, text=True, timeout=60)
    assert ended.stdout == f"left behind: {left_behind}\n", ended.stderr
    assert ended.returncode == int("raise" in ends), ended.stderr


def test_a_script_below_headway_run_ends_without_its_process_group(tmp_path: Path) -> None:
    """The order of `atexit` is the reverse: a handler that comes before all of `headway.run` sees what it left."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(store=tmp_path / "store", joins="", ends=""))
    program = f"""
import atexit, sys, torch.distributed
atexit.register(lambda: print("at last:", torch.distributed.is_initialized()))
import headway.run
sys.argv[1:] = [{str(script)!r}]
headway.run.main()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "left behind: True\nat last: False\n", ended.stderr


def test_an_exit_waits_until_each_thread_of_gloo_has_slept_through_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    observed = [
        {"7": ("R", "4"), "8": ("S", "2")},
        {"7": ("R", "4"), "8": ("S", "2")},  # has done its work, and still holds the tensors
        {"7": ("S", "4"), "8": ("S", "2")},  # waits for the interpreter's lock, perhaps
        {"7": ("S", "5"), "8": ("S", "2")},
        {"7": ("S", "5"), "8": ("S", "2")},
    ]
    left = iter(observed)
    monkeypatch.setattr(group_end, "_observe_threads", lambda: next(left))
    monkeypatch.setattr(group_end, "PATIENCE_S", 60.0)
    group_end._await_idle_threads()
    assert list(left) == []


def test_an_exit_waits_for_no_thread_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_end, "_observe_threads", lambda: {"7": ("R", "4")})
    monkeypatch.setattr(group_end, "PATIENCE_S", 0.01)
    group_end._await_idle_threads()


@pytest.mark.skipif(not group_end.TASKS.is_dir(), reason="threads are told by Linux alone")
def test_the_threads_of_gloo_are_found_by_their_name(tmp_path: Path) -> None:
    """A model that is distributed keeps them alive where the group is destroyed: the exit must still wait for them."""
    program = f"""
import torch, torch.distributed
from headway import group_end
torch.distributed.init_process_group("gloo", init_method="file://{tmp_path}/store", rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
torch.distributed.destroy_process_group()
print(len(group_end._observe_threads()) > 0)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "True\n", ended.stderr
