"""What the probes make of their measurements, without measuring any."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import pytest

from headway.flops import ModelShape
from headway.message import Configuration, Execution, Layout
from headway.noise import NoiseScale
from headway.probe.critical import (
    Branch,
    Judgement,
    Noise,
    factors,
    judge,
    learning_rate_factor,
    scatter,
    smoothed,
    table,
    to_json,
    usable_noise,
)
from headway.probe.rows import Outcome, Setting, Timed, to_csv, varied
from headway.probe.rows import table as outcome_table
from headway.probe.rows import to_json as outcomes_to_json

SEQ_LEN = 100
PHI = Noise(6400.0, 5200.0, 7900.0)


def judged(losses: list[float], noise: Noise = PHI, scattered: float = 0.0) -> Judgement:
    """Branches at 1, 2, 4, … times 16 sequences with these smoothed losses."""
    branches = [
        Branch(1 << power, 16 << power, 64 >> power, 1e-3, loss, scattered, None) for power, loss in enumerate(losses)
    ]
    return judge(branches, noise, 0.01, SEQ_LEN)


def test_kappa_lies_between_the_largest_accepted_and_the_smallest_refused_batch() -> None:
    found = judged([2.0, 1.98, 2.0099, 2.02, 2.3])
    assert found.accepted == (1, 2, 4) and (found.largest_accepted, found.smallest_refused) == (4, 8)
    assert found.critical_batch_tokens == (6400.0, 12800.0)
    assert found.kappa == pytest.approx(1.0) and found.kappa_bracket == pytest.approx((1.0, 2.0))
    assert found.line() == "kappa: 1  # between 1 and 2" and not found.warnings


def test_the_bar_itself_is_accepted() -> None:
    assert judged([0.5, 0.5 + 0.01]).smallest_refused is None


def test_nothing_accepted_bounds_kappa_from_above_alone() -> None:
    found = judged([2.0, 2.1, 2.2])
    assert found.critical_batch_tokens == (None, 3200.0) and found.kappa_bracket == (None, 0.5)
    assert found.line() == "kappa: 0.25  # an upper bound is 0.5: no larger batch was accepted"
    assert "below 3200" in found.warnings[0]


def test_everything_accepted_bounds_kappa_from_below_alone() -> None:
    found = judged([2.0, 1.9, 1.9])
    assert found.critical_batch_tokens == (6400.0, None) and found.kappa_bracket == (1.0, None)
    assert "at least" in found.line() and "at least 4 times" in found.warnings[0]


def test_a_batch_accepted_above_a_refused_one_does_not_count() -> None:
    found = judged([2.0, 2.0, 2.5, 2.0])
    assert (found.largest_accepted, found.smallest_refused) == (2, 4)
    assert "k = 8 was accepted above k = 4" in found.warnings[0]


def test_a_loss_nearer_to_the_bar_than_it_scatters_is_said_to_be_in_doubt() -> None:
    assert "k = 2: closer to the bar" in judged([2.0, 2.0, 2.5], scattered=0.02).warnings[0]


def test_the_loss_held_out_may_be_the_judge() -> None:
    branches = [
        Branch(1, 16, 64, 1e-3, 2.0, 0.5, 2.0),
        Branch(2, 32, 32, 1e-3, 2.5, 0.5, 2.0),
        Branch(4, 64, 16, 1e-3, 1.5, 0.5, 2.1),
        Branch(8, 128, 8, 1e-3, math.inf, None, None),
    ]
    found = judge(branches, PHI, 0.01, SEQ_LEN, held_out=True)
    assert found.accepted == (1, 2) and found.smallest_refused == 4 and not found.warnings


def test_a_branch_that_diverged_is_refused() -> None:
    found = judged([2.0, 2.0, math.inf])
    assert found.smallest_refused == 4 and found.largest_accepted == 2
    branches = [Branch.of(1, 16, 1e-3, [2.0, 2.0], 2.0), Branch.of(2, 32, 1e-3, [2.0, math.inf], None)]
    found = judge(branches, PHI, 0.01, SEQ_LEN)
    assert "diverged" in table(branches, found)
    assert to_json(branches, PHI, found)["branches"][1]["loss"] is None


@pytest.mark.parametrize(
    ("estimate", "samples", "why"),
    [
        (None, 0, "two small batches"),
        (NoiseScale(5.0, 1.0, 3.0, 8.0), 4, "only 4 steps"),
        (None, 9, "drowned"),
        (NoiseScale(5.0, 6.0, 1.5, math.inf), 9, "only from below: 150 tokens"),
    ],
)
def test_without_a_usable_noise_scale_there_is_no_kappa(estimate: NoiseScale | None, samples: int, why: str) -> None:
    noise = usable_noise(estimate, samples, SEQ_LEN)
    assert noise.tokens is None and noise.why_not is not None and why in noise.why_not
    found = judged([2.0, 2.0, 2.5], noise)
    assert found.kappa is None and found.kappa_bracket == (None, None)
    assert found.critical_batch_tokens == (3200.0, 6400.0), "the critical batch is known without it"
    assert found.line().startswith("#") and any(why in warning for warning in found.warnings)


def test_a_noise_scale_is_told_in_tokens() -> None:
    assert usable_noise(NoiseScale(5.0, 1.0, 3.0, 8.0), 9, SEQ_LEN) == Noise(500.0, 300.0, 800.0)


def test_batches_double_and_learning_rates_follow_their_rule() -> None:
    assert factors(16) == [1, 2, 4, 8, 16] and factors(7) == [1, 2, 4]
    assert [learning_rate_factor(rule, 4) for rule in ("none", "sqrt", "linear")] == [1.0, 2.0, 4.0]


def test_losses_are_smoothed_by_halves() -> None:
    assert smoothed([4.0, 2.0, 1.0]) == 2.0
    assert smoothed([4.0, math.inf]) == smoothed([]) == math.inf


def test_scatter_is_that_of_the_smoothed_loss_and_hardly_feels_a_trend() -> None:
    up_and_down = [2.0 + (0.1 if step % 2 else -0.1) for step in range(100)]
    assert scatter(up_and_down) == pytest.approx(math.sqrt(0.2**2 / 2 / 3))
    assert (scatter([3.0 - 0.001 * step for step in range(100)]) or 0.0) < 5e-4
    assert scatter([1.0, 2.0]) is None


SHAPE = ModelShape(layers=4, hidden=16, heads=4, kv_heads=2, ffn_hidden=44, vocab=256, seq_len=SEQ_LEN)
SETTING = Setting(SHAPE, "tiny", "bf16", "H200-141G", 8)
BASE = Configuration(Layout(8), 2, 16)
OUTCOMES = [
    Outcome(BASE, "ok", Timed((0.1, 0.3, 0.2), 3 << 30)),
    Outcome(varied(BASE, "tp=2,sharding=parameters,sequence_parallel=true", 8), "oom", why="out of memory"),
    Outcome(varied(BASE, "tp=3", 8), "refused", why="not for 8 ranks"),
]


def test_rows_are_what_the_estimator_reads() -> None:
    ran, full = csv.DictReader(io.StringIO(to_csv(SETTING, OUTCOMES)))
    wanted = {
        "gpu": "H200-141G",
        "gpus_per_node": "8",
        "num_gpus": "8",
        "dp": "8",
        "micro_batch": "2",
        "grad_accum": "1",
        "global_batch": "16",
        "dp_mode": "ddp",
        "recompute": "none",
        "step_time_s": "0.2",
        "tokens_per_s_per_gpu": "1000",
        "peak_mem_gb": "3.0000",
        "status": "ok",
        "layers": "4",
        "ffn_hidden": "44",
        "gated": "1",
        "tied": "0",
    }
    assert {column: ran[column] for column in wanted} == wanted
    assert (full["status"], full["step_time_s"], full["tp"], full["dp"]) == ("oom", "", "2", "4")
    assert (full["dp_mode"], full["seq_par"]) == ("fsdp-zero3", "1")
    shared = Outcome(varied(BASE, "cp=2,sharding=optimizer,offload=host", 8), "ok", Timed((0.2,), None))
    (row,) = csv.DictReader(io.StringIO(to_csv(SETTING, [shared])))
    assert (row["num_gpus"], row["dp"], row["cp"], row["dp_mode"]) == ("8", "4", "2", "zero1-offload")
    assert (row["experts"], row["ep"]) == ("0", "1")
    spread = Setting(replace(SHAPE, experts=8, active_experts=2), "tiny", "bf16", "H200-141G", 8)
    (row,) = csv.DictReader(io.StringIO(to_csv(spread, [Outcome(varied(BASE, "ep=4", 8), "ok", Timed((0.2,), None))])))
    assert (row["experts"], row["active_experts"], row["ep"], row["dp"]) == ("8", "2", "4", "8")


def test_what_did_not_run_is_told_with_its_reason() -> None:
    shown = outcome_table(SETTING, OUTCOMES)
    assert "refused: not for 8 ranks" in shown and "oom: out of memory" in shown and "200.0" in shown
    told = outcomes_to_json(SETTING, OUTCOMES)
    assert [each["status"] for each in told] == ["ok", "oom", "refused"]
    assert told[0]["step_seconds_median"] == 0.2 and told[0]["tokens_per_second"] == pytest.approx(8000.0)


def test_a_configuration_is_named_by_what_differs() -> None:
    changed = varied(BASE, "tp=2,pp=2,vpp=2,micro_batch=1,global_batch=32,schedule=breadth_first,recompute=full", 8)
    assert changed == Configuration(
        Layout(2, 2, 2), 1, 32, Execution(vpp=2, schedule="breadth_first", recompute="full")
    )
    assert varied(BASE, "", 8) == BASE
    assert varied(BASE, "cp=2,offload=host", 8) == Configuration(Layout(4), 2, 16, Execution(cp=2, offload="host"))
    for nonsense in ("tp", "dp=2", "micro_batch=two"):
        with pytest.raises(ValueError):
            varied(BASE, nonsense, 8)
