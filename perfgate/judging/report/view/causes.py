"""Causes in words: an operator's change as a title, as a line of a list, and as a cell of a table."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from perfgate.catalogue.lookup import MESSAGES
from perfgate.catalogue.terms import Amount
from perfgate.document.explanation import MODES, Aspect, Bottleneck, Cause, Compiling, Part, PartKind
from perfgate.document.message import Message
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.names import listed, metric_name, place, with_more
from perfgate.judging.report.text.words import Words, joined, phrase, say
from perfgate.judging.report.view.summary import Summary

# Limit on the lines named for one cause.
_NAMED_LINES = 3
# Familiar spellings in user code of the framework's internal operators.
_FAMILIAR = {"aten::_local_scalar_dense": ".item()", "aten::_to_copy": ".to()"}
_BYTES: tuple[Amount, ...] = ("held", "copied", "kept")
# For one event, and for several.
_COMPILATIONS: Mapping[Compiling, tuple[str, str]] = {
    "graph_break": (phrase("{more} graph break"), phrase("{more} graph breaks")),
    "recompilation": (phrase("{more} recompilation"), phrase("{more} recompilations")),
}
_COMPILED_IN: Mapping[Compiling, str] = {
    "graph_break": phrase("graph breaks in {places}"),
    "recompilation": phrase("recompilations in {places}"),
}
_COMPILED_CELL: Mapping[Compiling, str] = {
    "graph_break": phrase("graph break: "),
    "recompilation": phrase("recompilation: "),
}
_RECORDING: Mapping[Aspect | None, str] = {
    "recorded": phrase("autograd records the graph"),
    "attached": phrase("autograd records {op}"),
}
_MODES: Mapping[Aspect | None, str] = {
    "training": phrase("{op} runs in training mode"),
    "without workers": phrase("{op} has no workers"),
    "blocking": phrase("{op} may block"),
}
_AMOUNTS: Mapping[Amount, str] = {
    "held": phrase("{here} held by {op}"),
    "copied": phrase("{here} copied by {op}"),
    "kept": phrase("{here} left behind by {op}"),
    "blocks": phrase("{here} blocks allocated by {op}"),
    "flops": phrase("{here} floating-point operations in {op}"),
    "functions": phrase("{here} calls to {op}"),
    "bytecodes": phrase("{here} bytecodes in {op}"),
}
_ONE: Mapping[Amount, str] = {
    "blocks": phrase("{here} block allocated by {op}"),
    "functions": phrase("{here} call to {op}"),
}
_MORE_OF_AMOUNT: Mapping[Amount, str] = {
    "held": phrase(": {more} held at the peak ({base} → {head})"),
    "copied": phrase(": {more} copied ({base} → {head})"),
    "kept": phrase(": {more} left behind ({base} → {head})"),
    "blocks": phrase(": {more} blocks allocated ({base} → {head})"),
    "flops": phrase(": {more} floating-point operations ({base} → {head})"),
    "bytecodes": phrase(": {more} bytecodes ({base} → {head})"),
}
_MORE_OF_ASPECT: Mapping[Aspect | None, str] = {
    "recorded": phrase(": {more} operators recorded ({base} → {head})"),
    "attached": phrase(": {more} operators recorded ({base} → {head})"),
    "without workers": phrase(": {more} passes without workers ({base} → {head})"),
    "blocking": phrase(": {more} that may block ({base} → {head})"),
    "training": phrase(": {more} calls in training mode ({base} → {head})"),
}
_IN: Mapping[PartKind | None, str] = {
    "launching": phrase("between operators, because there are more of them, in {places}"),
    "outside": phrase("outside operators, in {places}"),
    "waiting": phrase("waiting for {op} in {places}"),
}
_EFFECTS: Mapping[Aspect | None, str] = {
    "kept": phrase(", whose result is kept"),
    "deferred": phrase(", after the call had returned"),
    "saved": phrase(", skipped on a repeated input"),
}
_REMEDIES: Mapping[Aspect | None, str] = {
    "recorded": phrase(": put `torch.no_grad()` back"),
    "attached": phrase(": call `detach()` on what is kept"),
    "training": phrase(": call `eval()`"),
    "without workers": phrase(": give it `num_workers`"),
    "blocking": phrase(": ask for `non_blocking=True` again"),
}
_NOTHING = Words("")
# Share of the measured difference; a smaller remainder is not reported.
_NOTABLE = 0.05
_BOUNDS: Mapping[Bottleneck, str] = {
    "compute": phrase("compute"),
    "memory": phrase("memory"),
    "scheduling": phrase("the host (scheduling)"),
    "synchronisation": phrase("synchronisation"),
    "transfer": phrase("transfer"),
    "communication": phrase("communication"),
}


@dataclass(frozen=True)
class CauseView:
    """One operator's change in words: ``in_short`` for titles, ``in_full`` with its places for lists, ``in_table`` for a cell.

    ``origin`` is the changed place behind a line that is itself unchanged, ``in_all`` the total with other lines, and ``code``
    the text of the line that changed. Empty ones are unknown or left out.
    """

    op: str
    title: str
    at: str
    in_all: str
    ending: str
    in_full: str
    in_table: str
    places: tuple[str, ...]
    line: str | None
    origin: str
    code: str | None
    base: Words
    head: Words
    time: Words

    @property
    def in_short(self) -> str:
        return joined([self.title, self.at, self.in_all, self.ending])


def worst_cause(summary: Summary) -> str | None:
    """The cause of the regression in the headline, worded for a title; None if the headline is about something else.

    It is the cause of the first block, if that has the regression; its total with other lines is left to the block.
    """
    if summary.worst is None or summary.verdict not in {"FAIL", "WARN"} or summary.is_about_harness:
        return None
    cause = summary.leading_cause
    return None if cause is None else replace(worded_cause(cause), in_all="").in_short


def worded_causes(placed: Iterable[tuple[Cause, tuple[str, ...]]]) -> list[CauseView]:
    return [worded_cause(cause, places) for cause, places in placed]


def worded_cause(
    cause: Cause,
    places: tuple[str, ...] = (),
    *,
    linked: Callable[[str], str] = str,
    names_origin: bool = True,
) -> CauseView:
    """A cause in words, with all ``places`` that have it; ``linked`` gives each line its address."""
    words = _CauseWords(cause, places or (place(*cause.place),), linked, names_origin)
    return CauseView(
        op=words.op,
        title=words.title(),
        at=words.at(),
        in_all=words.in_all(),
        ending=words.ending(),
        in_full=words.in_full(),
        in_table=words.in_table(),
        places=words.places,
        line=words.line,
        origin=words.origin_words(),
        code=words.origin.code if words.origin else cause.code,
        base=words.base,
        head=words.head,
        time=words.time,
    )


class _CauseWords:
    """The parts of the sentences about a cause."""

    def __init__(self, cause: Cause, places: tuple[str, ...], linked: Callable[[str], str], names_origin: bool) -> None:
        self.cause, self.places, self.linked = cause, places, linked
        self.unit = "B" if cause.amount in _BYTES else "1"
        self.aspect = cause.also or cause.aspect
        self.op = cause.op
        if cause.compiling and cause.op in MESSAGES:  # the reason is a code if torch names no guard
            self.op = str(word(Message(cause.op)))
        self.line = linked(cause.line) if cause.line else cause.line
        self.origin = cause.origin if names_origin and cause.origin and cause.origin.reach != "line" else None
        self.tensor = cause.sites[0].tensor if cause.sites else None
        self.more_count = cause.more_count
        at_line = self.more_count
        if cause.sites:
            at_line = cause.sites[0].head - cause.sites[0].base
        self.here_count = at_line
        self.here, self.more = self._amount(at_line), self._amount(self.more_count)
        self.base, self.head = self._sides()
        self.base_input, self.head_input = _changed_input(cause)
        is_slower = cause.more_time is not None and cause.more_time > 0
        self.time = formats.quantity(cause.more_time, "s") if is_slower else _NOTHING

    def _amount(self, count: float) -> Words:
        return formats.difference(0, count, self.unit) if count else _NOTHING

    def _sides(self) -> tuple[Words, Words]:
        """Both counts; a cause known by its time alone has none."""
        counts = self.cause.base_count, self.cause.head_count
        if not any(counts):
            return numbers.DASH, numbers.DASH
        base, head = map(numbers.whole, counts) if self.unit == "1" else formats.quantities(counts, self.unit)
        return base, head

    def title(self) -> str:
        """The change itself; what only one line adds if there are several."""
        if self.aspect == "full precision" and not self.head_input:
            return joined([self._title(), say(" in full precision"), self._ranks_and_counts()])
        return joined([self._title(), self._ranks_and_counts()])

    def _title(self) -> str:
        cause, aspect = self.cause, self.aspect
        if cause.compiling:
            one, several = _COMPILATIONS[cause.compiling]
            return say(one if abs(self.more_count) == 1 else several, more=self.more)
        if aspect in _RECORDING:
            return say(_RECORDING[aspect], op=self.op)
        if self.here:
            return self._title_of_amount()
        if cause.kind == "waiting":
            return say("waiting for {op} takes {time} longer", op=self.op, time=self.time)
        if self.time and self.head_input:
            return self._on_inputs(phrase("{op} on {head_input} instead of {base_input} takes {time} longer"))
        if self.time:
            return say("{op} takes {time} longer", op=self.op, time=self.time)
        return self._on_inputs(phrase("{op} on {head_input} instead of {base_input}")) if self.head_input else self.op

    def _title_of_amount(self) -> str:
        amount, aspect = self.cause.amount, self.aspect
        if aspect in _MODES:
            return say(_MODES[aspect], op=self.op)
        if amount == "held" and self.tensor:
            return say("{here} held in {tensor} of {op}", here=self.here, tensor=self.tensor, op=self.op)
        sentence = _AMOUNTS.get(amount, phrase("{here} {op}"))
        if self.here_count == 1:
            sentence = _ONE.get(amount, sentence)
        counted = say(sentence, here=self.here, op=self.op)
        if amount not in _AMOUNTS and self.op in _FAMILIAR:
            return joined([counted, Words(" ("), _FAMILIAR[self.op], Words(")")])
        return counted

    def _on_inputs(self, sentence: str) -> str:
        base_input, head_input = self.base_input or "", self.head_input or ""
        return say(sentence, op=self.op, head_input=head_input, base_input=base_input, time=self.time)

    def _ranks_and_counts(self) -> str:
        ranks = self.cause.ranks
        if ranks == "each":
            return say(" in each rank ({base} → {head})", base=self.base, head=self.head)
        if ranks:
            return say(" in rank {rank} ({base} → {head})", rank=ranks, base=self.base, head=self.head)
        return _NOTHING

    def at(self) -> str:
        """The line, and the place of the change behind it."""
        line, is_mode = self.line or "", self.cause.aspect in MODES
        if self.origin:
            changed = self.linked(self.origin.line)
            if is_mode:
                return say(" since {changed}, through {line}", changed=changed, line=line)
            if self.origin.reach == "elsewhere":
                return say(" since the change at {changed}, through {line}", changed=changed, line=line)
            return say(" at {changed}, through {line}", changed=changed, line=line)
        if not line:
            return _NOTHING
        return say(" since {line}", line=line) if is_mode else say(" at {line}", line=line)

    def in_all(self) -> str:
        """The total if other lines add to it too."""
        if self.here_count >= self.more_count:
            return _NOTHING
        total = formats.quantity(self.more_count, self.unit)
        lines = [line for line, _ in self._lines()]
        if len(lines) < 2:
            return say(" ({in_all} in all)", in_all=total)
        others = with_more(lines[1:], self._more_lines())
        return say(" ({in_all} in all, also at {other_lines})", in_all=total, other_lines=others)

    def ending(self) -> str:
        """The effect besides the operator's running, the remedy, and the reason of a compilation."""
        aspect = self.aspect
        effect = say(_EFFECTS[aspect]) if aspect in _EFFECTS else _NOTHING
        remedy = say(_REMEDIES[aspect]) if aspect in _REMEDIES else _NOTHING
        return joined([effect, remedy, self._compiled()])

    def _compiled(self) -> str:
        return say(": {op}", op=self.op) if self.cause.compiling else _NOTHING

    def origin_words(self) -> str:
        """The change behind a line that is itself unchanged."""
        if self.origin is None:
            return _NOTHING
        line, function = self.linked(self.origin.line), self.origin.function
        if self.origin.reach == "caller":
            return say(", called from {line} (changed)", line=line)
        if self.origin.reach == "function" and function:
            return say(", in {function}, changed at {line}", function=function, line=line)
        return say(", an unchanged line; the change touches {line}", line=line)

    def in_full(self) -> str:
        aspect = self.aspect
        parts = [self._subject(), self._more(), self._ranks()]
        if aspect == "full precision":
            parts.append(say(" in full precision"))
        parts.append(self._inputs())
        if self.tensor:
            parts.append(say(", at most {tensor}", tensor=self.tensor))
        parts += [self._at_lines(), self.origin_words()]
        if aspect in _EFFECTS:
            parts.append(say(_EFFECTS[aspect]))
        if self.time:
            includes_callees = self.cause.inclusive or self.cause.kind in _IN
            parts.append(say(", {time} more" if includes_callees else ", {time} more self time", time=self.time))
        return joined([*parts, self._compiled()])

    def _subject(self) -> str:
        cause, places = self.cause, listed(self.places)
        if cause.compiling:
            return say(_COMPILED_IN[cause.compiling], places=places)
        if self.aspect == "recorded":
            return say("autograd in {places}", places=places)
        if cause.kind == "outside" and cause.function:
            return say("{op} outside operators, in {places}", op=self.op, places=places)
        sentence = _IN[cause.kind] if cause.kind in _IN else phrase("{op} in {places}")
        return say(sentence, op=self.op, places=places)

    def _more(self) -> str:
        cause, aspect = self.cause, self.aspect
        if not self.more and not cause.compiling:
            return _NOTHING
        sentence = phrase(": {more} calls ({base} → {head})")
        if cause.compiling:
            sentence = phrase(": {more} ({base} → {head})")
        elif cause.amount in _MORE_OF_AMOUNT:
            sentence = _MORE_OF_AMOUNT[cause.amount]
        elif aspect in _MORE_OF_ASPECT:
            sentence = _MORE_OF_ASPECT[aspect]
        elif abs(self.more_count) == 1:
            sentence = phrase(": {more} call ({base} → {head})")
        return say(sentence, more=self.more, base=self.base, head=self.head)

    def _ranks(self) -> str:
        ranks = self.cause.ranks
        if ranks == "each":
            return say(" in each rank")
        return say(" in rank {rank}", rank=ranks) if ranks else _NOTHING

    def _inputs(self) -> str:
        return self._on_inputs(phrase(": on {head_input} instead of {base_input}")) if self.head_input else _NOTHING

    def _lines(self) -> list[tuple[str, Words]]:
        """The first lines that add to it, each with how much; the file is named once."""
        lines: list[tuple[str, Words]] = []
        file = ""
        for site in _lines_of(self.cause.sites)[:_NAMED_LINES]:
            line = site.line or ""
            shown = line.removeprefix(file) if lines else self.linked(line)
            file = file or line.rpartition(":")[0]
            lines.append((shown, formats.quantity(site.head - site.base, self.unit)))
        return lines

    def _more_lines(self) -> int:
        return max(0, len(self.cause.sites) - _NAMED_LINES)

    def _at_lines(self) -> str:
        lines = self._lines()
        if len(lines) < 2:
            return say(" at {line}", line=self.line) if self.line else _NOTHING
        amounts: list[str] = [joined([line, Words(" ("), more, Words(")")]) for line, more in lines]
        return say(" at {lines}", lines=with_more(amounts, self._more_lines()))

    def in_table(self) -> str:
        parts: list[str] = [self.op]
        if self.cause.compiling:
            parts.insert(0, say(_COMPILED_CELL[self.cause.compiling]))
        if self.aspect == "full precision":
            parts.append(say(" in full precision"))
        elif self.aspect in _EFFECTS:
            parts.append(say(_EFFECTS[self.aspect]))
        return joined([*parts, self._inputs()])


