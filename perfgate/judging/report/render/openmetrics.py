"""A run's values as OpenMetrics text, which GitLab compares with those of the target branch (``artifacts:reports:metrics``).

After the specification "OpenMetrics 1.0" (prometheus/OpenMetrics): gauges in base units, the unit as the name's last part,
families in one piece, ``# EOF`` at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.records import Metric
from perfgate.document.run import RunDocument
from perfgate.judging.report.text.escape import clean

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
_LABEL = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")
_OTHER = re.compile(r"[^a-zA-Z0-9_]")


class _Sample(NamedTuple):
    labels: tuple[tuple[str, str], ...]
    value: float


def openmetrics(run: RunDocument, steps: Iterable[int]) -> str:
    """The values of some steps, and the exact counters, one gauge per metric; unavailable values are left out."""
    numbers = frozenset(steps)
    families: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for name, sample in _samples(run, numbers):
        # A series may occur only once in a text: if a document has two values, the first counts.
        families.setdefault(name, {}).setdefault(sample.labels, sample.value)
    return "".join(_family(METRICS[name], families[name]) for name in sorted(families)) + END


def unit_of(metric: Metric) -> str:
    """The OpenMetrics name of a metric's unit, empty for a count."""
    return "ratio" if metric.share else _UNITS.get(metric.unit, "")


def family_name(metric: Metric) -> str:
    """A metric's name, which ends in its unit: ``perfgate_latency_low_seconds``."""
    name, unit = "perfgate_" + _OTHER.sub("_", metric.name), unit_of(metric)
    return name if not unit or name.endswith(f"_{unit}") else f"{name}_{unit}"


def _samples(run: RunDocument, steps: frozenset[int]) -> Iterator[tuple[str, _Sample]]:
    for step in run.steps:
        for value in step.values if step.number in steps else ():
            if value.metric in METRICS and value.value is not None and all(map(_LABEL.fullmatch, value.labels)):
                yield value.metric, _sample({"workload": step.workload, **value.labels}, value.value)
    for counters in run.counters:
        for name, count in counters.values.items():
            if name in METRICS and name not in counters.unstable:
                yield name, _sample({"workload": counters.workload, "shape": counters.shape}, count)


def _sample(labels: dict[str, str], value: float) -> _Sample:
    return _Sample(tuple(sorted(labels.items())), value)


def _family(metric: Metric, samples: dict[tuple[tuple[str, str], ...], float]) -> str:
    name, unit = family_name(metric), unit_of(metric)
    head = [
        f"# TYPE {name} gauge",
        *([f"# UNIT {name} {unit}"] if unit else []),
        f"# HELP {name} {_text(metric.title)}",
    ]
    rows = [f"{name}{{{_labels(labels)}}} {float(value)!r}" for labels, value in sorted(samples.items())]
    return "\n".join([*head, *rows]) + "\n"


def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    return ",".join(f'{name}="{_text(clean(value))}"' for name, value in labels)


def _text(text: str) -> str:
    """Escape a label value or help text (OpenMetrics 1.0, "Escaping")."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
