"""Training in every layout, and going from one to another, is training on one rank."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from gang import gang
from layouts import ALONE, GLOBAL, LAYOUTS, SIX, TIED, TINY, Trainee, alone, configured, furthest, tokens

from headway.flops import ModelShape
from headway.message import Configuration, Execution, Layout
from headway.parallel import Recipe
from headway.parts import CannotRun, check, stage_layers

TOLERANCE = 1e-5
STEPS = 8
"""Of each layout; `soak` trains twenty."""
DROPPING = Recipe(TINY, dropout=0.1)
HALF = Recipe(TINY, bf16=True)


@pytest.fixture(scope="module")
def undisturbed() -> list[float]:
    return alone(4)


@pytest.fixture(scope="module")
def dropping() -> list[float]:
    return alone(STEPS, DROPPING)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_loses_as_one_rank_does(
    name: str, dropping: list[float], undisturbed: list[float], tmp_path: Path
) -> None:
    configuration = LAYOUTS[name]
    losses = gang(tmp_path, configuration.ranks(), lambda: Trainee(DROPPING, configuration).train(STEPS))
    assert furthest(losses, dropping) < TOLERANCE / 2
    assert dropping[-1] < dropping[0] - 1.0, "the model learns"
    assert furthest([dropping[:4]], undisturbed) > 10 * TOLERANCE, "dropout makes a difference"


@pytest.mark.parametrize("name", ["dp2, ZeRO-2", "pp4, 1F1B", "pp2 tp2, sequence parallel"])
def test_a_tied_model_loses_the_same_in_every_layout(name: str, tmp_path: Path) -> None:
    configuration = LAYOUTS[name]
    losses = gang(tmp_path, configuration.ranks(), lambda: Trainee(TIED, configuration).train(4))
    assert furthest(losses, alone(4, TIED)) < TOLERANCE


@pytest.mark.parametrize("name", ["pp2 dp2, interleaved, ZeRO-2", "pp2 tp2, sequence parallel"])
def test_half_precision_agrees_to_its_rounding(name: str, tmp_path: Path) -> None:
    configuration = LAYOUTS[name]
    losses = gang(tmp_path, 4, lambda: Trainee(HALF, configuration).train(4))
    expected = alone(4, HALF)
    assert furthest(losses, expected) < 2e-3
    assert furthest([expected], alone(4)) > TOLERANCE, "it is another precision"


# Each of the six layouts once as the source and once as the target; all thirty pairs are in `soak`.
RING = list(zip(SIX, [*list(SIX)[1:], next(iter(SIX))], strict=True))


@pytest.mark.parametrize(("before", "after"), RING)
def test_a_layout_changed_in_memory_goes_on_as_if_never_changed(
    before: str, after: str, undisturbed: list[float], tmp_path: Path
) -> None:
    def change() -> list[float]:
        trainee = Trainee(TINY, SIX[before])
        losses = trainee.train(2)
        trainee.reshard(SIX[after])
        return losses + trainee.train(2)

    assert furthest(gang(tmp_path, 4, change), undisturbed) < TOLERANCE


@pytest.mark.parametrize(("before", "after"), RING[1::2])
def test_a_checkpoint_is_read_in_another_layout(before: str, after: str, dropping: list[float], tmp_path: Path) -> None:
    folder = tmp_path / "saved"

    def change() -> list[float]:
        trainee = Trainee(DROPPING, SIX[before])
        losses = trainee.train(2)
        trainee.reload(SIX[after], folder)
        return losses + trainee.train(2)

    assert furthest(gang(tmp_path, 4, change), dropping[:4]) < TOLERANCE


def test_shares_need_not_be_even(tmp_path: Path) -> None:
    """Five layers on three stages, 259 rows and 21,000-odd elements on three replicas."""
    odd = ModelShape(layers=5, hidden=16, heads=4, kv_heads=2, ffn_hidden=44, vocab=259, seq_len=16)
    plan = [
        Configuration(Layout(3), 2, 12, Execution(sharding="optimizer")),
        Configuration(Layout(1, 1, 3), 2, 12),
        Configuration(Layout(3), 2, 12, Execution(sharding="parameters")),
        Configuration(Layout(3), 2, 12, Execution(sharding="optimizer")),
    ]

    def change() -> list[float]:
        trainee = Trainee(odd, plan[0])
        losses = trainee.train(1)
        for each in plan[1:]:
            trainee.reshard(each)
            losses += trainee.train(1)
        return losses

    expected = Trainee(odd, Configuration(Layout(1), 2, 12)).train(4)
    assert furthest(gang(tmp_path, 3, change), expected) < TOLERANCE


def test_any_reconfigurations_see_every_sample_once(tmp_path: Path) -> None:
    """Batch, micro-batch and layout change at random; each step's loss is that of one rank on the next samples."""
    choice = random.Random(7)
    layouts = [configured(2), configured(2, sharding="optimizer"), configured(pp=2), configured(pp=2, vpp=2)]
    plan = []
    for _ in range(12):
        base, small = choice.choice(layouts), choice.choice([1, 2])
        plan.append(Configuration(base.layout, small, choice.choice([8, 16]), base.execution))

    def follow(alone: bool) -> list[float]:
        trainee = Trainee(TINY, ALONE if alone else plan[0])
        losses = []
        for each in plan:
            now = trainee.parallel.configuration
            wanted = Configuration(now.layout, each.micro_batch, each.global_batch, now.execution)
            if not alone and (each.layout, each.execution) != (now.layout, now.execution):
                trainee.reshard(each)
            else:
                trainee.parallel.configure(wanted)
            losses += trainee.train(1)
        assert trainee.samples_seen == sum(each.global_batch for each in plan)
        return losses

    assert furthest(gang(tmp_path, 2, lambda: follow(alone=False)), follow(alone=True)) < TOLERANCE