def _lines_of(sites: Sequence[Part]) -> list[Part]:
    return [site for site in sites if site.line]


def _changed_input(cause: Cause) -> tuple[str | None, str | None]:
    """The form of the largest input that changed, on base and head; without its layout, if that is the same."""
    if cause.base_inputs is None or cause.head_inputs is None:
        return None, None
    before, after = cause.base_inputs.split(", "), cause.head_inputs.split(", ")
    changed = [(old, new) for old, new in zip(before, after) if old != new]
    if not changed:
        return None, None
    old, new = max(changed, key=_extent)
    old_shape, _, old_layout = old.partition(" ")
    new_shape, _, new_layout = new.partition(" ")
    return (old_shape, new_shape) if old_layout == new_layout else (old, new)


def _extent(forms: tuple[str, str]) -> tuple[int, float]:
    shape = forms[1].partition("[")[2].partition("]")[0]
    sizes = [float(size) for size in re.findall(r"\d+", shape)]
    return len(sizes), math.prod(sizes)


@dataclass(frozen=True)
class Account:
    """How the parts of a slower call add up to the measured difference, and its bottleneck; unknown parts are empty."""

    place: str
    metric: str
    measured: Words
    more: Words
    saved: Words
    share: Words
    left: Words
    over: Words
    bound: Words
    base_bound: Words


