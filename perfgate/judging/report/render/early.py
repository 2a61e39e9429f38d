"""What counters show before any pair is measured, as the terminal will show it at the end: blocks with line and remedy."""

from __future__ import annotations

from perfgate.document.decision import DecisionDocument
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.names import title_of
from perfgate.judging.report.text.templates import line
from perfgate.judging.report.text.words import phrase, say
from perfgate.judging.report.view.blocks import RegressionBlock, blocks_with_more
from perfgate.judging.report.view.suggestions import suggestion_lines
from perfgate.judging.report.view.summary import Summary
from perfgate.locale import Language, speaking

_SHOWN_COUNTS = 4
CERTAIN = phrase("FAIL – {workload}, for certain: no time can change this; pairs now measure what it costs")
OPEN = phrase(
    "{workload}: exact counts grew, which fails unless calls are shown not to be slower; pairs now measure that"
)
ALONE = phrase("FAIL – {workload}, by exact counts: calls are too slow to be timed, so no time can excuse them")


def early_lines(
    decision: DecisionDocument, workload: str, *, certain: bool, has_pairs: bool = True, language: Language = "en"
) -> list[str]:
    """The regressions of a decision about one workload without pairs; ``certain`` is whether no time can change its verdict.

    ``has_pairs`` is whether pairs follow.
    """
    with speaking(language):
        summary = Summary(decision, detail=_SHOWN_COUNTS)
        listed, more = blocks_with_more(summary)
        title = CERTAIN if certain else OPEN
        if not has_pairs:
            title = ALONE
        lines: list[str] = [say(title, workload=clean(workload))]
        for number, block in enumerate(listed, start=1):
            lines += _block_lines(number, block, summary)
        if not listed:
            for comparison in summary.regressed[:_SHOWN_COUNTS]:
                lines.append(f"  {clean(title_of(comparison))}")
        if more:
            lines.append(f"  {say('… {count} more', count=more)}")
        return lines


def _block_lines(number: int, block: RegressionBlock, summary: Summary) -> list[str]:
    """The title of a block, the code of its line, the counts that changed, and the remedy."""
    # No title of the comment stands above these, so the count that it would name is listed.
    named = [(summary.worst, None)] if block.in_title else []
    counts = [*named, *block.counts]
    lines: list[str] = [f"{number}. {line('shared/block.j2', 'plain', block=block)}"]
    if block.cause and block.cause.code:
        lines.append(f"     {clean(block.cause.code)}")
    changed = line("shared/block_counts.j2", "plain", counts=counts, most=_SHOWN_COUNTS)
    if block.cause and changed:
        lines.append(f"  • {say('Changed:')} {changed}")
    if block.suggestion is not None:
        remedy, *_ = suggestion_lines(block.suggestion)
        lines.append(f"  • {say('Try')} {remedy}")
    return lines
