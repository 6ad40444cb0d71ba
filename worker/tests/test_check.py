"""`python -m headway.check` on scripts that do well and badly: the whole page, # for what differs from run to run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from headway.check.__main__ import main
from headway.check.findings import Claims, Verdict, judge
from headway.check.launch import Command, Order, fill, variables
from headway.check.line import suggest
from headway.check.trial import Seen
from headway.message import Configuration, Execution, Layout, Shares
from headway.watch import Reader, Sizes

EXAMPLES = Path(__file__).parents[2] / "examples" / "training"

TRAIN = """
import os, sys, time
from pathlib import Path
import headway

launched = headway.init(batch=BATCH, layout="restart")
rank, step, seen = launched.rank, launched.resume_step, launched.samples_seen
batch = launched.configuration
if launched.resume_path and LOADS:
    Path(launched.resume_path, "state").read_text()
met = Path(launched.checkpoint_dir).parent  # ranks begin together, as a process group has it
(met / f"{launched.generation}-{rank}").touch()
while len(list(met.glob(f"{launched.generation}-?"))) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.01)
while True:
    time.sleep(0.005)
    step, seen = step + 1, seen + batch.global_batch
    noise = headway.NoiseSample(2.0, 1.0, batch.micro_batch, batch.global_batch)
    if rank == 0:
        numbers = {"step": step, "samples_seen": seen, "tokens": 8, "duration_s": 0.1, "loss": 2.5}
        headway.report(**numbers, noise=noise, configuration=batch)
    while LISTENS and (asked := headway.poll()) is not None:
        match asked:
            case headway.Configure(configuration=wanted):
                batch = wanted if FOLLOWS else batch
            case headway.Checkpoint() | headway.Stop(checkpoint=True) if rank == 0:
                with headway.saving(step=step, samples_seen=seen) as directory:
                    (directory / "state").write_text(str(step))
        if isinstance(asked, headway.Stop):
            headway.stopped(step=step, samples_seen=seen)
            headway.close()
            sys.exit(asked.exit_code)
"""
DEEDS = {"BATCH": '"live"', "LOADS": "True", "FOLLOWS": "True", "LISTENS": "True"}


def page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], script: str, *options: str, arguments: tuple[str, ...] = ()
) -> tuple[int, str]:
    """Exit code and what is printed."""
    path = tmp_path / "train.py"
    path.write_text(script)
    code = main([*options, str(path), *arguments])
    shown = capsys.readouterr().out.replace(f"{tmp_path}/", "")
    masks = {
        r"\d+\.\d s\b": "# s",
        r"\bstep \d+": "step #",
        r"\d+ in \d+ messages": "# in # messages",
        r"\d+ of \d+ messages": "# of # messages",
        r"\d+ sequences in": "# sequences in",
    }
    for pattern, mask in masks.items():
        shown = re.sub(pattern, mask, shown)
    return code, shown


def trained(**deeds: str) -> str:
    script = TRAIN
    for name, deed in {**DEEDS, **deeds}.items():
        script = script.replace(name, deed)
    return script


def test_a_script_that_does_all_that_it_claims(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert page(tmp_path, capsys, trained()) == (
        0,
        """train.py on 1 rank, then on 2 ranks

  steps   ok     reports steps of 32 sequences, loss 2.5: # in # messages
  noise   ok     the gradient noise is in # of # messages
  batch   ok     trains 32 sequences a step from step # on, as asked
  save    ok     step #, 0.0 MB, whole # s after it was told to
  stop    ok     saved step # and exited 0 # s after the order (grace 30 s)
  resume  ok     goes on at step # from its checkpoint, # sequences in, on 2 ranks
  layout  ok     by a restart: trained on 1 and 2 ranks
  signal  ok     exited 143 and saved step # # s after SIGTERM alone

All that is claimed works.
""",
    )


def test_a_script_that_never_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = "for step in (10, 20, 30):\n    print(f'step {step}/30 | loss {9 / step:.2f} | 0.5 s/it')"
    assert page(tmp_path, capsys, script) == (
        1,
        r"""train.py on 1 rank

  steps   FAILS  says nothing to Headway, and prints its steps: step #/30 | loss 0.90 | # s/it

steps:
    python -m headway.check --line 'step *(?P<step>\d+).*loss *(?P<loss>[-+\d.eE]+).*?(?P<seconds>[\d.]+) *s/it' ...
    or, in the script:
    import headway.torch
    reporter = headway.torch.StepReporter(model, micro_batch=8, sequence_length=1024)  # once it is wrapped
    asked = reporter.end_step(loss, accumulation)  # after the last backward, before clipping

