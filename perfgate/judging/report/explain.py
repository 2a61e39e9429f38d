"""``perfgate explain``: what a metric or a step means, its unit, its limits and where its formula comes from."""

from __future__ import annotations

import difflib
from typing import Optional

from perfgate.document.checklist import StepTitle, step_titles
from perfgate.document.metric import METRICS, Metric, metric
from perfgate.document.tolerances import DEFAULT_TOLERANCES
from perfgate.errors import UsageError
from perfgate.judging.report import format as formats
from perfgate.judging.report.step_texts import STEP_LIMITS, STEP_TEXTS
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
        return _explain_step(number, step_titles()[number])
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
    titles = step_titles()
    digits = wanted.removeprefix("s")
    if digits.isascii() and digits.isdigit() and len(digits) <= 2 and int(digits) in titles:
        return int(digits)
    return next((number for number, title in titles.items() if title.slug == wanted.replace("-", "_")), None)


def _nearest(wanted: str) -> str:
    known = [*METRICS, *(title.slug for title in step_titles().values())]
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
        "step_title": Words(step_titles()[found.step].title),
        "tolerance": formats.setting(DEFAULT_TOLERANCES[found.name]) if found.name in DEFAULT_TOLERANCES else None,
        "limits": _limits(found.name),
    }
    return str(render("explain/metric.txt.j2", "plain", values)).strip() + "\n"


def _explain_step(number: int, title: StepTitle) -> str:
    text = STEP_TEXTS.get(number)
    measured = [found for found in METRICS.values() if found.step == number]
    values = {
        "number": number,
        "slug": title.slug,
        "title": Words(title.title),
        "question": Words(text.question) if text else None,
        "how": Words(text.how) if text else None,
        "remedy": Words(text.remedy) if text else None,
        "metrics": [{"name": found.name, "title": Words(found.title)} for found in measured],
        "limits": [limit for found in measured for limit in _limits(found.name)],
    }
    return str(render("explain/step.txt.j2", "plain", values)).strip() + "\n"


def _limits(name: str) -> list[dict[str, object]]:
    """Return the default limits inside one run whose rule is about a metric."""
    return [
        {"key": key, "value": Words(f"{value:g}")} for key, value in STEP_LIMITS.items() if key.startswith(f"{name}.")
    ]
