"""The worker's side of Headway, for any training script.

Outside a Headway job every call is a no-op, so the same script runs anywhere. Nothing here blocks or raises because of
the scheduler: a worker that loses its agent goes on training. Importing this package never imports torch.

    headway.init()
    ...
    headway.report(step=step, samples_seen=seen, tokens=tokens, duration_s=seconds, loss=loss, noise=noise)
    headway.busy(seconds_before_the_collective)  # on every rank
    match headway.poll():
        case headway.Configure(configuration=configuration, lr_scale=lr_scale): ...
        case headway.Checkpoint(): ...
        case headway.Stop(checkpoint=save): ...
"""

from headway.environment import Environment
from headway.message import Checkpoint, Configuration, Configure, Directive, Execution, Layout, Shares, Stop
from headway.noise import NoiseAverage, NoiseSample, NoiseScale
from headway.saving import NothingWritten, saving
from headway.sdk import (
    busy,
    checkpoint_done,
    close,
    init,
    joined,
    loss,
    phases,
    poll,
    report,
    report_steps,
    resharded,
    stopped,
)
from headway.secret_files import MissingSecret, secret
from headway.version import __version__
from headway.window import StepSummary, StepWindow

__all__ = [
    "Checkpoint",
    "Configuration",
    "Configure",
    "Directive",
    "Environment",
    "Execution",
    "Layout",
    "MissingSecret",
    "NoiseAverage",
    "NoiseSample",
    "NoiseScale",
    "NothingWritten",
    "Shares",
    "StepSummary",
    "StepWindow",
    "Stop",
    "__version__",
    "busy",
    "checkpoint_done",
    "close",
    "init",
    "joined",
    "loss",
    "phases",
    "poll",
    "report",
    "report_steps",
    "resharded",
    "saving",
    "secret",
    "stopped",
]
