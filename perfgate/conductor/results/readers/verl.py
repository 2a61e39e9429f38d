"""The log of verl:
``step:32 - actor/loss:0.1 - timing_s/step:46.6 - perf/throughput:801.4``, also behind
Ray's prefix.

Made from lines that verl's own console logger printed; a whole training was not run.
"""

from __future__ import annotations

import re
from statistics import fmean, median

from perfgate.conductor.results.result import Better, Content, Results

READS = "the log of verl"
_LINE = re.compile(r"step:(\d+) - ([^\n]*timing_s/step:[^\n]*)")
# numpy's reductions are printed by their repr: "perf/throughput:np.float64(801.4)".
_FIELD = re.compile(r"([^:]+):(?:np\.\w+\()?(-?[\d.]+(?:e[+-]?\d+)?|-?inf|nan)\)?")
_METRICS: dict[str, tuple[str, str, Better]] = {
    "timing_s/step": ("step", "s", "lower"),
    "timing_s/gen": ("gen", "s", "lower"),
    "timing_s/update_actor": ("update_actor", "s", "lower"),
    "perf/throughput": ("throughput", "tokens/s", "higher"),
    "perf/max_memory_allocated_gb": ("memory", "GiB", "lower"),
}
_LENGTH = "response_length/mean"
_WARM_UP = 1
FEWEST = 4


def recognises(content: Content) -> bool:
    return _LINE.search(content.text) is not None


def read(content: Content) -> Results:
    all_steps = []
    for _, line in _LINE.findall(content.text):
        fields = [_FIELD.fullmatch(field.strip()) for field in line.split(" - ")]
        all_steps.append({field[1]: float(field[2]) for field in fields if field})
    steps = all_steps[_WARM_UP:]
    if len(steps) < FEWEST:
        raise content.refused(
            "it has {count} steps after the first; at least {fewest} are needed",
            count=len(steps),
            fewest=FEWEST,
        )
    numbers = []
    for key, (name, unit, better) in _METRICS.items():
        if values := [step[key] for step in steps if key in step]:
            numbers.append(content.number(name, median(values), unit, better, values))
    work = {"steps": len(steps)}
    # Rollouts are random: answers of other lengths are other work.
    if lengths := [step[_LENGTH] for step in steps if _LENGTH in step]:
        work["response_length"] = round(fmean(lengths))
    return Results(numbers, work)
