"""Measuring the gradient noise scale in PyTorch, in any layout.

`GradientAccumulator` owns the gradients of a training loop of one's own: it accumulates, reduces over replicas and
measures. `NoiseMeter` only listens, where DistributedDataParallel, FSDP2 or another framework owns them. `StepReporter`
is a meter with everything else a script says to the scheduler; `SampleBatches` and `ScaledLearningRate` follow what it
chose.
"""

from headway.torch.accumulator import GradientAccumulator, Reduced
from headway.torch.meter import Measured, NoiseMeter
from headway.torch.ranks import Ranks, UnknownLayout
from headway.torch.rate import ScaledLearningRate
from headway.torch.reporter import Asked, StepReporter
from headway.torch.samples import SampleBatches
from headway.torch.spans import views
from headway.torch.squares import Preconditioner, Unmeasured
from headway.torch.summed import Summed

__all__ = [
    "Asked",
    "GradientAccumulator",
    "Measured",
    "NoiseMeter",
    "Preconditioner",
    "Ranks",
    "Reduced",
    "SampleBatches",
    "ScaledLearningRate",
    "StepReporter",
    "Summed",
    "UnknownLayout",
    "Unmeasured",
    "views",
]