Does not work: steps.
""",
    )


def test_a_script_that_ignores_saves_and_stops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = trained(LISTENS="False", BATCH='"restart"')
    assert page(tmp_path, capsys, script, "--grace", "0.5", "--ranks", "1") == (
        1,
        """train.py on 1 rank, then on 1 rank

  steps   ok     reports steps of 16 sequences, loss 2.5: # in # messages
  noise   ok     the gradient noise is in # of # messages
  batch   -      not asked to change while it runs: the script says restart
  save    FAILS  was told to save, and offered no checkpoint within # s
  stop    FAILS  was told to stop, and was killed after the grace of # s
  resume  ?      there was no whole checkpoint to resume from
  layout  ?      by a restart, which takes another number of ranks to try
  signal  FAILS  ignored SIGTERM, and was killed after the grace of # s

batch:
    reporter = headway.torch.StepReporter(model, ..., batch="live")
    if asked.configure is not None:
        wanted = asked.configure.configuration
        micro_batch, global_batch = wanted.micro_batch, wanted.global_batch

save:
    if asked.save and rank == 0:
        reporter.save(lambda directory: torch.save(state, directory / "state.pt"))

stop:
    if asked.stop:
        sys.exit(reporter.stopped())

resume:
    if asked.save and rank == 0:
        reporter.save(lambda directory: torch.save(state, directory / "state.pt"))

signal:
    if asked.stop:
        sys.exit(reporter.stopped())

Does not work: save, stop, signal.
""",
    )


def test_a_script_that_crashes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert page(tmp_path, capsys, "print('so far so good')\nimport no_such_library.of_mine") == (
        1,
        """train.py on 1 rank

  steps   FAILS  ended with exit code 1 before its first step

steps:
    pip install no_such_library    # it is not installed here
    | so far so good
    | Traceback (most recent call last):
    |   File "train.py", line 2, in <module>
    |     import no_such_library.of_mine
    | ModuleNotFoundError: No module named 'no_such_library'

Does not work: steps.
""",
    )


def test_a_script_that_crashes_when_it_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = page(tmp_path, capsys, trained(FOLLOWS="no_such_name"))
    assert code == 1
    assert (
        "save    FAILS  ended with exit code 1 before it could be told to save: NameError: name 'no_such_name'" in shown
    )


def test_a_script_that_counts_on_with_a_new_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = page(tmp_path, capsys, trained(LOADS="False"))
    assert code == 1
    assert "counts on from step #, but has opened no file of the checkpoint: it began with a new model" in shown
    assert shown.endswith("Does not work: resume.\n")


def test_a_script_that_joins_and_reports_nothing(tmp_path: Path) -> None:
    configuration = Configuration(Layout(1), 4, 16)
    order = Order(Command(("true",)), configuration, 1, tmp_path / "agent.sock", tmp_path, 30.0)
    (found,) = judge([Seen(order, 60.0, hello={"type": "hello"})], Claims())
    words = "has joined (headway.init), and reports no step within 60 s (--patience)"
    assert (found.verdict, found.words) == (Verdict.FAILS, words)


def test_a_batch_that_is_claimed_live_and_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = page(tmp_path, capsys, trained(FOLLOWS="False"), "--grace", "6", "--ranks", "1")
    assert code == 1
    assert "batch   FAILS  was asked for 32 sequences a step, and reports 16 at step # still" in shown
    assert shown.endswith("Does not work: batch.\n")


def test_an_untouched_script_that_keeps_its_own_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = """
import pathlib, signal, sys, time
kept = pathlib.Path(sys.argv[1])
step = int(kept.read_text()) if kept.exists() else 0
signal.signal(signal.SIGTERM, lambda *_: (kept.write_text(str(step)), sys.exit(0)))
while True:
    time.sleep(0.01)
    step += 1
    print(f"step {step}, loss 0.125", flush=True)
"""
    options = ("--line", r"step (?P<step>\d+), loss (?P<loss>\S+)", "--resumes", "--ranks", "1")
    assert page(tmp_path, capsys, script, *options, arguments=("{checkpoint_dir}.step",)) == (
        0,
        """train.py on 1 rank, then on 1 rank

  steps   ok     reports steps of 16 sequences, loss 0.125: # in # messages
  noise   -      none: from output nobody can tell it, so its batch is not tuned
  batch   -      not asked to change while it runs: the script says never
  save    -      keeps its own checkpoints
  stop    ok     exited 0 # s after the order (grace 30 s)
  resume  ok     had reached step #; started again on 1 rank it was next heard of at step #
  layout  ?      by a restart, which takes another number of ranks to try

