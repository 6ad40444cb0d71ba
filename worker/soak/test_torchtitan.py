"""torchtitan's debug model on CPUs (`titan.py`), followed by `headway.integrations.torchtitan`: every layout trains on
the same sequences with the same noise, and a job that is ended by SIGTERM goes on in another."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from agent import FakeAgent, resumed_from
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

pytest.importorskip("torchtitan", reason="torchtitan is not installed here (docs/adapters/torchtitan.md)")
import torchtitan
from titan import make_inputs
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader

from headway.integrations import torchtitan as followed
from headway.torch import Asked, UnknownLayout

LENGTH, STREAMS = 32, 4


OPTIONS = f"--streams {STREAMS} --noise-every 1"


def run(
    folder: Path, degrees: Degrees, steps: int, stops: Stops | None = None, options: str = OPTIONS, **more: str
) -> Ran:
    sizes = {
        "parallelism.data_parallel_shard_degree": degrees.dp,
        "parallelism.tensor_parallel_degree": degrees.tp,
        "parallelism.pipeline_parallel_degree": degrees.pp,
        "parallelism.pipeline_parallel_microbatch_size": MICRO,
        "training.local_batch_size": GLOBAL // degrees.dp if degrees.pp > 1 else MICRO,
        "training.global_batch_size": GLOBAL,
    }
    arguments = f"""{options} --module llama3 --config llama3_debugmodel
        --hf_assets_path {folder}/in/tokenizer --dataloader.dataset_path {folder}/in/documents
        --dump_folder {folder}/out --training.seq_len {LENGTH} --training.steps {steps} --training.disable_cuda_graphs
        --optimizer.implementation for-loop --training.mixed_precision_param float32""".split()
    return launch(folder, degrees, "titan.py", [*arguments, *(f"--{k}={v}" for k, v in sizes.items())], stops, **more)


def by_step(ran: Ran) -> dict[int, set[tuple[int, ...]]]:
    """The sequences of each step, which differ from one another."""
    steps: dict[int, set[tuple[int, ...]]] = {}
    for line in ran.seen:
        steps.setdefault(line["step"], set()).update(map(tuple, line["sequences"]))
    return steps


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ran]:
    """One rank, ended by SIGTERM."""
    folder = tmp_path_factory.mktemp("titan")
    make_inputs(folder / "in")
    return folder, run(folder, Degrees(), FOR_EVER, by_signal)


@pytest.fixture(scope="module")
def alone(begun: tuple[Path, Ran]) -> Ran:
    """What it goes on with on one rank."""
    folder, first = begun
    return run(folder, Degrees(), first.offer()["step"] + 2, **resumed_from(first.offer())).well()


def test_sigterm_saves_the_step_that_is_under_way(begun: tuple[Path, Ran]) -> None:
    _, first = begun
    offer, steps = first.offer(), by_step(first)
    assert offer["step"] == max(steps)
    assert offer["samples_seen"] == GLOBAL * offer["step"] == len(set.union(*steps.values()))


def test_the_noise_of_one_rank_is_that_of_each_samples_gradient(alone: Ran) -> None:
    for told in alone.of("step"):
        squares = [line["squares"] for line in alone.seen if line["step"] == told["step"]]
        exact(told, [own for own, _ in squares], squares[-1][1])


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_goes_on_with_the_same_sequences_loss_and_noise(
    name: str, begun: tuple[Path, Ran], alone: Ran
) -> None:
    folder, first = begun
    offer = first.offer()
    ran = run(folder, LAYOUTS[name], offer["step"] + 2, **resumed_from(offer))
    agree(name, ran, alone)
    assert by_step(ran) == by_step(alone)


def test_a_job_that_is_moved_twice_trains_on_every_sequence_once(begun: tuple[Path, Ran], alone: Ran) -> None:
    """By the module first, and then by the page's script."""
    folder, first = begun
    page = {"PAGE": page_script("torchtitan", folder)}
    parts = [first, run(folder, Degrees(dp=2, tp=2), FOR_EVER, by_signal, **resumed_from(first.offer()))]
    resumed = {**resumed_from(parts[-1].offer()), "HEADWAY_GENERATION": "3"}
    parts.append(run(folder, Degrees(pp=2), FOR_EVER, by_order, "", **resumed, **page))
    last = parts[-1].well().offer()
    steps = [by_step(part) for part in parts]
    seen = [set.union(*each.values()) for each in steps]
    assert len(set.union(*seen)) == sum(map(len, seen)) == last["samples_seen"]
    together = {step: sequences for each in steps for step, sequences in each.items()}
    assert {step: together[step] for step in by_step(alone)} == by_step(alone)


