"""`python -m headway.run SCRIPT ARGUMENT…` (or `-m MODULE ARGUMENT…`) runs a training script as `python SCRIPT` would.
By this form of command the agent knows that it may start the script in an interpreter that has imported torch
already."""

from __future__ import annotations

import os
import runpy
import sys

from headway.group_end import end_groups_at_exit
from headway.launch import one_thread_per_library


def main() -> int:
    """Returns when the script has run to its end; an exit or an error of the script passes through."""
    arguments = sys.argv[1:]
    module = arguments[:1] == ["-m"]
    arguments = arguments[module:]
    if not arguments:
        print("usage: python -m headway.run [-m] SCRIPT [ARGUMENT ...]", file=sys.stderr)
        return 2
    one_thread_per_library()
    end_groups_at_exit()  # also where the script does not report by itself
    sys.argv = arguments
    if module:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        return 0
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
    runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