All that is claimed works.
""",
    )


def test_the_same_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = page(tmp_path, capsys, trained(), "-o", "json", "--ranks", "1")
    told = json.loads(shown)
    assert code == 0 and told["works"] and told["ranks"] == [1, 1]
    assert told["capabilities"] == {"batch": "live", "layout": "restart"}
    assert {each["name"]: each["verdict"] for each in told["findings"]} == {
        **dict.fromkeys(["steps", "noise", "batch", "save", "stop", "resume", "signal"], "works"),
        "layout": "untried",
    }


def test_a_placeholder_that_nobody_fills_in_cannot_be_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text("")
    assert main([str(tmp_path / "train.py"), "--resume={resume}"]) == 2
    assert "{resume} is no placeholder" in capsys.readouterr().err


def test_the_shares_of_replicas_are_told_in_both_ways(tmp_path: Path) -> None:
    configuration = Configuration(Layout(3), 4, 16, Execution(shares=Shares(1, 2, 1)))
    order = Order(Command(("train", "{shares}")), configuration, 1, tmp_path / "agent.sock", tmp_path, 30.0)
    assert fill(order, 29500) == ["train", "1,1,2"]
    assert variables(order, 29500, 0)["HEADWAY_SHARES"] == "1,1,2"


def test_uneven_shares_are_tried_at_the_second_launch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = page(tmp_path, capsys, trained(BATCH='"restart"'), "--shares", "1,2")
    assert code == 0 and "shares  ok     trained with shares 1,2 of 24 sequences a step" in shown


def test_uneven_shares_that_are_not_followed_fail(tmp_path: Path) -> None:
    configuration = Configuration(Layout(2), 4, 24, Execution(shares=Shares(1, 2, 1)))
    order = Order(Command(("true",)), configuration, 2, tmp_path / "agent.sock", tmp_path, 30.0)
    step = {"step": 1, "steps": 1, "samples_seen": 16, "configuration": {"micro_batch": 4, "global_batch": 16}}
    for steps, words in ([step], "it reports 16"), ([], "it reported no step"):
        seen = Seen(order, 60.0, steps=steps)
        (found,) = [each for each in judge([Seen(order, 60.0, steps=[step]), seen], Claims()) if each.name == "shares"]
        assert found.verdict is Verdict.FAILS
        assert found.words == f"launched with shares 1,2 of 24 sequences a step, {words}"


def test_the_five_lines_do_all_that_they_claim(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    told = ["--micro-batch={micro_batch}", "--global-batch={global_batch_sequences}", "--resume={resume_path}"]
    told.append("--steps=1000000")  # a fast machine does the usual 400 before the last order comes
    assert main([str(EXAMPLES / "five_lines.py"), *told]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("output", "steps"),
    [
        ("step 20/400 | loss 2.5221 | 0.0207 s/it\nstep 40/400 | loss 2.1 | 0.2 s/it\n", [40]),
        (
            " iteration       10/   50000 | lm loss: 8.1E+00 |\n iteration     1020/   50000 | lm loss: 7.9E+00 |\n",
            [1020],
        ),
        ("\x1b[31mstep: 10  \x1b[32mloss:  4.8\n\x1b[31mstep: 20  \x1b[32mloss:  4.2\n", [20]),
        ("  3%|x | 10/300 [00:01<00:20, 9.8it/s]\r  6%|x | 20/300 [00:02<00:20, 9.8it/s]\r", [20]),
        ("{'loss': 3.2, 'step': 5}\n{'loss': 3.1, 'step': 10}\n", [10]),
        ("Step 1,000: loss=3.5\nevaluated\nStep 2,000: loss=3.25\n", [2000]),
    ],
)
def test_a_pattern_is_found_in_output_that_counts_steps(output: str, steps: list[int]) -> None:
    found = suggest(output)
    assert found is not None and found.count == 2
    reader = Reader(re.compile(found.pattern), Sizes(8, None, 16), samples_seen=0, started=0.0)
    lines = output.replace("\r", "\n").split("\n")
    told = [report for at, line in enumerate(lines) if (report := reader.read(line, float(at)))]
    assert [report["step"] for report in told][-1:] == steps


@pytest.mark.parametrize("output", ["", "loading step 1\nnothing else\n", "epoch 1\nepoch 2\n", "step 2\nstep 1\n"])
def test_no_pattern_is_made_up(output: str) -> None:
    assert suggest(output) is None
