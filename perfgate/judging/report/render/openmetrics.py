"""A run's values as OpenMetrics text, which GitLab compares with the target branch (``artifacts:reports:metrics``).

After the specification "OpenMetrics 1.0" (prometheus/OpenMetrics): gauges in base units, the unit as the name's last part,
families in one piece, ``# EOF`` at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.records import Metric
from perfgate.document.run import RunDocument
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.view.number_rows import own_numbers, rows_of_run

END = "# EOF\n"
_UNITS = {
    "s": "seconds",
    "B": "bytes",
    "B/s": "bytes_per_second",
    "items/s": "items_per_second",
    "Cel": "celsius",
    "W": "watts",
    "J": "joules",
}
_SUFFIXES = {"counter": "_total", "gauge": ""}
_LABEL = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")
_OTHER = re.compile(r"[^a-zA-Z0-9_]")

_Labels = tuple[tuple[str, str], ...]
# A run with values that carry further labels, such as its project.
LabelledRun = tuple[Mapping[str, str], RunDocument]


class ServiceFamily(NamedTuple):
    """Numbers about a service itself, by the values of its labels."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    labels: tuple[str, ...]
    values: Mapping[tuple[str, ...], float]


def openmetrics(run: RunDocument, steps: Iterable[int]) -> str:
    """The values of some steps, and the exact counters, one gauge per metric; unavailable values are left out."""
    return "".join(_families([({}, run)], frozenset(steps))) + END


def openmetrics_of_runs(
    runs: Iterable[LabelledRun], further: Iterable[ServiceFamily]
) -> str:
    """The values of all steps of several runs, one gauge per metric, and other families."""
    return "".join([*_families(runs, None), *map(_other_family, further)]) + END


def unit_of(metric: Metric) -> str:
    """The OpenMetrics name of a metric's unit, empty for a count."""
    if metric.number.sort == "share":
        return "ratio"
    return _UNITS.get(metric.unit, "")


def family_name(metric: Metric) -> str:
    """A metric's name, which ends in its unit: ``perfgate_latency_low_seconds``."""
    name, unit = "perfgate_" + _OTHER.sub("_", metric.name), unit_of(metric)
    if not unit or name.endswith(f"_{unit}"):
        return name
    return f"{name}_{unit}"


def _families(
    runs: Iterable[LabelledRun], steps: frozenset[int] | None
) -> Iterator[str]:
    families: dict[str, dict[_Labels, float]] = {}
    for labels, run in runs:
        for name, of_value, value in _samples(run, steps):
            # A series may occur only once in a text: if a document has two values, the first counts.
            series = tuple(
                sorted(
                    (label, clean(text))
                    for label, text in {**of_value, **labels}.items()
                )
            )
            families.setdefault(name, {}).setdefault(series, value)
    return (_family(METRICS[name], families[name]) for name in sorted(families))


def _samples(
    run: RunDocument, steps: frozenset[int] | None
) -> Iterator[tuple[str, dict[str, str], float]]:
    for row in own_numbers(rows_of_run(run)):
        described = METRICS.get(row.metric)
        is_selected = described is not None and (
            steps is None or row.step in steps or described.origin.counted
        )
        if (
            is_selected
            and row.value is not None
            and all(map(_LABEL.fullmatch, row.labels))
        ):
            labels = {"workload": row.workload}
            if row.shape:
                labels["shape"] = row.shape
            yield row.metric, {**labels, **row.labels}, row.value


def _other_family(family: ServiceFamily) -> str:
    lines = [
        f"# TYPE {family.name} {family.kind}",
        f"# HELP {family.name} {_text(family.help)}",
    ]
    sample = f"{family.name}{_SUFFIXES[family.kind]}"
    for values, number in sorted(family.values.items()):
        lines.append(f"{sample}{{{_labels(zip(family.labels, values))}}} {number!r}")
    return "\n".join(lines) + "\n"


def _family(metric: Metric, samples: dict[_Labels, float]) -> str:
    name, unit = family_name(metric), unit_of(metric)
    lines = [f"# TYPE {name} gauge"]
    if unit:
        lines.append(f"# UNIT {name} {unit}")
    lines.append(f"# HELP {name} {_text(metric.title)}")
    lines += [
        f"{name}{{{_labels(labels)}}} {float(value)!r}"
        for labels, value in sorted(samples.items())
    ]
    return "\n".join(lines) + "\n"


def _labels(labels: Iterable[tuple[str, str]]) -> str:
    return ",".join(f'{name}="{_text(clean(value))}"' for name, value in labels)


def _text(text: str) -> str:
    """Escape a label value or help text (OpenMetrics 1.0, "Escaping")."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
