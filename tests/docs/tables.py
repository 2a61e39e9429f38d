"""What pages get from the schema, the catalogue and a golden: ``python -m tests.docs.tables`` writes it (``make pages``)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from perfgate.catalogue.lookup import CARDS, GATING_LIMITS, GLOSSARY, METRICS
from perfgate.catalogue.records import Metric, StepCard
from perfgate.document.schema import load_schema
from perfgate.locale import translate
from tests.docs.api import api
from tests.docs.blocks import DOCS
from tests.docs.markdown import table

DATA = DOCS.parent / "tests" / "golden" / "data"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
KINDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}


def page(name: str) -> str:
    """The text of a page with its tables as they should be."""
    before, _, rest = (DOCS / name).read_text(encoding="utf-8").partition(BEGIN)
    return "\n".join([before + BEGIN, "", *PAGES[name](), END + rest.partition(END)[2]])


def configuration() -> Iterator[str]:
    """The settings of perfgate.toml."""
    schema = load_schema("config")
    records = schema["$defs"]
    settings = records["ConfigFile"]["properties"]
    yield "## At the top of the file\n"
    yield _settings({key: setting for key, setting in settings.items() if "$ref" not in setting}, {})
    yield f"A limit in `[limits]` is a number, or a table of:\n\n{_settings(records['LimitSetting']['properties'], {})}"
    for key, setting in settings.items():
        if "$ref" in setting:
            record = records[setting["$ref"].rpartition("/")[2]]
            yield f"## [{key}]\n\n{record['description']}\n"
            yield _settings(record["properties"], setting["default"])


def jobs() -> Iterator[str]:
    """The settings of a job, and of what stands in its table."""
    records = load_schema("config")["$defs"]
    for name, key in (
        ("JobSettings", "[workloads.NAME]"),
        ("NumberSettings", "numbers"),
        ("LoadSettings", "load"),
        ("Lengths", "input and output of a load, as a table"),
        ("SlaSettings", "sla"),
    ):
        yield f"### {key}\n"
        yield _settings(records[name]["properties"], {})


def checklist() -> Iterator[str]:
    """The question, the metrics and the limits of every step."""
    for card in CARDS.values():
        yield f"### {card.number}. {card.title}\n\n{card.question}\n"
        yield from _metrics(card)
        if card.limits:
            rows = [
                (f"`{limit.name}`", f"{limit.default:g}", "yes" if limit.name in GATING_LIMITS else "")
                for limit in card.limits
            ]
            yield table(("limit", "number", "can fail the gate"), rows)


def glossary() -> Iterator[str]:
    """The words of the reports, the metrics that are compared, and the words in Chinese."""
    terms = sorted(GLOSSARY.values(), key=lambda term: term.name.lower())
    yield table(("word", "meaning", "also"), [(term.name, term.explanation, ", ".join(term.also)) for term in terms])
    yield "## Metrics that are compared\n"
    compared = [metric for metric in METRICS.values() if metric.gate.tolerance is not None]
    yield table(
        ("metric", "what it is", "meaning", "tolerance"),
        [(f"`{metric.name}`", metric.title, metric.explanation, _tolerance(metric)) for metric in compared],
    )
    yield "## 中文\n"
    yield table(("词", "含义"), [(term.name, translate(term.explanation, "zh")) for term in terms])


def comment() -> Iterator[str]:
    """A comment that the product renders, as a quotation: what is seen before the folds, and their titles."""
    seen, *folds = (DATA / "comment-fail-by-time.md").read_text(encoding="utf-8").split("<details><summary>")
    # Links of a forge that there is not, and the line by which perfgate knows its comment.
    seen = re.sub(r"\[(.+?)\]\(https:[^)]+\)", r"\1", seen.partition("-->")[2])
    titles = " · ".join(f"▸ {fold.partition('</summary>')[0]}" for fold in folds)
    lines = [*seen.strip().replace("## ", "### ").splitlines(), "", titles]
    yield "".join(f"> {line}".rstrip() + "\n" for line in lines)


def _metrics(card: StepCard) -> Iterator[str]:
    if card.metrics:
        rows = [
            (f"`{metric.name}`", metric.title, metric.unit, metric.better, metric.kind, _tolerance(metric))
            for metric in card.metrics
        ]
        yield table(("metric", "what it is", "unit", "better", "kind", "tolerance"), rows)


def _tolerance(metric: Metric) -> str:
    return "" if metric.gate.tolerance is None else f"{100 * metric.gate.tolerance:g} %"


def _settings(settings: dict[str, Any], defaults: dict[str, Any]) -> str:
    rows = [
        (f"`{key}`", _kind(setting), _value(defaults.get(key, setting.get("default"))), setting["description"])
        for key, setting in settings.items()
    ]
    return table(("setting", "kind", "default", "meaning"), rows)


def _kind(schema: dict[str, Any]) -> str:
    if not schema.keys() - {"description"}:
        return "anything"
    if "$ref" in schema:
        return "table"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    kinds = schema.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind == "array":
            return f"list: {_kind(schema['items'])}"
        if kind == "object":
            return f"table: {_kind(schema.get('additionalProperties', {}))}"
        if kind in KINDS:
            return KINDS[kind]
    return " or ".join(_kind(member) for member in schema["anyOf"] if member.get("type") != "null")


def _value(default: object) -> str:
    if default is None:
        return "unset"
    if default == {}:
        return "empty"
    return f"`{json.dumps(default, ensure_ascii=False)}`"


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "configuration.md": configuration,
    "checklist.md": checklist,
    "comment.md": comment,
    "jobs.md": jobs,
    "glossary.md": glossary,
    "api.md": api,
}

if __name__ == "__main__":
    for name in PAGES:
        (DOCS / name).write_text(page(name), encoding="utf-8")
