"""What came of timing configurations: as a table, as JSON, and as the rows of a measurement file that
`headway estimate --compare` and `headway model fit` read. Pure."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from headway.flops import ModelShape
from headway.message import Configuration, Layout

_GIB = float(1 << 30)
_SHARING = {"none": "ddp", "optimizer": "zero1", "gradients": "zero2", "parameters": "fsdp-zero3"}
_NUMBERS = ("tp", "pp", "cp", "ep", "vpp", "micro_batch", "global_batch")
_WORDS = ("schedule", "sharding", "recompute", "offload")


@dataclass(frozen=True)
class Timed:
    """Steps that were timed."""

    seconds: tuple[float, ...]
    """Of each step, on its slowest rank."""
    memory_peak: int | None
    """Bytes the allocator reserved on the fullest rank; None on CPUs."""

    def quartiles(self) -> tuple[float, float, float]:
        """A quarter of the steps were faster than the first, half than the second, three quarters than the third."""
        if len(self.seconds) == 1:
            return (self.seconds[0],) * 3
        low, middle, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return low, middle, high


@dataclass(frozen=True)
class Outcome:
    configuration: Configuration
    status: Literal["ok", "oom", "refused", "failed"]
    timed: Timed | None = None
    """Of a configuration that is ok."""
    why: str = ""
    """Of one that is not."""


@dataclass(frozen=True)
class Setting:
    """What all configurations of a probe share."""

    shape: ModelShape
    name: str
    precision: str
    gpu_type: str
    gpus_per_node: int


def varied(base: Configuration, changes: str, world: int) -> Configuration:
    """A configuration like `base` but for "tp=2,micro_batch=8,recompute=full"; data parallelism takes the ranks left.
    Raises ValueError for words that mean nothing."""
    told: dict[str, str] = {}
    for change in filter(None, changes.split(",")):
        word, equals, value = change.partition("=")
        if not equals or word not in (*_NUMBERS, *_WORDS, "sequence_parallel"):
            known = ", ".join((*_NUMBERS, *_WORDS, "sequence_parallel"))
            raise ValueError(f"{change!r} is not one of {known} = value")
        told[word] = value
    numbers = {word: int(value) for word, value in told.items() if word in _NUMBERS}
    tp, pp = numbers.get("tp", base.layout.tp), numbers.get("pp", base.layout.pp)
    cp = numbers.get("cp", base.execution.cp)
    execution: dict[str, Any] = {word: told[word] for word in _WORDS if word in told}
    execution |= {word: numbers[word] for word in ("cp", "ep", "vpp") if word in numbers}
    if "sequence_parallel" in told:
        execution["sequence_parallel"] = told["sequence_parallel"].lower() in ("true", "1")
    return Configuration(
        Layout(max(1, world // max(1, tp * pp * cp)), tp, pp),
        numbers.get("micro_batch", base.micro_batch),
        numbers.get("global_batch", base.global_batch),
        replace(base.execution, **execution),
    )


def tokens_per_second(setting: Setting, outcome: Outcome) -> float | None:
    """Of all ranks together, at the median step."""
    if outcome.timed is None:
        return None
    return outcome.configuration.global_batch * setting.shape.seq_len / outcome.timed.quartiles()[1]


def table(setting: Setting, outcomes: Iterable[Outcome]) -> str:
    lines = [" dp  tp  pp  micro  batch   step ms   (quartiles)   tokens/s  peak GiB  how"]
    for each in outcomes:
        one, layout = each.configuration, each.configuration.layout
        shape = f"{layout.dp:3d} {layout.tp:3d} {layout.pp:3d} {one.micro_batch:6d} {one.global_batch:6d}"
        how = _how(one)
        if each.timed is None:
            lines.append(f"{shape}   {each.status}: {each.why}  {how}".rstrip())
            continue
        low, middle, high = (1e3 * value for value in each.timed.quartiles())
        peak = "-" if each.timed.memory_peak is None else f"{each.timed.memory_peak / _GIB:.2f}"
        spread = f"{low:.1f}–{high:.1f}"
        rate = tokens_per_second(setting, each)
        lines.append(f"{shape} {middle:9.1f} {spread:>15} {rate:10.0f} {peak:>9}  {how}".rstrip())
    return "\n".join(lines)


def to_json(setting: Setting, outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    return [
        {
            "configuration": each.configuration.to_json(),
            "gpu_type": setting.gpu_type,
            "status": each.status,
            "why": each.why or None,
            "step_seconds": list(each.timed.seconds) if each.timed else None,
            "step_seconds_median": each.timed.quartiles()[1] if each.timed else None,
            "tokens_per_second": tokens_per_second(setting, each),
            "memory_peak": each.timed.memory_peak if each.timed else None,
        }
        for each in outcomes
    ]


def to_csv(setting: Setting, outcomes: Iterable[Outcome]) -> str:
    """Only what ran or ran out of memory: the rest says nothing of the hardware. No column says uneven shares."""
    told = [each for each in outcomes if each.status in ("ok", "oom") and each.configuration.accumulation() is not None]
    rows = [_row(setting, number, each) for number, each in enumerate(told)]
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


_COLUMNS: Sequence[str] = (
    "source,model,params_b,layers,hidden,heads,kv_heads,ffn_hidden,gated,experts,active_experts,vocab,tied,seq_len,"
    "gpu,gpus_per_node,num_gpus,tp,pp,cp,ep,dp,vpp,schedule,micro_batch,grad_accum,global_batch,dp_mode,seq_par,"
    "recompute,flash,precision,framework,step_time_s,tokens_per_s_per_gpu,peak_mem_gb,status,measured,row_id"
).split(",")


def _row(setting: Setting, number: int, outcome: Outcome) -> dict[str, object]:
    shape, one = setting.shape, outcome.configuration
    layout, execution = one.layout, one.execution
    row: dict[str, object] = {
        "source": "headway-probe",
        "model": setting.name,
        "params_b": shape.parameters() / 1e9,
        "layers": shape.layers,
        "hidden": shape.hidden,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "ffn_hidden": shape.ffn_hidden,
        "gated": int(shape.gated),
        "experts": shape.experts,
        "active_experts": shape.active_experts,
        "vocab": shape.vocab,
        "tied": int(shape.tied),
        "seq_len": shape.seq_len,
        "gpu": setting.gpu_type,
        "gpus_per_node": setting.gpus_per_node,
        "num_gpus": one.ranks(),
        "tp": layout.tp,
        "pp": layout.pp,
        "cp": execution.cp,
        "ep": execution.ep,
        "dp": layout.dp,
        "vpp": execution.vpp,
        "schedule": execution.schedule,
        "micro_batch": one.micro_batch,
        "grad_accum": one.accumulation(),
        "global_batch": one.global_batch,
        "dp_mode": _SHARING[execution.sharding] + ("" if execution.offload == "none" else "-offload"),
        "seq_par": int(execution.sequence_parallel),
        "recompute": execution.recompute,
        "flash": 1,
        "precision": setting.precision,
        "framework": "headway",
        "status": outcome.status,
        "row_id": f"p{number:03d}",
    }
    rate = tokens_per_second(setting, outcome)
    if outcome.timed is not None and rate is not None:
        peak = outcome.timed.memory_peak
        row |= {
            "step_time_s": f"{outcome.timed.quartiles()[1]:.6g}",
            "tokens_per_s_per_gpu": f"{rate / one.ranks():.6g}",
            "peak_mem_gb": "" if peak is None else f"{peak / _GIB:.4f}",
            "measured": "step_time" if peak is None else "step_time, mem",
        }
    return row


def _how(configuration: Configuration) -> str:
    """What is not the plain way, in the words of the job's specification."""
    execution = configuration.execution
    words = [f"vpp {execution.vpp}"] if execution.vpp > 1 else []
    words += [execution.schedule] if configuration.layout.pp > 1 else []
    words += [f"sharding {execution.sharding}"] if execution.sharding != "none" else []
    words += [f"recompute {execution.recompute}"] if execution.recompute != "none" else []
    words += ["sequence parallel"] if execution.sequence_parallel else []
    words += [f"shares {','.join(map(str, configuration.shares()))}"] if configuration.accumulation() is None else []
    return ", ".join(words)
