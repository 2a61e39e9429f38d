"""Causes in words: an operator's change as a title, and as a line of a list."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping

from perfgate.catalogue.lookup import MESSAGES
from perfgate.catalogue.terms import Amount
from perfgate.document.explanation import (
    MODES,
    Aspect,
    Bottleneck,
    Cause,
    Compiling,
    PartKind,
)
from perfgate.document.message import Message
from perfgate.judging.report.text import formats, numbers, templates
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.names import (
    listed,
    metric_name,
    place,
    place_of,
    with_more,
)
from perfgate.judging.report.text.words import (
    EMPTY,
    Words,
    composed,
    joined,
    phrase,
    phrases,
    say,
)
from perfgate.judging.report.view.summary import Summary

# Limit on the lines named for one cause.
_NAMED_LINES = 3
# Familiar spellings in user code of the framework's internal operators.
_FAMILIAR = {"aten::_local_scalar_dense": ".item()", "aten::_to_copy": ".to()"}
_BYTES: tuple[Amount, ...] = ("held", "copied", "kept")
# For one event, and for several.
_COMPILATIONS: Mapping[Compiling, tuple[str, str]] = phrases(
    {
        "graph_break": ("{more} graph break", "{more} graph breaks"),
        "recompilation": ("{more} recompilation", "{more} recompilations"),
    }
)
_RECORDING: Mapping[Aspect | None, str] = phrases(
    {"recorded": "autograd records the graph", "attached": "autograd records {op}"}
)
_MODES: Mapping[Aspect | None, str] = phrases(
    {
        "training": "{op} runs in training mode",
        "without workers": "{op} has no workers",
        "blocking": "{op} may block",
    }
)
_AMOUNTS: Mapping[Amount, str] = phrases(
    {
        "held": "{here} held by {op}",
        "copied": "{here} copied by {op}",
        "kept": "{here} left behind by {op}",
        "blocks": "{here} blocks allocated by {op}",
        "flops": "{here} floating-point operations in {op}",
        "functions": "{here} calls to {op}",
        "bytecodes": "{here} bytecodes in {op}",
    }
)
_ONE: Mapping[Amount, str] = phrases(
    {"blocks": "{here} block allocated by {op}", "functions": "{here} call to {op}"}
)
# Titles of a longer time.
_LONGER: Mapping[PartKind | None, str] = phrases(
    {
        "waiting": "waiting for {op} takes {time} longer",
        "launching": "the host takes {time} longer between operators, because there are more of them",
    }
)
_EFFECTS: Mapping[Aspect | None, str] = phrases(
    {
        "kept": ", and its result is kept",
        "deferred": ", after the call had returned",
        "saved": ", skipped on a repeated input",
    }
)
_REMEDIES: Mapping[Aspect | None, str] = phrases(
    {
        "recorded": ": put `torch.no_grad()` back",
        "attached": ": call `detach()` on what is kept",
        "training": ": call `eval()`",
        "without workers": ": give it `num_workers`",
        "blocking": ": ask for `non_blocking=True` again",
    }
)
# Share of the measured difference; a smaller remainder is not reported.
_NOTABLE = 0.05
_BOUNDS: Mapping[Bottleneck, str] = phrases(
    {
        "compute": "compute",
        "memory": "memory",
        "scheduling": "the host (scheduling)",
        "synchronisation": "synchronisation",
        "transfer": "transfer",
        "communication": "communication",
    }
)


class CauseView:
    """One operator's change in words: ``in_short`` for titles and tables, ``in_full``
    with its places for lists.

    ``places`` are all places that have it, and ``linked`` gives each line its address.
    ``line`` calls the operator, ``code`` is the text of the line that changed, and
    ``origin`` the changed place behind a line that is itself unchanged. Unknown words
    are empty.
    """

    def __init__(
        self,
        cause: Cause,
        places: tuple[str, ...] = (),
        *,
        linked: Callable[[str], str] = str,
        names_origin: bool = True,
    ) -> None:
        self._cause = cause
        self._linked = linked
        self.places = places or (place(*cause.place),)
        self._unit = "1"
        if cause.amount in _BYTES:
            self._unit = "B"
        self._aspect = cause.also or cause.aspect
        self.op = cause.op
        if (
            cause.compiling and cause.op in MESSAGES
        ):  # the reason is a code if torch names no guard
            self.op = str(word(Message(cause.op)))
        self.line = cause.line
        self.code = cause.code
        if cause.line:
            self.line = linked(cause.line)
        self._origin = None
        if names_origin and cause.origin is not None and cause.origin.reach != "line":
            self._origin = cause.origin
            self.code = cause.origin.code
        self._tensor = None
        self._here_count = cause.more_count
        if cause.sites:
            first = cause.sites[0]
            self._tensor = first.tensor
            self._here_count = first.head - first.base
        self._here = self._amount(self._here_count)
        self._more = self._amount(cause.more_count)
        self.base, self.head = self._sides()
        self._base_input, self._head_input = _changed_input(cause)
        self.time = EMPTY
        if cause.more_time is not None and cause.more_time > 0:
            self.time = numbers.amount(cause.more_time, "s")

    def _amount(self, count: float) -> Words:
        if count:
            return formats.difference(0, count, formats.Measure(self._unit))
        return EMPTY

    def _sides(self) -> tuple[Words, Words]:
        """Both counts; a cause known by its time alone has none."""
        counts = self._cause.base_count, self._cause.head_count
        if not any(counts):
            return numbers.DASH, numbers.DASH
        if self._unit == "1":
            return numbers.whole(counts[0]), numbers.whole(counts[1])
        base, head = numbers.amounts(counts, self._unit)
        return base, head

    @property
    def in_short(self) -> str:
        return joined(self._title(), self._at(), self.in_all, self._ending())

    @property
    def without_total(self) -> str:
        """In short, without the total of several lines."""
        return joined(self._title(), self._at(), self._ending())

    @property
    def in_full(self) -> str:
        parts = [self.in_short, say("; in {places}", places=listed(self.places))]
        is_known_by_time = not (
            self._here or self._cause.compiling or self._aspect in _RECORDING
        )
        if self.base != self.head and not self._cause.ranks:
            parts.append(say(", {base} → {head}", base=self.base, head=self.head))
        if self.time and not is_known_by_time:
            sentence = phrase(", {time} more self time")
            if self._cause.inclusive or self._cause.is_outside_operators:
                sentence = phrase(", {time} more")
            parts.append(say(sentence, time=self.time))
        return joined(*parts)

    @property
    def in_all(self) -> str:
        """The total if other lines add to it too."""
        if self._here_count >= self._cause.more_count:
            return EMPTY
        total = numbers.amount(self._cause.more_count, self._unit)
        lines = [line for line, _ in self._lines()]
        if len(lines) < 2:
            return say(" ({in_all} in all)", in_all=total)
        return say(
            " ({in_all} in all, also at {other_lines})",
            in_all=total,
            other_lines=with_more(
                lines[1:], numbers.beyond(self._cause.sites, _NAMED_LINES)
            ),
        )

    @property
    def origin(self) -> str:
        if self._origin is None:
            return EMPTY
        line = self._linked(self._origin.line)
        function = self._origin.function
        if self._origin.reach == "caller":
            return say(", called from {line} (changed)", line=line)
        if self._origin.reach == "function" and function:
            return say(
                ", in {function}, changed at {line}", function=function, line=line
            )
        return say(", an unchanged line; the change touches {line}", line=line)

    def _title(self) -> str:
        """The change itself; of several lines only the first one's share."""
        parts = [self._change()]
        if self._aspect == "full precision" and not self._head_input:
            parts.append(say(" in full precision"))
        # Of operators that run more often, some results may be in another precision.
        if self._cause.aspect == "double precision":
            parts.append(say(" in double precision"))
        ranks = self._cause.ranks
        if ranks == "each":
            parts.append(
                say(" in each rank ({base} → {head})", base=self.base, head=self.head)
            )
        elif ranks:
            parts.append(
                say(
                    " in rank {rank} ({base} → {head})",
                    rank=ranks,
                    base=self.base,
                    head=self.head,
                )
            )
        return joined(*parts)

    def _change(self) -> str:
        cause = self._cause
        aspect = self._aspect
        if cause.compiling:
            singular, plural = _COMPILATIONS[cause.compiling]
            if abs(cause.more_count) == 1:
                return say(singular, more=self._more)
            return say(plural, more=self._more)
        if aspect in _RECORDING:
            return say(_RECORDING[aspect], op=self.op)
        if self._here:
            return self._change_of_amount()
        if self._head_input and not _LONGER.get(cause.kind):
            sentence = phrase("{op} on {head_input} instead of {base_input}")
            if self.time:
                sentence = phrase(
                    "{op} on {head_input} instead of {base_input} takes {time} longer"
                )
            return say(
                sentence,
                op=self.op,
                head_input=self._head_input,
                base_input=self._base_input or "",
                time=self.time,
            )
        if self.time:
            return say(
                _LONGER.get(cause.kind, phrase("{op} takes {time} longer")),
                op=self.op,
                time=self.time,
            )
        return self.op

    def _change_of_amount(self) -> str:
        amount = self._cause.amount
        aspect = self._aspect
        if aspect in _MODES:
            return say(_MODES[aspect], op=self.op)
        if amount == "held" and self._tensor:
            return say(
                "{here} held in {tensor} of {op}",
                here=self._here,
                tensor=self._tensor,
                op=self.op,
            )
        sentence = _AMOUNTS.get(amount, phrase("{here} {op}"))
        if self._here_count == 1:
            sentence = _ONE.get(amount, sentence)
        words = say(sentence, here=self._here, op=self.op)
        if amount not in _AMOUNTS and self.op in _FAMILIAR:
            return composed("{} ({})", words, _FAMILIAR[self.op])
        return words

    def _at(self) -> str:
        """The line, and the place of the change behind it."""
        line = self.line or ""
        is_mode = self._cause.aspect in MODES
        if self._origin:
            sentence = phrase(" at {changed}, through {line}")
            if is_mode:
                sentence = phrase(" since {changed}, through {line}")
            elif self._origin.reach == "elsewhere":
                sentence = phrase(" since the change at {changed}, through {line}")
            return say(sentence, changed=self._linked(self._origin.line), line=line)
        if not line:
            return EMPTY
        if is_mode:
            return say(" since {line}", line=line)
        return say(" at {line}", line=line)

    def _ending(self) -> str:
        """The effect besides the operator's running, the remedy, and the reason of a
        compilation.
        """
        parts: list[str] = []
        if self._aspect in _EFFECTS:
            parts.append(say(_EFFECTS[self._aspect]))
        if self._aspect in _REMEDIES:
            parts.append(say(_REMEDIES[self._aspect]))
        if self._cause.compiling:
            parts.append(say(": {op}", op=self.op))
        return joined(*parts)

    def _lines(self) -> list[tuple[str, Words]]:
        """The first lines that add to it, each with how much; the file is named once."""
        lines: list[tuple[str, Words]] = []
        file = ""
        for site in self._cause.sites:
            line = site.line
            if not line or len(lines) == _NAMED_LINES:
                continue
            name = line.removeprefix(file)
            if not lines:
                name = self._linked(line)
            file = file or line.rpartition(":")[0]
            lines.append((name, numbers.amount(site.head - site.base, self._unit)))
        return lines


