"""The launch contract: what the agent put into a worker's environment."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from headway.message import Configuration, Execution, Layout, Shares


@dataclass(frozen=True)
class Environment:
    """Who this worker is and what it was launched with. `docs/worker-protocol.md` lists the variables."""

    job_id: str
    job_name: str
    generation: int
    socket: str
    secret: str
    rank: int
    configuration: Configuration | None
    lr_scale: float
    checkpoint_dir: str | None
    checkpoint_every_s: float | None
    resume_path: str | None
    resume_step: int
    resume_manifest_sha256: str | None
    samples_seen: int
    grace_s: float | None
    startup_s: float | None
    device_flops: float | None
    link_bytes_per_second: float | None

    @staticmethod
    def read(variables: Mapping[str, str]) -> Environment | None:
        """The environment of a Headway worker, or None outside Headway."""
        socket = variables.get("HEADWAY_SOCKET")
        if not socket:
            return None

        def number(name: str) -> float | None:
            text = variables.get(name)
            return float(text) if text else None

        return Environment(
            job_id=variables.get("HEADWAY_JOB_ID", ""),
            job_name=variables.get("HEADWAY_JOB_NAME", ""),
            generation=int(variables.get("HEADWAY_GENERATION") or 0),
            socket=socket,
            secret=variables.get("HEADWAY_SECRET", ""),
            rank=int(variables.get("RANK") or 0),
            configuration=_configuration(variables),
            lr_scale=number("HEADWAY_LR_SCALE") or 1.0,
            checkpoint_dir=variables.get("HEADWAY_CHECKPOINT_DIR") or None,
            checkpoint_every_s=number("HEADWAY_CHECKPOINT_EVERY"),
            resume_path=variables.get("HEADWAY_RESUME_PATH") or None,
            resume_step=int(variables.get("HEADWAY_RESUME_STEP") or 0),
            resume_manifest_sha256=variables.get("HEADWAY_RESUME_MANIFEST_SHA256") or None,
            samples_seen=int(variables.get("HEADWAY_SAMPLES_SEEN") or 0),
            grace_s=number("HEADWAY_GRACE"),
            startup_s=_startup_s(variables),
            device_flops=number("HEADWAY_DEVICE_FLOPS"),
            link_bytes_per_second=number("HEADWAY_LINK_BYTES_PER_SECOND"),
        )


def process_started_at() -> float:
    """When the kernel started this process, in seconds since 1970; now, where the kernel does not say."""
    try:
        with open("/proc/self/stat", encoding="ascii") as stat:
            ticks = int(stat.read().rsplit(")", 1)[1].split()[19])
        return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):
        return time.time()


def _startup_s(variables: Mapping[str, str]) -> float | None:
    """From the agent's decision to launch to the start of the process that runs the script. Ranks that were forked
    later are told when that was. The clock may have been set meanwhile: no time is negative."""
    launched = variables.get("HEADWAY_LAUNCHED_AT")
    if not launched:
        return None
    started = variables.get("HEADWAY_STARTED_AT")
    return max(0.0, (float(started) if started else process_started_at()) - float(launched))


def _configuration(variables: Mapping[str, str]) -> Configuration | None:
    """Absent for opaque jobs."""
    names = ("DP", "TP", "PP", "MICRO_BATCH", "GLOBAL_BATCH")
    values = [variables.get(f"HEADWAY_{name}") for name in names]
    if not all(values):
        return None
    dp, tp, pp, micro, batch = (int(value or 0) for value in values)
    return Configuration(Layout(dp, tp, pp), micro, batch, _execution(variables, dp))


def _execution(variables: Mapping[str, str], dp: int) -> Execution:
    """What is not named is done the plain way."""
    plain = Execution()

    def text(name: str, default: object) -> str:
        return variables.get(f"HEADWAY_{name}") or str(default)

    return Execution(
        cp=int(text("CP", plain.cp)),
        ep=int(text("EP", plain.ep)),
        vpp=int(text("VPP", plain.vpp)),
        schedule=text("SCHEDULE", plain.schedule),
        sharding=text("SHARDING", plain.sharding),
        recompute=text("RECOMPUTE", plain.recompute),
        sequence_parallel=text("SEQUENCE_PARALLEL", plain.sequence_parallel).lower() in ("true", "1"),
        offload=text("OFFLOAD", plain.offload),
        shares=_shares(text("SHARES", ""), dp),
    )


def _shares(text: str, dp: int) -> Shares:
    if not text:
        return Shares()
    weights = [int(each) for each in text.split(",")]
    if len(weights) != dp:
        raise ValueError(f"HEADWAY_SHARES={text} are not the shares of {dp} replicas")
    return Shares.of(weights)
