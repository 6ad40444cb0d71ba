"""What the trials show, point by point: what works, what was claimed, and what to add to the script. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from headway.check.trial import End, Offer, Seen

NO_NOISE = re.compile(r"no noise is measured \(said once\): (.*)")
NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
TAIL_LINES = 12


class Verdict(Enum):
    WORKS = "works"
    FAILS = "fails"
    """Though it was claimed, or nothing goes without it."""
    MISSING = "missing"
    """Nobody claimed it; what it would take is said."""
    UNTRIED = "untried"


@dataclass(frozen=True)
class Finding:
    """One point."""

    name: str
    verdict: Verdict
    words: str
    add: tuple[str, ...] = ()
    """Lines for the script or its specification."""


@dataclass(frozen=True)
class Claims:
    """What the specification says of the script; None where the script's own word counts."""

    batch: str | None = None
    layout: str | None = None
    watched: bool = False
    resumes: bool = False


MAKE = (
    "import headway.torch",
    "reporter = headway.torch.StepReporter(model, micro_batch=8, sequence_length=1024)  # once it is wrapped",
)
REPORT = ("asked = reporter.end_step(loss, accumulation)  # after the last backward, before clipping",)
SAVE = (
    "if asked.save and rank == 0:",
    '    reporter.save(lambda directory: torch.save(state, directory / "state.pt"))',
)
STOP = ("if asked.stop:", "    sys.exit(reporter.stopped())")
LIVE = (
    'reporter = headway.torch.StepReporter(model, ..., batch="live")',
    "if asked.configure is not None:",
    "    wanted = asked.configure.configuration",
    "    micro_batch, global_batch = wanted.micro_batch, wanted.global_batch",
)
SHARES = (
    "for index in range(count := configuration.micro_batches(replica)):",
    "    with contextlib.nullcontext() if index + 1 == count else model.no_sync():",
    "        (loss * configuration.gradient_scale()).backward()",
)
RESUME = (
    'command: [..., "--resume={resume_path}"]',
    'saved = torch.load(f"{options.resume}/state.pt") if options.resume else None',
)


def judge(trials: list[Seen], claims: Claims) -> list[Finding]:
    """Of the first launch and, where there was one, the second, which resumes from the first's checkpoint."""
    first = trials[0]
    if not first.steps:
        return [_steps(first)]
    last = trials[-1] if len(trials) > 1 else None
    found = [
        _steps(first),
        _noise(trials, claims),
        _batch(first, claims),
        _save(first, claims),
        _stop(first, claims),
        *([] if last is None else [_resume(first, last, claims)]),
        _layout(trials, claims),
        *([] if last is None or last.order.configuration.accumulation() is not None else [_shares(last)]),
    ]
    if last is not None and last.end is not None and not claims.watched:
        found.append(_signal(last.end, last.order.grace_s))
    return found


def _steps(seen: Seen) -> Finding:
    if seen.steps:
        step = seen.steps[-1]
        count = sum(each["steps"] for each in seen.steps)
        loss = f", loss {step['loss']:.3g}" if "loss" in step else ", no loss"
        batch = step.get("configuration", {}).get("global_batch")
        batch = f" of {batch} sequences" if batch else ""
        return Finding("steps", Verdict.WORKS, f"reports steps{batch}{loss}: {count} in {len(seen.steps)} messages")
    if seen.ended_itself:
        return Finding(
            "steps", Verdict.FAILS, f"ended with exit code {seen.ended_itself} before its first step", _why(seen)
        )
    if seen.malformed is not None:
        return Finding("steps", Verdict.FAILS, f"sent a line that is no message of the protocol: {seen.malformed}")
    if seen.hello is not None:
        return Finding("steps", Verdict.FAILS, f"has joined (headway.init), and reports no step{_waited(seen)}", REPORT)
    if seen.suggestion is not None:
        add = (f"python -m headway.check --line '{seen.suggestion.pattern}' ...", "or, in the script:", *MAKE, *REPORT)
        words = f"says nothing to Headway, and prints its steps: {seen.suggestion.line[:100]}"
        return Finding("steps", Verdict.FAILS, words, add)
    ended = ", and ran to its end" if seen.ended_itself == 0 else _waited(seen)
    return Finding(
        "steps", Verdict.FAILS, f"says nothing to Headway, and prints no steps{ended}", (*MAKE, *REPORT, *SAVE, *STOP)
    )


def _why(seen: Seen) -> tuple[str, ...]:
    """The end of its output, and which package it lacks, if that is it."""
    missing = NO_MODULE.search(seen.output)
    install = (f"pip install {missing[1].split('.')[0]}    # it is not installed here",) if missing else ()
    return (*install, *("| " + line for line in seen.output.rstrip().splitlines()[-TAIL_LINES:]))