def worst_cause(summary: Summary) -> str | None:
    """The cause of the regression in the headline, worded for a title; None if the
    headline is about something else.

    It is the cause of the first block, if that has the regression; its total with other
    lines is left to the block.
    """
    if (
        summary.worst is None
        or summary.verdict not in {"FAIL", "WARN"}
        or summary.is_about_harness
    ):
        return None
    cause = summary.leading_cause
    if cause is None:
        return None
    # Its seconds and inputs differ between shapes.
    for other in summary.decision.explained.causes:
        is_there = other.place == summary.worst.place
        if is_there and _same_work(other) == _same_work(cause):
            return CauseView(other).without_total
    return CauseView(cause).without_total


def _same_work(cause: Cause) -> Hashable:
    return cause.op, cause.aspect, cause.amount, cause.ranks, cause.line


def worded_causes(placed: Iterable[tuple[Cause, tuple[str, ...]]]) -> list[CauseView]:
    return [CauseView(cause, places) for cause, places in placed]


def _changed_input(cause: Cause) -> tuple[str | None, str | None]:
    """The form of the largest input that changed, on base and head; without its layout,
    if that is the same.
    """
    if cause.base_inputs is None or cause.head_inputs is None:
        return None, None
    before = cause.base_inputs.split(", ")
    after = cause.head_inputs.split(", ")
    changed = [(old, new) for old, new in zip(before, after) if old != new]
    if not changed:
        return None, None
    old, new = max(changed, key=_extent)
    old_shape, _, old_layout = old.partition(" ")
    new_shape, _, new_layout = new.partition(" ")
    if old_layout == new_layout:
        return (old_shape, new_shape)
    return (old, new)


