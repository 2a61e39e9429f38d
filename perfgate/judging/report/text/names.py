"""Names of metrics, places, evidence, commits and days."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timezone
from functools import lru_cache
from typing import Protocol

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.names import NUMBER, SUBROUTINE_TIMES
from perfgate.document.comparison import Clock, Comparison, Paired
from perfgate.document.decision import Missing, NoiseFloor, StepComparison
from perfgate.document.history import moment
from perfgate.judging.report.text.numbers import counted
from perfgate.judging.report.text.words import (
    SentencePieces,
    Words,
    joined,
    phrases,
    say,
)

# Titles of a metric timed by another clock than the wall, if it has no title for that
# clock.
CLOCK_TITLES: Mapping[Clock, str] = phrases(
    {
        "cpu": "{title}, in CPU time",
        "device": "{title}, in device time",
        "awake": "{title}, without CPU waits",
    }
)
# Parts of a document that may be missing and are not metrics.
_PARTS = phrases(
    {
        "correctness": "the check of the output",
        "replicates.aa": "base against base",
        "job.settings": "the table of settings",
        "job.numbers": "the list of metrics",
        "job.turns": "turns",
        "job.fits": "`fits`",
        "job.requests": "the load",
        "seal": "the proof that the measured code did not change",
    }
)
_ALTHOUGH = phrases(
    {
        "configuration": ", although the base's perfgate.toml requires it",
        "store": ", although main's stored run has it",
    }
)


class InPlace(Protocol):
    """Anything in a document that belongs to one shape of a workload."""

    @property
    def workload(self) -> str: ...

    @property
    def shape(self) -> str: ...


class HasMetric(Protocol):
    """Anything in a document that is about one metric."""

    @property
    def metric(self) -> str: ...


def place(workload: str, shape: str) -> str:
    """The place of a number: the workload, and the shape unless it is the only, unnamed
    one.
    """
    if shape in {"", "default"}:
        return workload
    return f"{workload}/{shape}"


def place_of(entry: InPlace) -> str:
    return place(entry.workload, entry.shape)


def metric_name(name: str, clock: Clock = "wall") -> str:
    """A metric's title as our words; of an operator, a module or a function its name,
    which is outside text.

    A clock other than the wall is named: such a tail may lie below the wall-clock
    median.
    """
    if name.startswith((*SUBROUTINE_TIMES, NUMBER)):
        return name.partition(".")[2]
    if name.startswith("ops.") and ":" in name:
        return name.partition(":")[2]
    if name not in METRICS:
        return name
    entry = METRICS[name]
    titles = entry.display.clock_titles
    if clock != "wall" and clock in titles:
        return say(titles[clock])
    if clock != "wall" and entry.origin.timed:
        return say(CLOCK_TITLES[clock], title=say(entry.title))
    return say(entry.title)


def title_of(entry: HasMetric) -> str:
    if isinstance(entry, (Paired, NoiseFloor, StepComparison)):
        return metric_name(entry.metric, entry.clock)
    return metric_name(entry.metric)


def missing_words(entry: Missing) -> str:
    """A gap in the documents of a check, and the source that requires it."""
    words = [_missing(entry)]
    if entry.pairs:
        words.append(say(" in {pairs}", pairs=counted(len(entry.pairs), "pair")))
    if not entry.differs and entry.named_by in _ALTHOUGH:
        words.append(say(_ALTHOUGH[entry.named_by]))
    return joined(*words)


def _missing(entry: Missing) -> str:
    place = place_of(entry)
    side = Words(entry.side)
    metric = metric_name(entry.metric)
    if entry.metric in _PARTS:
        metric = say(_PARTS[entry.metric])
    if entry.differs and entry.named_by == "configuration":
        return say(
            "{metric} of {place} does not match the base's perfgate.toml",
            metric=metric,
            place=place,
        )
    if entry.differs:
        return say(
            "{metric} of {place} differs between base and head",
            metric=metric,
            place=place,
        )
    if not entry.metric and entry.side == "both":
        return say("{place} was not measured", place=place)
    if not entry.metric:
        return say("{place} is missing in the {side}", place=place, side=side)
    if entry.side == "both":
        return say(
            "{metric} of {place} is missing on both sides", metric=metric, place=place
        )
    return say(
        "{metric} of {place} is missing in the {side}",
        metric=metric,
        place=place,
        side=side,
    )


def evidence_of(comparison: Paired) -> str:
    """The unit that ``pairs`` counts: pairs of processes, turns of a step, quads of a
    job, or its runs if each is a process.
    """
    if not comparison.is_of_job:
        return comparison.evidence
    if comparison.starts == comparison.pairs and comparison.pairs != 1:
        return "run"
    return "quad"


def named(comparison: Comparison, *, placeless: bool = False) -> str:
    """The metric of a comparison and, unless ``placeless``, its place."""
    metric = title_of(comparison)
    at = place_of(comparison)
    if comparison.is_of_operator:
        if placeless:
            return say("calls to {metric}", metric=metric)
        return say("calls to {metric} in {place}", metric=metric, place=at)
    if placeless:
        return metric
    return say("{metric} of {place}", metric=metric, place=at)


def listed(texts: Sequence[str], most: int = 3) -> SentencePieces:
    """The first texts with commas between, and how many more there are."""
    return with_more(texts[:most], len(texts) - most)


def with_more(texts: Iterable[str], more: int) -> SentencePieces:
    """Texts with commas between, and the number of further texts."""
    pieces: list[str] = []
    for text in texts:
        if pieces:
            pieces.append(Words(", "))
        pieces.append(text)
    if more > 0:
        pieces.append(say(" and {more}", more=counted(more, "more", "more")))
    return joined(*pieces)


def first_line(text: str | None) -> str:
    """The first non-blank line of a message, empty without one."""
    lines = (text or "").strip().splitlines()
    if lines:
        return lines[0].strip()
    return ""


_COMMIT_LENGTH = 10


# The charts of a page share their runs.
@lru_cache(4096)
def day(text: str) -> Words:
    return Words(moment(text).date().isoformat())


def minute(text: str) -> Words:
    return Words(moment(text).astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M"))


def short(commit: str | None) -> str:
    """A commit in its short form; it is still outside text."""
    if commit:
        return commit[:_COMMIT_LENGTH]
    return ""
