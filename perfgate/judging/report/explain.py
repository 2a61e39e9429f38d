"""``perfgate explain``: what a metric or a step means, its unit, its limits and where its formula comes from."""

from __future__ import annotations

import difflib
from typing import Optional

from perfgate.catalogue.card import Metric, StepCard
from perfgate.catalogue.lookup import CARDS, METRICS, metric
from perfgate.document.tolerances import DEFAULT_TOLERANCES
from perfgate.errors import UsageError
from perfgate.judging.report import format as formats
from perfgate.judging.report.text import render
from perfgate.judging.report.words import Words

_UNITS = {"s": "seconds", "B": "bytes", "B/s": "bytes per second", "items/s": "items per second", "1": "a count"}
_BETTER = {"lower": "lower is better", "higher": "higher is better", "neutral": "neither direction is better"}


def explain(name: str) -> str:
    """Return the text for a metric (``latency.p50``) or for a step by number or slug (``4``, ``s04``, ``top_ops``).

    Raises UsageError, with the nearest known name, for anything else.
    """
    wanted = name.strip().lower()
    number = _step_number(wanted)
    if number is not None:
        return _explain_step(CARDS[number])
    found = _metric(name.strip())
    if found is not None:
        return _explain_metric(found)
    raise UsageError(
        f"there is no metric or step {name!r}{_nearest(wanted)}; metrics: {', '.join(METRICS)}; steps: 1 to 20"
    )


def _metric(name: str) -> Optional[Metric]:
    try:
        return metric(name)
    except KeyError:
        return None


def _step_number(wanted: str) -> Optional[int]:
    digits = wanted.removeprefix("s")
    if digits.isascii() and digits.isdigit() and len(digits) <= 2 and int(digits) in CARDS:
        return int(digits)
    return next((number for number, card in CARDS.items() if card.slug == wanted.replace("-", "_")), None)


def _nearest(wanted: str) -> str:
    known = [*METRICS, *(card.slug for card in CARDS.values())]
    close = difflib.get_close_matches(wanted, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def _explain_metric(found: Metric) -> str:
    values = {
        "name": found.name,
        "title": found.title,
        "explanation": Words(found.explanation),
        "unit": Words("a share of the whole" if formats.is_share(found.name) else _UNITS.get(found.unit, found.unit)),
        "better": Words(_BETTER[found.better]),
        "exact": found.kind == "exact",
        "source": Words(found.source),
        "step": found.step,
        "step_title": Words(CARDS[found.step].title),
        "tolerance": formats.setting(DEFAULT_TOLERANCES[found.name]) if found.name in DEFAULT_TOLERANCES else None,
        "limits": _limits(CARDS[found.step], found.name),
    }
    return str(render("explain/metric.txt.j2", "plain", values)).strip() + "\n"


def _explain_step(card: StepCard) -> str:
    values = {
        "number": card.number,
        "slug": card.slug,
        "title": Words(card.title),
        "question": Words(card.question),
        "how": Words(card.how),
        "remedy": Words(card.remedy),
        "metrics": [{"name": found.name, "title": Words(found.title)} for found in card.metrics],
        "limits": _limits(card),
    }
    return str(render("explain/step.txt.j2", "plain", values)).strip() + "\n"


def _limits(card: StepCard, metric: str = "") -> list[dict[str, object]]:
    """Return the default limits of a step, or those of its rules that are about one metric."""
    return [
        {"key": limit.name, "value": Words(f"{limit.default:g}")}
        for limit in card.limits
        if limit.name.startswith(f"{metric}." if metric else "")
    ]
