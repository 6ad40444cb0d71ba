"""Megatron-LM on CPUs (`megatron_on_cpus.py`), followed by `headway.integrations.megatron`: its distributed optimizer
goes on in every layout with the same samples and the same noise. $MEGATRON_LM is its checkout at core_v0.16.1."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from agent import resumed_from
from followed import (
    FOR_EVER,
    GLOBAL,
    LAYOUTS,
    MICRO,
    Degrees,
    Ran,
    Stops,
    agree,
    by_order,
    by_signal,
    exact,
    launch,
    page_script,
)

pytest.importorskip("megatron.core", reason="megatron-core is not installed here (docs/adapters/megatron-lm.md)")
CHECKOUT = os.environ.get("MEGATRON_LM")
if CHECKOUT is None:
    pytest.skip("MEGATRON_LM does not say where Megatron-LM is checked out", allow_module_level=True)

SHAPE = """--num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --max-position-embeddings 16
    --position-embedding-type rope --disable-bias-linear --attention-dropout 0 --hidden-dropout 0"""
PLAIN = """--transformer-impl local --distributed-backend gloo --no-gradient-accumulation-fusion --no-rope-fusion
    --no-masked-softmax-fusion --no-bias-gelu-fusion --no-bias-dropout-fusion --no-persist-layer-norm"""
RUN = f"""--micro-batch-size {MICRO} --global-batch-size {GLOBAL} --train-samples 4000000 --lr 1e-3 --clip-grad 0.5
    --mock-data --tokenizer-type NullTokenizer --vocab-size 127 --make-vocab-size-divisible-by 64 --split 100,0,0
    --num-workers 0 --eval-interval 1000000 --eval-iters 0 --log-interval 1
    --use-distributed-optimizer --dist-ckpt-optim-fully-reshardable"""

# After a barrier of Megatron's, and with another one behind.
FULL = """
import torch.distributed
from headway.integrations import megatron

megatron.follow(every=1)
from megatron.training import checkpointing

named = checkpointing.get_checkpoint_tracker_filename


def full(folder):
    if torch.distributed.is_initialized() and torch.distributed.get_rank() == 0:
        raise OSError("No space left on device")
    return named(folder)


checkpointing.get_checkpoint_tracker_filename = full
"""


def run(folder: Path, degrees: Degrees, steps: int, stops: Stops | None = None, flags: str = "", **more: str) -> Ran:
    sizes = f"""--tensor-model-parallel-size {degrees.tp} --pipeline-model-parallel-size {degrees.pp}
        --exit-interval {steps}"""
    options = [] if "PAGE" in more else ["--noise-every", "1"]
    arguments = [
        *options,
        f"{CHECKOUT}/pretrain_gpt.py",
        *SHAPE.split(),
        *PLAIN.split(),
        *RUN.split(),
        *sizes.split(),
        *flags.split(),
    ]
    return launch(folder, degrees, "megatron_on_cpus.py", arguments, stops, CUDA_DEVICE_MAX_CONNECTIONS="1", **more)


def samples(ran: Ran) -> set[int]:
    return {each for line in ran.seen for each in line.get("samples", [])}


class Life:
    """One rank, ended by SIGTERM, and what it goes on with on one rank."""

    def __init__(self, folder: Path, flags: str) -> None:
        self.folder, self.flags = folder, flags
        self.first = run(folder, Degrees(), FOR_EVER, by_signal, flags)
        self.offer = self.first.offer()
        self.alone = self.goes_on(Degrees()).well()

    def goes_on(self, degrees: Degrees, flags: str = "") -> Ran:
        both = f"{self.flags} {flags}"
        return run(self.folder, degrees, self.offer["step"] + 2, None, both, **resumed_from(self.offer))


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    return Life(tmp_path_factory.mktemp("megatron"), "--untie-embeddings-and-output-weights")


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Life:
    return Life(tmp_path_factory.mktemp("tied"), "")


def test_sigterm_saves_the_step_that_is_under_way(life: Life) -> None:
    assert life.offer["samples_seen"] == GLOBAL * life.offer["step"]
    assert samples(life.first) == set(range(life.offer["samples_seen"]))


@pytest.mark.parametrize("which", ["life", "tied"])
def test_the_noise_of_one_rank_is_that_of_each_samples_gradient(which: str, request: pytest.FixtureRequest) -> None:
    life = request.getfixturevalue(which)
    squares = [line["squares"] for line in life.alone.seen if "squares" in line]
    steps = [squares[first : first + GLOBAL] for first in range(0, len(squares), GLOBAL)]
    for told, of_step in zip(life.alone.of("step"), steps, strict=True):
        exact(told, [own for own, _ in of_step], of_step[-1][1])


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_goes_on_with_the_same_samples_loss_and_noise(name: str, life: Life) -> None:
    ran = life.goes_on(LAYOUTS[name])
    agree(name, ran, life.alone)
    assert samples(ran) == samples(life.alone)


@pytest.mark.parametrize("flags", ["--sequence-parallel", "--overlap-grad-reduce --overlap-param-gather"])
def test_the_same_under_other_flags(flags: str, life: Life) -> None:
    agree(flags, life.goes_on(Degrees(dp=2, tp=2), flags), life.alone)


def test_the_same_of_an_embedding_that_the_first_and_the_last_stage_share(tied: Life) -> None:
    agree("tied, pp 2", tied.goes_on(Degrees(dp=2, pp=2)), tied.alone)


def test_a_job_that_is_moved_twice_trains_on_every_sample_once(life: Life) -> None:
    """By the module first, and then by the page's lines."""
    page = {"PAGE": page_script("megatron-lm", life.folder)}
    resumed = resumed_from(life.offer)
    parts = [life.first, run(life.folder, Degrees(tp=2, pp=2), FOR_EVER, by_signal, life.flags, **resumed)]
    resumed = {**resumed_from(parts[-1].offer()), "HEADWAY_GENERATION": "3"}
    parts.append(run(life.folder, Degrees(dp=2), FOR_EVER, by_order, life.flags, **resumed, **page))
    last = parts[-1].well().offer()
    seen = [samples(part) for part in parts]
    assert set.union(*seen) == set(range(last["samples_seen"]))
    assert sum(map(len, seen)) == last["samples_seen"]


def test_another_batch_ends_at_the_same_sample(life: Life) -> None:
    seen = life.offer["samples_seen"]
    flags = f"{life.flags} --global-batch-size {2 * GLOBAL} --train-samples {seen + 6 * GLOBAL}"
    flags += " --lr-decay-samples 4000000 --override-opt-param-scheduler"
    more = {**resumed_from(life.offer), "HEADWAY_GLOBAL_BATCH": str(2 * GLOBAL)}
    ran = run(life.folder, Degrees(dp=2), FOR_EVER, None, flags, **more).well()
    assert [each["step"] for each in ran.of("step")] == [life.offer["step"] + each for each in (1, 2, 3)]
    assert ran.of("step")[-1]["samples_seen"] == seen + 6 * GLOBAL
    assert samples(ran) == set(range(seen, seen + 6 * GLOBAL))


def test_a_save_that_fails_on_rank_0_alone_ends_the_job(life: Life) -> None:
    script = life.folder / "full.py"
    script.write_text(FULL)
    ran = run(life.folder, Degrees(dp=2), FOR_EVER, by_order, life.flags, PAGE=str(script))
    assert ran.code != 0
    assert "FailedAlone: Megatron's save failed on this rank" in ran.log
    assert not ran.of("checkpoint") and not ran.of("stopped")
