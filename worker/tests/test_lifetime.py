"""A short life under random changes and kills; `soak/test_kills.py` is the long one."""

from __future__ import annotations

from pathlib import Path

from lifetime import Lifetime
from undisturbed import difference

SEED = 3


def test_a_short_life_with_kills_sees_every_sample_once(tmp_path: Path) -> None:
    life = Lifetime(tmp_path, SEED, reconfigurations=5, kills=2)
    life.live()
    assert len(life.reconfigurations) == 5 and len(life.kills) == 2
    assert not life.complaints()
    offers = [offer for generation in life.generations for offer in generation.offers]
    for offer in offers:
        life.check_every_sample_once(offer)
    apart = difference(life, offers[-1])
    print(apart)
    assert apart.loss < 1e-4 and apart.evaluation < 2e-4