def _noise(trials: list[Seen], claims: Claims) -> Finding:
    noisy, steps = sum(seen.noisy_steps for seen in trials), sum(len(seen.steps) for seen in trials)
    if noisy:
        return Finding("noise", Verdict.WORKS, f"the gradient noise is in {noisy} of {steps} messages")
    if claims.watched:
        return Finding("noise", Verdict.MISSING, "none: from output nobody can tell it, so its batch is not tuned")
    said = NO_NOISE.search("".join(seen.output for seen in trials))
    if said:
        return Finding("noise", Verdict.FAILS, f"none: {said[1]}")
    configuration = trials[0].steps[-1].get("configuration")
    if configuration and all(configuration["global_batch"] == configuration["micro_batch"] for _ in trials):
        words = "none: a step of one micro-batch on one rank has none"
        return Finding(
            "noise", Verdict.UNTRIED, words, ("--global-batch 16  # so that a step has several micro-batches",)
        )
    return Finding("noise", Verdict.MISSING, "none, so its batch is not tuned", (*MAKE, *REPORT))


def _batch(seen: Seen, claims: Claims) -> Finding:
    claimed = claims.batch or seen.claims("batch")
    if seen.asked_batch is None:
        if claimed != "live":
            words = f"not asked to change while it runs: the script says {seen.claims('batch')}"
            return Finding("batch", Verdict.MISSING, words, () if claims.watched else LIVE)
        return Finding("batch", Verdict.FAILS, _untimely(seen, "given another batch"))
    wanted = seen.asked_batch.global_batch
    if seen.batch_from is not None:
        return Finding(
            "batch", Verdict.WORKS, f"trains {wanted} sequences a step from step {seen.batch_from} on, as asked"
        )
    last = seen.steps[-1]
    words = (
        f"was asked for {wanted} sequences a step, and reports {last.get('configuration', {}).get('global_batch')}"
        f" at step {last['step']} still"
    )
    return Finding("batch", Verdict.FAILS, words, LIVE)


def _save(seen: Seen, claims: Claims) -> Finding:
    if claims.watched:
        words = "keeps its own checkpoints" if claims.resumes else "none that Headway knows of"
        return Finding("save", Verdict.MISSING, words)
    if not seen.save_asked:
        return Finding("save", Verdict.FAILS, _untimely(seen, "told to save"))
    if seen.offer is None:
        words = f"was told to save, and offered no checkpoint within {seen.order.grace_s:g} s"
        return Finding("save", Verdict.FAILS, words, SAVE)
    return _judged("save", seen.offer, "it was told to")


def _judged(name: str, offer: Offer, since: str) -> Finding:
    if offer.error is not None:
        return Finding(name, Verdict.FAILS, f"offered step {offer.step}, but {offer.error}", SAVE)
    size = f"{offer.size / 1e6:.1f} MB"
    return Finding(name, Verdict.WORKS, f"step {offer.step}, {size}, whole {offer.after_s:.1f} s after {since}")


def _stop(seen: Seen, claims: Claims) -> Finding:
    end, grace = seen.end, seen.order.grace_s
    if end is None:
        return Finding("stop", Verdict.FAILS, _untimely(seen, "told to stop"))
    if end.killed:
        return Finding("stop", Verdict.FAILS, f"was told to stop, and was killed after the grace of {grace:g} s", STOP)
    if end.reminded:
        words = f"heard no order, and ended at the SIGTERM that follows it, {end.after_s:.1f} s later, with {end.code}"
        return Finding("stop", Verdict.FAILS, words, STOP)
    if end.code != 0:
        words = f"ended with {end.code} after {end.after_s:.1f} s: after an order that is 0"
        return Finding("stop", Verdict.FAILS, words, STOP)
    exited = f"exited 0 {end.after_s:.1f} s after the order (grace {grace:g} s)"
    if claims.watched:
        return Finding("stop", Verdict.WORKS, exited)
    if end.told is None:
        return Finding("stop", Verdict.FAILS, f"{exited}, without saying that it stops", STOP)
    if end.offer is None:
        return Finding(
            "stop", Verdict.FAILS, f"{exited}, and had not saved: the steps since its last checkpoint are lost", SAVE
        )
    if end.offer.error is not None:
        return _judged("stop", end.offer, "the order")
    lost = end.told["step"] - end.offer.step
    if lost:
        return Finding(
            "stop", Verdict.FAILS, f"{exited} at step {end.told['step']}, and had saved step {end.offer.step}"
        )
    return Finding("stop", Verdict.WORKS, f"saved step {end.offer.step} and {exited}")


def _signal(end: End, grace_s: float) -> Finding:
    """SIGTERM alone: where a node is drained by somebody else, and the agent cannot say that it is an order."""
    if end.killed:
        return Finding(
            "signal", Verdict.FAILS, f"ignored SIGTERM, and was killed after the grace of {grace_s:g} s", STOP
        )
    saved = "" if end.offer is None else f" and saved step {end.offer.step}"
    words = f"exited {end.code}{saved} {end.after_s:.1f} s after SIGTERM alone"
    if end.code != 143:
        return Finding("signal", Verdict.FAILS, f"{words}: that is 143, or an unfinished job counts as done", STOP)
    return Finding("signal", Verdict.WORKS if saved else Verdict.FAILS, words, () if saved else SAVE)


