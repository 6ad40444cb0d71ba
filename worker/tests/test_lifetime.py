"""A short life under random changes and kills; `soak/test_kills.py` is the long one."""

from __future__ import annotations

from pathlib import Path

from lifetime import Lifetime
from undisturbed import arrived, difference, undisturbed


def test_a_job_that_is_changed_and_killed_trains_the_undisturbed_run(tmp_path: Path) -> None:
    life = Lifetime(tmp_path, seed=3, reconfigurations=5, kills=2, ranks=(1, 2))
    life.live()
    record = life.record
    assert len(record.reconfigurations) == 5 and len(record.kills) == 2
    assert not life.complaints()
    for offer in record.offers():
        record.check_every_sample_once(offer)
    last = record.offers()[-1]
    apart = difference(arrived(life, last), undisturbed(life, record.history(last)))
    # Rounding, and the four digits with which an evaluation is told.
    assert apart.loss < 1e-5 and apart.evaluation < 1e-4, apart
    assert apart.parameter < 1e-4 and apart.moment < 1e-2, apart
