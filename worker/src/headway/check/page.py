"""Findings as people read them, and as programs do."""

from __future__ import annotations

from typing import Any

from headway.check.findings import Finding, Verdict, ranks
from headway.check.trial import Seen

SHOWN = {Verdict.WORKS: "ok", Verdict.FAILS: "FAILS", Verdict.MISSING: "-", Verdict.UNTRIED: "?"}


def as_text(name: str, trials: list[Seen], found: list[Finding]) -> str:
    """A line for each point, then what to add, then the sum of it."""
    sizes = ", then on ".join(ranks(seen) for seen in trials)
    lines = [f"{name} on {sizes}", ""]
    lines += [f"  {each.name:<7} {SHOWN[each.verdict]:<6} {each.words}" for each in found]
    for each in found:
        if each.add:
            lines += ["", f"{each.name}:", *(f"    {line}" for line in each.add)]
    failed = [each.name for each in found if each.verdict is Verdict.FAILS]
    sentence = f"Does not work: {', '.join(failed)}." if failed else "All that is claimed works."
    return "\n".join([*lines, "", sentence, ""])


def as_json(name: str, trials: list[Seen], found: list[Finding]) -> dict[str, Any]:
    """`works`: as the exit code says. Seconds in `first_step_s`, one for each launch."""
    return {
        "script": name,
        "works": all(each.verdict is not Verdict.FAILS for each in found),
        "ranks": [seen.order.ranks for seen in trials],
        "first_step_s": [seen.first_step_s for seen in trials],
        "capabilities": trials[0].hello.get("capabilities") if trials[0].hello else None,
        "line": trials[0].suggestion.pattern if trials[0].suggestion else None,
        "findings": [
            {"name": each.name, "verdict": each.verdict.value, "words": each.words, "add": list(each.add)}
            for each in found
        ],
    }