def _resume(first: Seen, last: Seen, claims: Claims) -> Finding:
    if not last.steps:
        words = f"started again on {ranks(last)}, it "
        if last.ended_itself:
            return Finding("resume", Verdict.FAILS, f"{words}ended with exit code {last.ended_itself}", _why(last))
        add = () if claims.watched else RESUME
        return Finding("resume", Verdict.FAILS, f"{words}reported no step{_waited(last)}", add)
    step = int(last.steps[0]["step"]) - int(last.steps[0]["steps"])
    if claims.watched:
        before = int(first.steps[-1]["step"])
        begins = int(last.steps[0]["step"])
        if not claims.resumes:
            return Finding(
                "resume", Verdict.MISSING, "begins anew at each start: --resumes says that it finds its checkpoint"
            )
        again = f"had reached step {before}; started again on {ranks(last)} it was next heard of at step {begins}"
        if begins <= int(first.steps[0]["step"]):
            return Finding("resume", Verdict.FAILS, f"{again}: it began anew, whatever --resumes says")
        lost = ": the steps since its last checkpoint are lost, as it saves none at SIGTERM" if begins <= before else ""
        return Finding("resume", Verdict.WORKS, again + lost)
    saved = last.order.resume
    if saved is None:
        return Finding("resume", Verdict.UNTRIED, "there was no whole checkpoint to resume from", SAVE)
    if step != saved.step:
        words = f"started again on {ranks(last)} from step {saved.step}, it goes on at step {step + 1}"
        return Finding("resume", Verdict.FAILS, words, RESUME)
    report = last.steps[0]
    batch = (report.get("configuration") or {}).get("global_batch")
    begun = int(report["samples_seen"]) - int(report["steps"]) * batch if batch else saved.samples_seen
    if begun != saved.samples_seen:
        words = f"had seen {saved.samples_seen} sequences at step {saved.step}, and counts on from {begun}"
        return Finding("resume", Verdict.FAILS, words, RESUME)
    if last.resumed_files is not None and not last.resumed_files:
        words = f"counts on from step {saved.step}, but has opened no file of the checkpoint: it began with a new model"
        return Finding("resume", Verdict.FAILS, words, RESUME)
    return Finding(
        "resume",
        Verdict.WORKS,
        f"goes on at step {step + 1} from its checkpoint, {begun} sequences in, on {ranks(last)}",
    )


def _layout(trials: list[Seen], claims: Claims) -> Finding:
    claimed = claims.layout or trials[0].claims("layout")
    asked = next((seen for seen in trials if seen.asked_layout is not None), None)
    if asked is not None and asked.asked_layout is not None:
        layout = asked.asked_layout.layout
        if asked.layout_from is not None:
            words = f"trains with tp {layout.tp} from step {asked.layout_from} on, as asked, on {ranks(asked)}"
            return Finding("layout", Verdict.WORKS, words)
        return Finding(
            "layout", Verdict.FAILS, f"said live, was asked for tp {layout.tp}, and did not take it on {ranks(asked)}"
        )
    if claimed == "never":
        return Finding("layout", Verdict.MISSING, "never another: a lost node means waiting for as many GPUs")
    sizes = {seen.order.ranks for seen in trials if seen.steps}
    if claimed == "live":
        return Finding("layout", Verdict.UNTRIED, "live, which takes two ranks to try")
    if len(sizes) > 1:
        return Finding(
            "layout", Verdict.WORKS, f"by a restart: trained on {' and '.join(map(str, sorted(sizes)))} ranks"
        )
    if len({seen.order.ranks for seen in trials}) > 1:
        return Finding("layout", Verdict.FAILS, "said restart, but did not train on other ranks")
    return Finding("layout", Verdict.UNTRIED, "by a restart, which takes another number of ranks to try")


def _shares(seen: Seen) -> Finding:
    asked = seen.order.configuration
    shares = f"shares {','.join(map(str, asked.shares()))} of {asked.global_batch} sequences a step"
    if not seen.steps:
        return Finding("shares", Verdict.FAILS, f"launched with {shares}, it reported no step", SHARES)
    told = seen.steps[-1].get("configuration", {}).get("global_batch")
    if told != asked.global_batch:
        return Finding("shares", Verdict.FAILS, f"launched with {shares}, it reports {told}", SHARES)
    return Finding("shares", Verdict.WORKS, f"trained with {shares}")


def _waited(seen: Seen) -> str:
    return "" if seen.ended_itself is not None else f" within {seen.patience_s:g} s (--patience)"


def _untimely(seen: Seen, asked: str) -> str:
    if seen.ended_itself == 0:
        return f"ran to its end before it could be {asked}: give it more steps"
    if seen.ended_itself is not None:
        tail = seen.output.rstrip().splitlines()[-1:] or [""]
        return f"ended with exit code {seen.ended_itself} before it could be {asked}: {tail[0]}"
    return f"was not {asked}"


def ranks(seen: Seen) -> str:
    return f"{seen.order.ranks} rank{'s' if seen.order.ranks > 1 else ''}"
