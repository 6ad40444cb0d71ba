"""A pattern for `headway.watch --line`, from output that counts steps."""

from __future__ import annotations

import re
from dataclasses import dataclass

NUMBER = r"\d[\d,]*"
REAL = r"[-+\d.eE]+"
COLOUR = re.compile(r"\x1b\[[\d;]*m")
STEPS = [
    re.compile(
        r"(?i)(?<![\w/])(?P<word>global[_ ]step|steps?|iterations?|iter|it|update)"
        rf"(?P<gap>['\"]?[\s:=#\[\]]*)(?P<value>{NUMBER})(?![\d.])"
    ),
    re.compile(rf"(?P<word>\|)(?P<gap>\s*)(?P<value>{NUMBER})(?=/{NUMBER} \[)"),
]
LOSS = re.compile(rf"(?i)(?P<word>(?<![\w/])(?:lm |train(?:ing)?[_ ])?loss)(?P<gap>['\"]?[\s:=]*)(?P<value>{REAL})")
SECONDS = re.compile(rf"(?P<value>{REAL})(?P<gap> ?)(?P<word>s/it|s/step|sec/step)\b")
LEAST = 2


@dataclass(frozen=True)
class Suggestion:
    """A pattern, and what it finds in the output it was made from."""

    pattern: str
    line: str
    """The first that it matches."""
    count: int


def suggest(output: str) -> Suggestion | None:
    """None where no number beside a word for steps grows from line to line."""
    lines = [COLOUR.sub("", line).rstrip() for line in output.replace("\r", "\n").split("\n")]
    for step in STEPS:
        found = [(line, hit) for line in lines if (hit := step.search(line))]
        growing: list[tuple[str, re.Match[str]]] = []
        for line, hit in found:
            if not growing or _value(hit) > _value(growing[-1][1]):
                growing.append((line, hit))
        if len(growing) >= LEAST:
            pattern = _pattern([line for line, _ in growing], *growing[0])
            return Suggestion(pattern, growing[0][0].strip(), sum(bool(re.search(pattern, line)) for line in lines))
    return None


def _value(hit: re.Match[str]) -> int:
    return int(hit["value"].replace(",", ""))


def _pattern(lines: list[str], line: str, step: re.Match[str]) -> str:
    """The step, and loss and seconds per step where all lines have them behind it."""
    pattern = f"{re.escape(step['word'])}{_gap(step['gap'])}(?P<step>{_digits(lines)})"
    end = step.end()
    if step["word"] == "|":
        pattern = rf"\|{_gap(step['gap'])}(?P<step>\d+)/\d+ \["
    if (loss := LOSS.search(line, end)) and all(LOSS.search(each) for each in lines):
        pattern += rf".*{re.escape(loss['word'])}{_gap(loss['gap'])}(?P<loss>{REAL})"
        end = loss.end()
    if (seconds := SECONDS.search(line, end)) and all(SECONDS.search(each) for each in lines):
        unit = re.escape(seconds["word"])
        pattern += rf".*?(?P<seconds>[\d.]+){_gap(seconds['gap'])}{unit}"
    return pattern


def _digits(lines: list[str]) -> str:
    return r"[\d,]+" if any(re.search(r"\d,\d{3}", line) for line in lines) else r"\d+"


def _gap(text: str) -> str:
    """Blanks may be fewer or more where the numbers are wider."""
    return re.sub(r"(\\?\s)+", " *", re.escape(text))
