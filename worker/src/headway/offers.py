"""Why an agent would not accept a checkpoint that a script is about to offer (docs/worker-protocol.md, "Checkpoint on
disk"): said here, the script's author reads it."""

from __future__ import annotations

from pathlib import Path

from headway.checkpoint import MANIFEST, CheckpointError, read_manifest
from headway.environment import Environment


def wrong_with(environment: Environment, path: str, manifest_sha256: str) -> str | None:
    """None where nothing is, or the job has no directory of checkpoints to hold it to."""
    if environment.checkpoint_dir is None:
        return None
    home = Path(environment.checkpoint_dir) / f"g{environment.generation}"
    if not Path(path).resolve().is_relative_to(home.resolve()):
        return f"{path} is not below {home}, where this generation may write"
    try:
        manifest = read_manifest(path, manifest_sha256)
    except CheckpointError as error:
        return str(error)
    if (manifest.job, manifest.generation) != (environment.job_id, environment.generation):
        return f"the {MANIFEST} of {path} is of another job or generation"
    return None