def worded_account(summary: Summary) -> Account | None:
    """The account of the worst slower call; None if none is explained."""
    slower = (entry for entry in summary.decision.explanations if (entry.measured or 0.0) > 0)
    explained = next(slower, None)
    if explained is None or explained.measured is None or explained.metric is None or not explained.contributions:
        return None
    seconds = [part.seconds for part in explained.contributions]
    measured, rest = explained.measured, explained.measured - explained.explained
    least = _NOTABLE * measured
    return Account(
        place=place(explained.workload, explained.shape),
        metric=metric_name(explained.metric, summary.clock_of(explained)),
        measured=formats.quantity(measured, "s"),
        more=formats.quantity(sum(part for part in seconds if part > 0), "s"),
        saved=_if_notable(-sum(part for part in seconds if part < 0), least),
        share=numbers.percent(explained.explained / measured),
        left=_if_notable(rest, least),
        over=_if_notable(-rest, least),
        bound=_bound(explained.head_bound),
        base_bound=_bound(explained.base_bound),
    )


def _if_notable(seconds: float, least: float) -> Words:
    return formats.quantity(seconds, "s") if seconds >= least else _NOTHING


def _bound(bottleneck: Bottleneck | None) -> Words:
    return say(_BOUNDS[bottleneck]) if bottleneck else _NOTHING
