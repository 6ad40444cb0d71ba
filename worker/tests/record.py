"""What trainers told of one job's life, generation by generation, and what follows from it: which steps a committed
checkpoint stands on, and that they saw every sample once."""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.message import Configuration


@dataclass(frozen=True)
class Step:
    """A step as reported: it trained with these samples of the global order."""

    number: int
    samples: range
    loss: float


@dataclass(frozen=True)
class Offer:
    """A complete checkpoint, which counts as committed from then on."""

    generation: int
    step: int
    samples_seen: int
    path: str
    manifest_sha256: str


@dataclass(frozen=True)
class Kill:
    """What was killed, and when."""

    moment: str
    configuration: Configuration
    rank: int | None
    """None: the process that had not yet forked its ranks."""
    step: int
    """The last one heard of."""
    lost_samples: int
    cut_short: bool
    """A half-written checkpoint was left behind."""
    took_down_s: float
    """From the blow to the last word of the group."""


@dataclass
class Generation:
    """One process group."""

    number: int
    configuration: Configuration
    resumed: Offer | None
    steps: list[Step] = field(default_factory=list)
    offers: list[Offer] = field(default_factory=list)


class Record:
    """Of a whole life."""

    def __init__(self) -> None:
        self.generations: list[Generation] = []
        self.kills: list[Kill] = []
        self.reconfigurations: list[str] = []
        self.committed: Offer | None = None

    def offers(self) -> list[Offer]:
        return [offer for generation in self.generations for offer in generation.offers]

    def history(self, offer: Offer) -> list[Step]:
        """The steps that a checkpoint stands on, from the first: of each generation those up to where it was left."""
        generation = self.generations[offer.generation - 1]
        before = self.history(generation.resumed) if generation.resumed else []
        return before + [step for step in generation.steps if step.samples.stop <= offer.samples_seen]

    def check_every_sample_once(self, offer: Offer) -> None:
        """The samples of the steps that a checkpoint stands on tile those that it says were seen."""
        at, history = 0, self.history(offer)
        for step in history:
            assert step.samples.start == at, f"step {step.number} trained {step.samples} after {at} samples"
            at = step.samples.stop
        assert at == offer.samples_seen
        assert [step.number for step in history] == list(range(1, offer.step + 1))