def _extent(forms: tuple[str, str]) -> tuple[int, float]:
    """The size of an input on the head: dimensions, then elements."""
    shape = forms[1].partition("[")[2].partition("]")[0]
    sizes = [float(size) for size in re.findall(r"\d+", shape)]
    return len(sizes), math.prod(sizes)


def account_words(summary: Summary) -> Words | None:
    """How the parts of the worst slower call add up to the measured difference, and its
    bottleneck; None if unexplained.
    """
    for explained in summary.decision.explained.explanations:
        if explained.measured and explained.measured > 0:
            break
    else:
        return None
    # Parts that together got faster do not explain a slower call.
    if explained.metric is None or explained.explained <= 0:
        return None
    more = 0.0
    saved = 0.0
    for part in explained.contributions:
        more += max(0.0, part.seconds)
        saved += max(0.0, -part.seconds)
    measured = explained.measured
    rest = explained.measured - explained.explained
    least = _NOTABLE * measured
    return templates.line(
        "shared/account.j2",
        summary.medium,
        place=place_of(explained),
        metric=metric_name(explained.metric, summary.clock_of(explained)),
        measured=numbers.amount(measured, "s"),
        more=numbers.amount(more, "s"),
        saved=_if_notable(saved, least),
        share=numbers.percent(explained.explained / measured),
        left=_if_notable(rest, least),
        over=_if_notable(-rest, least),
        bound=_bound(explained.head_bound),
        base_bound=_bound(explained.base_bound),
    )


def _if_notable(seconds: float, least: float) -> Words:
    if seconds >= least:
        return numbers.amount(seconds, "s")
    return EMPTY


def _bound(bottleneck: Bottleneck | None) -> Words:
    if bottleneck:
        return say(_BOUNDS[bottleneck])
    return EMPTY