def test_another_batch_is_taken_between_steps_and_leaves_nothing_out(begun: tuple[Path, Ran]) -> None:
    folder, first = begun
    wider = {"layout": {"dp": 2, "tp": 1, "pp": 1}, "micro_batch": 2, "global_batch": 8}

    def widen(agent: FakeAgent, _: int) -> None:
        agent.say({"type": "configure", "revision": 0, "configuration": wider, "lr_scale": 1.0})

    offer = first.offer()
    ran = run(folder, Degrees(dp=2), offer["step"] + 12, widen, f"{OPTIONS} --batch live", **resumed_from(offer)).well()
    steps = by_step(ran)
    sizes = [len(steps[step]) for step in sorted(steps)]
    assert set(sizes) == {GLOBAL, 8} and sizes == sorted(sizes)
    last = ran.of("step")[-1]
    assert last["configuration"]["global_batch"] == 8
    assert last["samples_seen"] == offer["samples_seen"] + sum(sizes)
    assert len(set.union(*steps.values())) == sum(sizes), "each once"


def test_replicas_whose_data_end_finish_together_and_save_the_model(tmp_path: Path) -> None:
    make_inputs(tmp_path / "in", documents=4)
    ran = run(tmp_path, Degrees(dp=2), FOR_EVER, None, f"{OPTIONS} --dataloader.no-infinite").well()
    steps = by_step(ran)
    last = ran.of("step")[-1]
    assert last["step"] == max(steps) > 2 and last["samples_seen"] == GLOBAL * last["step"]
    assert all(len(sequences) == GLOBAL for sequences in steps.values())
    (saved,) = (tmp_path / "out" / "checkpoint").iterdir()
    assert saved.name == f"step-{last['step']}" and (saved / ".metadata").is_file()


def test_a_tied_head_under_a_loss_in_chunks_has_no_noise(tmp_path: Path) -> None:
    make_inputs(tmp_path / "in")
    ran = run(tmp_path, Degrees(dp=2), 3, TIED="1").well()
    assert len(ran.of("step")) == 3 and not any("noise" in each for each in ran.of("step"))
    assert "weight tying" in ran.log


@pytest.mark.parametrize(("stop", "validates"), [(True, False), (False, True)])
def test_no_validation_comes_between_a_stop_and_its_save(stop: bool, validates: bool) -> None:
    done: list[str] = []
    trainer = SimpleNamespace(
        step=4,
        train_step=lambda _: done.append("step"),
        forward_backward_step=None,
        should_continue_training=lambda: True,
        train=None,
        checkpointer=None,
        config=SimpleNamespace(validator=SimpleNamespace(enable=True), training=SimpleNamespace(steps=9)),
        validator=SimpleNamespace(should_validate=lambda _: True),
    )
    nowhere = SimpleNamespace(checkpoint_dir=None, resume_path=None)
    following = followed._Following(trainer, nowhere, 1, live=False, scale_learning_rate=False)
    following._reporter = SimpleNamespace(step=4, save_together=lambda _: done.append("save"))
    following._asked = Asked(save=True, stop=stop)
    following.attach()
    trainer.train_step(None)
    assert done == ["step", "save"]
    assert trainer.validator.should_validate(4) is validates
    assert trainer.should_continue_training() is not stop


def test_another_version_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchtitan, "__version__", "0.4.0")
    with pytest.raises(RuntimeError, match="follows torchtitan 0.3.0, and this is 0.4.0: install that one, or run it"):
        followed.follow()


def test_nothing_is_touched_outside_of_a_job() -> None:
    build = followed.Trainer.__init__
    followed.follow()
    assert followed.Trainer.__init__ is build


@pytest.mark.parametrize(
    ("section", "value", "what_to_do"),
    [
        ("training.disable_cuda_graphs", False, "give --training.disable_cuda_graphs"),
        ("checkpoint.load_only", True, "leave out --checkpoint.load_only"),
        ("checkpoint.create_seed_checkpoint", True, "made without Headway"),
        ("parallelism.pipeline_parallel_degree", 2, "a live batch needs pipeline_parallel_degree 1"),
        ("parallelism.context_parallel_degree", 2, "context_parallel_degree cannot be measured"),
        ("parallelism.expert_parallel_degree", 2, "expert_parallel_degree cannot be measured"),
    ],
)
def test_what_cannot_be_followed_is_named(section: str, value: object, what_to_do: str) -> None:
    from torchtitan.models.llama3.config_registry import llama3_debugmodel

    config = llama3_debugmodel()
    config.training.disable_cuda_graphs = True
    elsewhere = SimpleNamespace(checkpoint_dir=None, resume_path=None)
    following = followed._Following(None, elsewhere, 1, live=True, scale_learning_rate=True)
    following.look_at(config)
    part, name = section.split(".")
    setattr(getattr(config, part), name, value)
    with pytest.raises((ValueError, UnknownLayout), match=what_to_do):
        following.look_at(config)


def test_loaders_with_workers_are_refused() -> None:
    config = HuggingFaceTextDataLoader.Config(num_workers=2)
    with pytest.raises(ValueError, match="give --dataloader.num_workers 0"):
        followed._Loader(config, 4)


def test_fewer_documents_than_streams_are_refused() -> None:
    loader = SimpleNamespace(dataset=SimpleNamespace(_original_data=[]))
    with pytest.raises(ValueError, match="give fewer --streams"):
        followed._one(loader)
