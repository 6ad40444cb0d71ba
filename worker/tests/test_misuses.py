"""No misuse fails silently: each raises, is said, or is put right; and docs/misuses.md says the same."""

from __future__ import annotations

import io
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed
from agent import FakeAgent, environment
from gang import gang
from misuses import SDK, Corrected, Raises, Says, Scene, row
from misuses_torch import TOGETHER, TORCH

import headway
from headway import said

ALONE = SDK | TORCH


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    agent = FakeAgent(tmp_path / "agent.sock")
    variables = environment(agent, 1, 4, 16, HEADWAY_CHECKPOINT_DIR=str(tmp_path / "checkpoints"))
    before, everything = signal.getsignal(signal.SIGTERM), dict(os.environ)
    os.environ.update(variables)
    said.forget()
    yield Scene(agent, tmp_path, variables)
    agent.hang_up()
    headway.close(timeout_s=0.0)
    signal.signal(signal.SIGTERM, before)
    os.environ.clear()
    os.environ.update(everything)


@pytest.mark.parametrize("name", ALONE)
def test_no_misuse_fails_silently(name: str, scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    misuse = ALONE[name]
    caplog.set_level(logging.WARNING, logger="headway")
    match misuse.outcome:
        case Raises(error, words):
            with pytest.raises(error) as raised:
                misuse.commit(scene)
            assert words in str(raised.value)
        case Says(words):
            misuse.commit(scene)
            assert words in caplog.text
        case Corrected(told=told):
            misuse.commit(scene)
            if headway.joined() is not None:
                scene.agent.serve(lambda: bool(scene.agent.of("step")))
            assert told(scene.agent) and not caplog.text


@pytest.mark.parametrize("name", TOGETHER)
def test_none_does_on_several_ranks(name: str, tmp_path: Path) -> None:
    hears, commit, outcome = TOGETHER[name]

    def rank() -> tuple[str, str]:
        """What it raises, and what it says."""
        store, mine = torch.distributed.distributed_c10d._get_default_store(), torch.distributed.get_rank()
        written = io.StringIO()
        logging.getLogger("headway").addHandler(logging.StreamHandler(written))
        try:
            commit(tmp_path)
        except Exception as error:
            return f"{type(error).__name__}: {error}", written.getvalue()
        finally:
            # Who has failed keeps its connections until the others are done.
            store.set(f"done/{mine}", "")
            store.wait(["done/0", "done/1"])
        return "", written.getvalue()

    raised, said_there = gang(tmp_path, 2, rank)[hears]
    match outcome:
        case Raises(error, words):
            assert raised.startswith(f"{error.__name__}: ") and words in raised
        case Says(words):
            assert words in said_there and not raised
        case Corrected():
            assert not raised and not said_there


def test_the_page_for_people_says_the_same() -> None:
    page = (Path(__file__).parents[2] / "docs" / "misuses.md").read_text()
    alone = [row(name, misuse.outcome) for name, misuse in ALONE.items()]
    together = [row(name, outcome) for name, (_, _, outcome) in TOGETHER.items()]
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| mistake")]
    assert rows == alone + together
