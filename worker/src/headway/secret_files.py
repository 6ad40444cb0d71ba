"""What a job was handed of its secrets, whichever way it was."""

from __future__ import annotations

import os
from collections.abc import Mapping


class MissingSecret(LookupError):
    """The job was handed no secret of that name."""


def secret(name: str, variables: Mapping[str, str] = os.environ) -> str:
    """The value of a secret by its name in `run.secrets`. It is read anew by every call and kept nowhere.

    Where the job has it as a file in memory (`HF_TOKEN_FILE` says where), that is read; else the variable of its name,
    which jobs that ask for `as: env`, and scripts that run outside Headway, have.
    """
    path = variables.get(f"{name}_FILE")
    if path:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    value = variables.get(name)
    if value is None:
        raise MissingSecret(
            f"there is no secret {name} here: name it in run.secrets of the job, as in secrets: [{name}]"
        )
    return value
