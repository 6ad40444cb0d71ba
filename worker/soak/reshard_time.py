"""How long a change of layout takes by phase, in memory and by checkpoint. `python soak/reshard_time.py` prints it.

Four ranks over gloo and a decoder of 8 million parameters. Interpreter starts are not in it: in memory there is none,
and by checkpoint they come on top."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / each) for each in ("src", "tests")]

import torch  # noqa: E402
import torch.distributed  # noqa: E402
from gang import gang  # noqa: E402
from layouts import configured  # noqa: E402

from headway import sharded  # noqa: E402
from headway.flops import ModelShape  # noqa: E402
from headway.gang import Gangs  # noqa: E402
from headway.message import Configuration  # noqa: E402
from headway.parallel import Parallel, Recipe  # noqa: E402
from headway.reshard import exchange  # noqa: E402
from headway.saver import Saver  # noqa: E402
from headway.tiles import staged  # noqa: E402

SHAPE = ModelShape(layers=8, hidden=256, heads=8, kv_heads=4, ffn_hidden=704, vocab=4096, seq_len=64)
CHANGES = {
    "dp4 → dp2·tp2": (configured(4), configured(2, tp=2)),
    "dp4 ZeRO-1 → pp2·dp2": (configured(4, sharding="optimizer"), configured(2, pp=2)),
    "dp4 ZeRO-3 → pp2·tp2": (configured(4, sharding="parameters"), configured(tp=2, pp=2)),
    "pp4 → dp4 ZeRO-1": (configured(pp=4), configured(4, sharding="optimizer")),
}


def change(before: Configuration, after: Configuration, folder: Path) -> dict[str, float]:
    """Seconds of each phase on this rank."""
    gangs = Gangs(torch.device("cpu"))
    first = Parallel(Recipe(SHAPE), before, gangs.of(before))
    first.initialise()
    saver = Saver(str(folder), "job", 1, torch.distributed.get_rank(), torch.distributed.get_world_size())
    torch.distributed.barrier()
    marks = [time.monotonic()]

    def mark() -> None:
        marks.append(time.monotonic())

    held = staged(first.tiles())
    mark()
    gang_after = gangs.of(after)
    mark()
    second = Parallel(Recipe(SHAPE), after, gang_after)
    mark()
    exchange(held, second.tiles(), torch.distributed.group.WORLD)
    mark()
    saver.start(1, 8, first.tiles, {})
    mark()
    assert saver.wait()
    mark()
    sharded.read(str(folder / "g1" / "step-000000001"), second.tiles(), torch.distributed.group.WORLD)
    mark()
    names = ("staging", "groups", "build", "exchange", "save: staging", "save: writing", "load")
    return dict(zip(names, (b - a for a, b in zip(marks, marks[1:], strict=False)), strict=True))


def main() -> None:
    print(f"{SHAPE.parameters() / 1e6:.1f} million parameters")
    for number, (name, (before, after)) in enumerate(CHANGES.items()):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "gang").mkdir()
            phases = gang(Path(folder) / "gang", 4, lambda: change(before, after, Path(folder) / "saved"))  # noqa: B023
        slowest = {phase: max(rank[phase] for rank in phases) for phase in phases[0]}
        if number == 0:
            print("| change | " + " | ".join(slowest) + " |\n|" + "---|" * (1 + len(slowest)))
        print(f"| {name} | " + " | ".join(f"{seconds:.2f} s" for seconds in slowest.values()) + " |")


if __name__ == "__main__":
    main()
