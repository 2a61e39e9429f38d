"""The short reply to somebody who asked for something in a comment."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from perfgate.document.decision import Verdict
from perfgate.judging.report.text.templates import render
from perfgate.judging.report.text.words import Words
from perfgate.locale import Language, speaking

Outcome = Literal["measuring", "accepted", "waiting", "unclear", "own_fork", "unnamed", "moved", "no_metric"]


@dataclass(frozen=True)
class Answer:
    """What became of an order.

    ``head`` is the change's commit and ``named`` another one that was asked for; ``close`` the metric that was meant.
    """

    outcome: Outcome
    head: str = ""
    named: str = ""
    workload: str | None = None
    metric: str = ""
    close: str | None = None
    verdict: Verdict | None = None
    job_url: str | None = None


def render_answer(answer: Answer, language: Language) -> str:
    """The Markdown of a reply, one line."""
    with speaking(language):
        values = {**asdict(answer), "outcome": Words(answer.outcome), "verdict": Words(answer.verdict or "")}
        return render("order/answer.md.j2", "markdown", values).strip()
