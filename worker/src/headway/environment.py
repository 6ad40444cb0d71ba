"""The launch contract: what the agent put into a worker's environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headway.message import Configuration, Execution, Layout


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
    samples_seen: int
    grace_s: float | None
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
            samples_seen=int(variables.get("HEADWAY_SAMPLES_SEEN") or 0),
            grace_s=number("HEADWAY_GRACE"),
            device_flops=number("HEADWAY_DEVICE_FLOPS"),
            link_bytes_per_second=number("HEADWAY_LINK_BYTES_PER_SECOND"),
        )


def _configuration(variables: Mapping[str, str]) -> Configuration | None:
    """Absent for opaque jobs."""
    names = ("DP", "TP", "PP", "MICRO_BATCH", "GLOBAL_BATCH")
    values = [variables.get(f"HEADWAY_{name}") for name in names]
    if not all(values):
        return None
    dp, tp, pp, micro, batch = (int(value or 0) for value in values)
    return Configuration(Layout(dp, tp, pp), micro, batch, _execution(variables))


def _execution(variables: Mapping[str, str]) -> Execution:
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
    )
