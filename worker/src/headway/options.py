"""What the reference trainer and its probes are told on the command line about model, recipe and layout. Batches and
layout given here serve only outside Headway. Imports no torch."""

from __future__ import annotations

import argparse

from headway.environment import Environment
from headway.flops import ModelShape
from headway.learning_rate import DECAYS, RateSchedule
from headway.message import Configuration, Execution, Layout, Shares


def add_training(parser: argparse.ArgumentParser) -> None:
    """The options that say what is trained, and how."""
    model = parser.add_argument_group("model")
    for name, size in {
        "layers": 4,
        "hidden": 64,
        "heads": 4,
        "kv-heads": 2,
        "ffn": 176,
        "vocab": 256,
        "seq-len": 64,
    }.items():
        model.add_argument(f"--{name}", type=int, default=size)
    model.add_argument("--experts", type=int, default=0, help="of each layer, each as wide as --ffn")
    model.add_argument("--active-experts", type=int, default=2, help="those that a token passes")
    model.add_argument("--tied", action="store_true", help="output projection shares the embedding")
    recipe = parser.add_argument_group("recipe")
    recipe.add_argument("--lr", type=float, default=3e-3, help="learning rate at the reference batch")
    recipe.add_argument("--warmup-samples", type=int, default=320, help="sequences in which it rises to that")
    recipe.add_argument("--decay", choices=DECAYS, default="none", help="how the learning rate falls after that")
    recipe.add_argument("--decay-samples", type=int, help="sequences seen when it has fallen to its floor")
    recipe.add_argument("--lr-floor", type=float, default=0.1, help="what is then left of it, as a share")
    recipe.add_argument("--weight-decay", type=float, default=0.1)
    recipe.add_argument("--clip", type=float, default=1.0, help="largest gradient norm")
    recipe.add_argument("--dropout", type=float, default=0.0, help="share of embeddings and residual branches dropped")
    recipe.add_argument("--seed", type=int, default=0)
    recipe.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    recipe.add_argument("--corpus", help="directory of text; default: the sources of Python's standard library")
    recipe.add_argument(
        "--token-bytes",
        type=int,
        choices=[1, 2, 4],
        default=1,
        help="2 or 4: --corpus is a file of unsigned tokens of this size",
    )
    recipe.add_argument("--micro-batch", type=int, default=4)
    recipe.add_argument("--global-batch", type=int, default=16)
    recipe.add_argument(
        "--noise",
        choices=["raw", "adam"],
        default="raw",
        help="the gradients whose noise is measured and reported: as they are, or as Adam scales them too",
    )
    recipe.add_argument("--noise-every", type=int, default=4, help="the noise is measured at each so manieth step")
    layout = parser.add_argument_group("layout", "only outside Headway; data parallelism takes the ranks left")
    layout.add_argument("--tp", type=int, default=1)
    layout.add_argument("--pp", type=int, default=1)
    layout.add_argument("--cp", type=int, default=1, help="ranks that share sequences")
    layout.add_argument("--ep", type=int, default=1, help="replicas over which experts are spread")
    layout.add_argument("--vpp", type=int, default=1, help="chunks of layers per stage")
    layout.add_argument("--schedule", choices=["1f1b", "gpipe", "breadth_first"], default="1f1b")
    layout.add_argument("--sharding", choices=["none", "optimizer", "gradients", "parameters"], default="none")
    layout.add_argument("--recompute", choices=["none", "selective", "full"], default="none")
    layout.add_argument("--sequence-parallel", action="store_true")
    layout.add_argument("--offload", choices=["none", "host"], default="none", help="where optimizer states lie")
    layout.add_argument(
        "--shares", type=_shares, default=Shares(), help="micro-batches of each replica in a cycle, such as 1,1,2,2"
    )
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")


def complete(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> argparse.Namespace:
    """Checks what was parsed and adds the model's `shape` and the learning rate's `rate`; ends the process, as argparse
    does, where it is wrong."""
    if parsed.token_bytes == 1 and parsed.vocab < 256:
        parser.error("--vocab must be at least 256: the corpus is bytes")
    if not 0.0 <= parsed.dropout < 1.0:
        parser.error("--dropout is a share, from 0 to less than 1")
    if parsed.noise_every < 1:
        parser.error("--noise-every must be 1 at least")
    if parsed.token_bytes > 1 and not parsed.corpus:
        parser.error("--token-bytes needs a file of tokens as --corpus")
    if parsed.decay != "none" and parsed.decay_samples is None:
        parser.error("--decay needs --decay-samples")
    if parsed.decay == "none" and parsed.decay_samples is not None:
        parser.error("--decay-samples needs --decay")
    try:
        parsed.shape = ModelShape(
            parsed.layers,
            parsed.hidden,
            parsed.heads,
            parsed.kv_heads,
            parsed.ffn,
            parsed.vocab,
            parsed.seq_len,
            tied=parsed.tied,
            experts=parsed.experts,
            active_experts=min(parsed.experts, parsed.active_experts),
        )
        parsed.rate = RateSchedule(
            parsed.lr, parsed.warmup_samples, parsed.decay, parsed.decay_samples or 0, parsed.lr_floor
        )
    except ValueError as error:
        parser.error(str(error))
    return parsed


def first_configuration(parsed: argparse.Namespace, environment: Environment | None, world: int) -> Configuration:
    """As Headway launched it, else as the command line says."""
    launched = environment.configuration if environment else None
    if launched is not None:
        return launched
    execution = Execution(
        cp=parsed.cp,
        ep=parsed.ep,
        vpp=parsed.vpp,
        schedule=parsed.schedule,
        sharding=parsed.sharding,
        recompute=parsed.recompute,
        sequence_parallel=parsed.sequence_parallel,
        offload=parsed.offload,
        shares=parsed.shares,
    )
    layout = Layout(max(1, world // (parsed.tp * parsed.pp * parsed.cp)), parsed.tp, parsed.pp)
    return Configuration(layout, parsed.micro_batch, parsed.global_batch, execution)


def _shares(text: str) -> Shares:
    return Shares.of([int(each) for each in text.split(",")])
