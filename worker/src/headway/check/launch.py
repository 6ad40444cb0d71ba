"""One launch of the script, as the node's agent would make it: variables, placeholders, a process per rank."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headway.message import Configuration

JOB = "3f0c1a52-0000-4000-8000-000000000001"
PLACEHOLDER = re.compile(r"\{\{|\}\}|\{(\w+)\}")


class UnknownPlaceholder(Exception):
    """The command names what the agent would not fill in."""


@dataclass(frozen=True)
class Checkpoint:
    """What a launch resumes from."""

    path: str
    step: int
    samples_seen: int
    manifest_sha256: str


@dataclass(frozen=True)
class Command:
    """How the script is started."""

    words: tuple[str, ...]
    per_node: bool = False
    """One process, which starts its ranks itself; otherwise one per rank."""
    watch: tuple[str, ...] = ()
    """What the command is wrapped in, where its output is to be read; torchrun then starts the ranks within."""


@dataclass(frozen=True)
class Order:
    """What a launch is made of."""

    command: Command
    configuration: Configuration
    generation: int
    socket: Path
    folder: Path
    """Output and checkpoints are below it."""
    grace_s: float
    resume: Checkpoint | None = None

    @property
    def checkpoint_dir(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def ranks(self) -> int:
        return self.configuration.layout.ranks()


@dataclass
class Launch:
    """The processes of one generation."""

    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    outputs: list[Path] = field(default_factory=list)

    def begin(self, order: Order) -> None:
        """Starts them. Raises UnknownPlaceholder, and OSError where the command cannot be run."""
        port = free_port()
        words = fill(order, port)
        count = 1 if order.command.per_node or order.command.watch else order.ranks
        for rank in range(count):
            output = order.folder / f"g{order.generation}-rank{rank}.log"
            command = [*order.command.watch, *words]
            with output.open("wb") as log:
                process = subprocess.Popen(
                    command,
                    env={**_surroundings(), **variables(order, port, rank)},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self.processes.append(process)
            self.outputs.append(output)

    def ended(self) -> bool:
        """Whether all have. The first that fails takes the others down, as the agent has it."""
        codes = [process.poll() for process in self.processes]
        if any(code not in (None, 0, 143, -signal.SIGTERM) for code in codes):
            self.signal(signal.SIGKILL)
        return None not in codes

    def code(self) -> int:
        """Of the first rank that failed by itself, else the first that is not 0; as a shell has it."""
        codes = [process.wait() for process in self.processes]
        shown = [code if code >= 0 else 128 - code for code in codes]
        failed = [code for code in shown if code not in (0, 143, 128 + signal.SIGKILL)]
        return next(iter(failed), max(shown))

    def signal(self, number: signal.Signals) -> None:
        for process in self.processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)

    def kill(self) -> None:
        """What is left, also of children whose leader has gone."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def output(self) -> str:
        """Of all ranks, one after the other."""
        return "".join(path.read_text(errors="replace") for path in self.outputs)


def free_port() -> int:
    """For rank 0 to listen on. It is none that the kernel would give to any connection until then."""
    while True:
        port = random.randrange(10_000, 30_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def default_ranks() -> list[int]:
    """Of the first launch and the second: two ranks cannot share the one GPU of a machine."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    found = listed.split(",") if listed else [each for each in Path("/dev").glob("nvidia*") if each.name[6:].isdigit()]
    return [1, 1] if len(found) == 1 else [1, 2]


def variables(order: Order, port: int, rank: int) -> dict[str, str]:
    """The contract of docs/worker-protocol.md, Environment, on one node."""
    layout, execution = order.configuration.layout, order.configuration.execution
    ranks = str(order.ranks)
    told = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": ranks,
        "LOCAL_WORLD_SIZE": ranks,
        "GROUP_RANK": "0",
        "NODE_RANK": "0",
        "NNODES": "1",
        "GPUS_PER_NODE": ranks,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": f"{JOB}-{order.generation}",
        "HEADWAY_JOB_ID": JOB,
        "HEADWAY_JOB_NAME": "check",
        "HEADWAY_GENERATION": str(order.generation),
        "HEADWAY_SOCKET": str(order.socket),
        "HEADWAY_SECRET": "5ec2e7",
        "HEADWAY_DP": str(layout.dp),
        "HEADWAY_TP": str(layout.tp),
        "HEADWAY_PP": str(layout.pp),
        "HEADWAY_SHARDING": execution.sharding,
        "HEADWAY_SHARES": _shares(order),
        "HEADWAY_MICRO_BATCH": str(order.configuration.micro_batch),
        "HEADWAY_GLOBAL_BATCH": str(order.configuration.global_batch),
        "HEADWAY_LR_SCALE": "1",
        "HEADWAY_CHECKPOINT_DIR": str(order.checkpoint_dir),
        "HEADWAY_GRACE": str(order.grace_s),
    }
    if order.resume is not None:
        told |= {
            "HEADWAY_RESUME_PATH": order.resume.path,
            "HEADWAY_RESUME_STEP": str(order.resume.step),
            "HEADWAY_SAMPLES_SEEN": str(order.resume.samples_seen),
            "HEADWAY_RESUME_MANIFEST_SHA256": order.resume.manifest_sha256,
        }
    return told


def fill(order: Order, port: int) -> list[str]:
    """The command with its placeholders filled in, as the agent does; `{{` and `}}` are braces."""
    configuration = order.configuration
    known = {
        "dp": configuration.layout.dp,
        "tp": configuration.layout.tp,
        "pp": configuration.layout.pp,
        "cp": 1,
        "ep": 1,
        "vpp": 1,
        "schedule": configuration.execution.schedule,
        "sharding": configuration.execution.sharding,
        "recompute": configuration.execution.recompute,
        "sequence_parallel": "false",
        "offload": configuration.execution.offload,
        "uneven_stages": "false",
        "shares": _shares(order),
        "micro_batch": configuration.micro_batch,
        "global_batch_sequences": configuration.global_batch,
        "nnodes": 1,
        "node_rank": 0,
        "gpus_per_node": order.ranks,
        "master_addr": "127.0.0.1",
        "master_port": port,
        "job_id": JOB,
        "job_name": "check",
        "generation": order.generation,
        "checkpoint_dir": order.checkpoint_dir,
        "resume_path": order.resume.path if order.resume else "",
        "samples_seen": order.resume.samples_seen if order.resume else 0,
        "lr_scale": 1,
        "python": sys.executable,
    }

    def value(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0][0]
        if found[1] not in known:
            raise UnknownPlaceholder(f"{found[0]} is no placeholder that this check can fill in")
        return str(known[found[1]])

    words = [PLACEHOLDER.sub(value, word) for word in order.command.words]
    if order.command.watch and not order.command.per_node and order.ranks > 1:
        where = ["--nnodes=1", f"--nproc-per-node={order.ranks}", "--master-addr=127.0.0.1", f"--master-port={port}"]
        return [words[0], "-m", "torch.distributed.run", *where, *words[1:]]
    return words


def _shares(order: Order) -> str:
    return ",".join(map(str, order.configuration.shares()))


def _surroundings() -> Mapping[str, str]:
    """The caller's own, without another job's contract."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("HEADWAY_")}
    sources = str(Path(__file__).parents[2])
    path = os.pathsep.join([sources, *filter(None, [kept.get("PYTHONPATH")])])
    return {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **kept, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