def test_states_go_to_the_host_and_back(undisturbed: list[float], tmp_path: Path) -> None:
    """In memory to the host, by a checkpoint to other shares there, and in memory back."""
    folder = tmp_path / "saved"

    def change() -> list[float]:
        trainee = Trainee(TINY, configured(2, sharding="parameters"))
        losses = trainee.train(1)
        trainee.reshard(configured(2, sharding="optimizer", offload="host"))
        losses += trainee.train(1)
        trainee.reload(configured(pp=2, offload="host"), folder)
        losses += trainee.train(1)
        trainee.reshard(configured(2))
        return losses + trainee.train(1)

    assert furthest(gang(tmp_path, 2, change), undisturbed) < TOLERANCE


def test_few_micro_batches_and_single_chunks_are_trained_all_at_once(tmp_path: Path) -> None:
    expected = Trainee(TINY, ALONE).train(2)
    for configuration in (configured(pp=4, micro_batch=4), configured(2, pp=2, schedule="breadth_first")):
        found = gang(tmp_path, 4, lambda chosen=configuration: Trainee(TINY, chosen).train(2))
        assert furthest(found, expected) < TOLERANCE, configuration


def test_evaluation_is_the_same_in_every_layout(tmp_path: Path) -> None:
    expected = Trainee(TINY, ALONE).parallel.evaluate(tokens, 24)
    for name in ("dp4, ZeRO-3", "pp2 dp2, interleaved", "pp2 tp2, sequence parallel"):
        configuration = LAYOUTS[name]
        found = gang(tmp_path, 4, lambda chosen=configuration: Trainee(TINY, chosen).parallel.evaluate(tokens, 24))
        assert found == pytest.approx([expected] * 4, abs=TOLERANCE), name


def test_stages_share_layers_out_evenly() -> None:
    assert stage_layers(7, 3) == [range(0, 3), range(3, 5), range(5, 7)]


@pytest.mark.parametrize(
    "configuration",
    [
        configured(dp=3),
        configured(tp=0),
        configured(tp=4),
        configured(pp=8),
        configured(vpp=2),
        configured(pp=2, vpp=2, schedule="gpipe"),
        configured(offload="disk"),
        configured(offload="somewhere"),
        configured(sharding="everything"),
        Configuration(configured(dp=2).layout, 3, GLOBAL),
    ],
)
def test_what_cannot_be_trained_is_refused(configuration: Configuration) -> None:
    with pytest.raises(CannotRun):
        check(TINY, configuration, configuration.ranks())
