"""runs/: the list of runs, and the page of one: its numbers beside main's level, checklist, machine and counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from perfgate.catalogue.lookup import CARDS, metric
from perfgate.document.clocks import clock_notes
from perfgate.document.history import StoredRun, moment
from perfgate.document.kept import KeptOfRun
from perfgate.document.run import RunDocument, StepResult
from perfgate.document.site import BesideLevel, SiteContent
from perfgate.judging.report.render.site.addresses import SiteLinks, run_address, runs_address
from perfgate.judging.report.render.site.cells import kept_cells, level_cells, run_cells, testbed_link, under
from perfgate.judging.report.render.site.frame import render_page
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.names import metric_name, place
from perfgate.judging.report.text.words import Words, say
from perfgate.judging.report.view.checklist import step_row
from perfgate.judging.report.view.page_tables import counter_rows
from perfgate.judging.report.view.trend_rows import minute
from perfgate.locale import Language, speaking

RUNS_A_PAGE = 200
_MAX_ROWS, _MAX_OPERATORS, _MAX_WARNINGS = 400, 15, 60
# The state of the device, of step 19.
_DEVICE_METRICS = ("thermal.temperature", "thermal.clock", "thermal.throttled", "thermal.power", "thermal.derating")


def page_count(content: SiteContent) -> int:
    return max(1, -(-len(content.runs) // RUNS_A_PAGE))


def render_runs(content: SiteContent, links: SiteLinks, language: Language, *, page: int = 1) -> str:
    """One page of the list of runs, newest first; ``page`` is counted from 1."""
    with speaking(language):
        address = runs_address(page)
        root = links.root(address)
        first = (page - 1) * RUNS_A_PAGE
        pages = page_count(content)
        values = {
            "title": say("Runs"),
            "count": len(content.runs),
            "rows": [run_cells(run, content, links, root) for run in content.runs[first : first + RUNS_A_PAGE]],
            "newer": under(root, links.to(runs_address(page - 1))) if page > 1 else Words(""),
            "older": under(root, links.to(runs_address(page + 1))) if page < pages else Words(""),
            "page": page,
            "pages": pages,
            "compare_form": Words(f"{root}compare/index.html") if links.forms else Words(""),
        }
        return render_page("site/runs.html.j2", address, content, links, values)


def render_run(
    listed: StoredRun,
    run: RunDocument,
    numbers_of_run: Sequence[BesideLevel],
    neighbours: tuple[StoredRun | None, StoredRun | None],
    kept: KeptOfRun,
    content: SiteContent,
    links: SiteLinks,
    language: Language,
    *,
    recording: str = "",
) -> str:
    """The page of a run, with links to its ``neighbours``: the runs of its testbed before and after it.

    ``recording`` is the name under which a service shows the traces of the run.
    """
    before, after = neighbours
    with speaking(language):
        address = run_address(listed.id)
        root = links.root(address)
        rows = [level_cells(placed, links, root) for placed in numbers_of_run[:_MAX_ROWS]]
        apart = [row for row, placed in zip(rows, numbers_of_run) if placed.is_apart]
        values = {
            "title": Words(say("Run {id}", id=Words(listed.id[:12]))),
            "run": run_cells(listed, content, links, root),
            "id": Words(listed.id[:12]),
            "sha256": listed.id,
            "facts": _facts(listed, run),
            "recording": Words(quote(recording, safe="")),
            "before": _neighbour(before, listed, links, root, is_earlier=True),
            "after": _neighbour(after, listed, links, root, is_earlier=False),
            "errors": _errors(run),
            "warnings": [*clock_notes(run, listed.recorded_at), *run.warnings][:_MAX_WARNINGS],
            "apart": apart,
            "rest": [row for row, placed in zip(rows, numbers_of_run) if not placed.is_apart],
            "chance": numbers_of_run[0].confidence if numbers_of_run else None,
            "steps": [_step(step) for step in sorted(run.steps, key=lambda s: (s.number, s.workload))[:_MAX_ROWS]],
            "device": _device(run),
            "testbed": testbed_link(listed.fingerprint, content, root),
            "comparable": sorted(run.testbed.comparable.items())[:_MAX_ROWS],
            "observed": sorted(run.testbed.observed.items())[:_MAX_ROWS],
            "counters": counter_rows(None, run)[:_MAX_ROWS],
            "operators": _operators(run),
            "kept": [kept_cells(link) for link in kept.links[:_MAX_ROWS]],
            "kept_why": kept.why,
        }
        return render_page("site/run.html.j2", address, content, links, values)


def render_unreadable(address: str, reason: str, content: SiteContent, links: SiteLinks, language: Language) -> str:
    """The page of a run that cannot be read, with the reason."""
    with speaking(language):
        values = {"title": say("Not readable"), "reason": reason}
        return render_page("site/unreadable.html.j2", address, content, links, values)


def _facts(listed: StoredRun, run: RunDocument) -> list[tuple[Words, str | Words]]:
    """What was measured when; measured by which perfgate."""
    began, ended, queued = run.session.started_at, run.session.finished_at, run.session.queued
    facts: list[tuple[Words, str | Words]] = [
        (say("commit"), run.source.commit or say("none")),
        (say("branch"), run.source.branch or say("none")),
        (say("measured"), minute(began)),
        (say("took"), _took(began, ended)),
        *([] if queued is None else [(say("waited in line"), numbers.duration(queued))]),
        (say("recorded"), minute(listed.recorded_at)),
        (say("command"), f"perfgate {run.session.command}"),
        (say("measured by"), f"perfgate {run.perfgate_version}"),
    ]
    return facts


def _took(began: str, ended: str) -> Words:
    try:
        return numbers.duration((moment(ended) - moment(began)).total_seconds())
    except ValueError:
        return numbers.DASH


def _neighbour(
    other: StoredRun | None, own: StoredRun, links: SiteLinks, root: Words, *, is_earlier: bool
) -> Mapping[str, object] | None:
    if other is None:
        return None
    pair = (other.id, own.id) if is_earlier else (own.id, other.id)
    return {
        "id": Words(other.id[:12]),
        "subject": other.subject or "",
        "address": under(root, links.run(other.id)),
        "compare": under(root, links.compare(*pair)),
    }


def _errors(run: RunDocument) -> list[Mapping[str, object]]:
    failed = [(workload.name, say("workload"), workload.error) for workload in run.workloads if workload.error]
    failed += [
        (step.workload, say("step {number}", number=step.number), step.error) for step in run.steps if step.error
    ]
    errors: list[Mapping[str, object]] = [
        {"workload": workload, "what": what, "message": str(word(error.message)), "text": error.traceback or ""}
        for workload, what, error in failed[:_MAX_WARNINGS]
    ]
    return errors + [
        {
            "workload": place(check.workload, check.shape),
            "what": say("output"),
            "message": str(word(check.message or "")),
            "text": "",
        }
        for check in run.correctness
        if check.status in ("failed", "error")
    ]


def _step(step: StepResult) -> Mapping[str, object]:
    row = step_row(step)
    return {
        "number": row.number,
        "title": say(CARDS[row.number].title) if row.number in CARDS else row.name,
        "workload": step.workload,
        "key": Words(row.key),
        "status": row.status,
        "notes": row.notes,
        "took": numbers.duration(step.duration) if step.duration else numbers.DASH,
        "waited": numbers.DASH if step.waited is None else numbers.percent(step.waited),
    }


def _device(run: RunDocument) -> list[tuple[str, str, Words]]:
    """What the device reported while it was measured: name, place, value."""
    return [
        (
            metric_name(value.metric),
            step.workload,
            formats.quantity(value.value, metric(value.metric).unit, metric=value.metric),
        )
        for step in run.steps
        for value in step.values
        if value.metric in _DEVICE_METRICS and value.value is not None
    ][:_MAX_ROWS]


def _operators(run: RunDocument) -> list[Mapping[str, object]]:
    places: dict[tuple[str, str], list[Mapping[str, object]]] = {}
    for row in sorted(run.operators, key=lambda row: -row.self_time):
        rows = places.setdefault(row.place, [])
        if len(rows) < _MAX_OPERATORS:
            rows.append(
                {"op": row.op, "count": row.count, "time": formats.quantity(row.self_time, "s"), "share": row.share}
            )
    return [{"place": place(*key), "rows": rows} for key, rows in sorted(places.items())]
